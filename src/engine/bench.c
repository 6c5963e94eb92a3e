#include "config.h"

#include "engine/bench.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "common/alloc.h"
#include "common/clock.h"
#include "common/log.h"
#include "common/median.h"
#include "engine/machine.h"
#include "engine/random.h"
#include "engine/sampler.h"
#include "engine/scheduler.h"
#include "gpu/device.h"
#include "kernels/profile.h"
#include "model/forward.h"
#include "model/weights.h"

enum { PAGE_TOKENS = 64, SAMPLES = BENCH_ROUNDS * BENCH_STEPS };

/* Of one sequence: the longer of a prompt with its one token, and of a context with what is decoded behind it. */
enum { MOST_TOKENS = BENCH_PROMPT + 1, SLOT_PAGES = (MOST_TOKENS + PAGE_TOKENS - 1) / PAGE_TOKENS };
_Static_assert(BENCH_CONTEXT + BENCH_STEPS + 1 <= MOST_TOKENS, "a decoding sequence fits");

struct cost {
    uint64_t bytes, flops;
};

/* One line of the table.  A prefill's step is the whole prompt. */
struct phase {
    const char *name;
    int batch;         /* sequences at once */
    int tokens;        /* a step: of the prompt, or one of each sequence */
    int prompt, steps; /* tokens of each sequence's prompt; steps timed a round, 0: the prompt is */
    double seconds[SAMPLES], outside[SAMPLES];
    int samples, profiled;
    struct cost cost;             /* of the profiled round on all ranks */
    struct kern_profile_row *row; /* of the same on this rank */
};

static const struct phase phases[] = {
    {.name = "prefill", .batch = 1, .tokens = BENCH_PROMPT, .prompt = BENCH_PROMPT},
    {.name = "decode", .batch = 1, .tokens = 1, .prompt = BENCH_CONTEXT, .steps = BENCH_STEPS},
    {.name = "decode", .batch = 2, .tokens = 2, .prompt = BENCH_CONTEXT, .steps = BENCH_STEPS},
    {.name = "decode", .batch = 4, .tokens = 4, .prompt = BENCH_CONTEXT, .steps = BENCH_STEPS},
    {.name = "decode", .batch = BENCH_BATCH, .tokens = BENCH_BATCH, .prompt = BENCH_CONTEXT, .steps = BENCH_STEPS},
};
enum { PHASES = sizeof phases / sizeof *phases };

struct bench {
    const struct bench_options *o;
    const struct k3_config *config;
    const struct layout *layout;
    struct comm *comm;
    struct shard shard;
    struct machine_rates machine; /* of the ranks that work at a time: those of a stage, on average */

    struct k3_stream *stream;
    struct weights *weights;
    struct forward *forward;
    struct plan *plan;
    struct kern_profile *profile;
    int profiling;

    /* rank 0 */
    struct cache *cache;
    struct prefix *prefix; /* keeps nothing */
    struct scheduler *scheduler;
    struct sampler *sampler;
    struct phase phase[PHASES];
};

/* --- every rank -----------------------------------------------------------------------------------------------------
 */

static int measure_machine(struct bench *b, struct k3_error *err)
{
    int ranks = comm_size(b->comm);
    struct machine_rates mine = {0}, *all = k3_calloc((size_t)ranks, sizeof *all);
    int rc = -1;

    if (comm_barrier(b->comm, err) < 0 || comm_agree(b->comm, machine_measure(b->o->threads, &mine, err), err) < 0 ||
        comm_allgather(b->comm, &mine, all, sizeof mine, err) < 0)
        goto out;
    b->machine.fma_set = mine.fma_set;
    for (int r = 0; r < ranks; r++) {
        b->machine.read_bytes += all[r].read_bytes / b->layout->pp;
        b->machine.fma_flops += all[r].fma_flops / b->layout->pp;
    }
    rc = 0;
out:
    free(all);
    return rc;
}

static int load(struct bench *b, struct k3_error *err)
{
    const struct bench_options *o = b->o;
    struct plan_limits l = {.rows = o->chunk + BENCH_BATCH,
                            .slots = BENCH_BATCH,
                            .pages = BENCH_BATCH * SLOT_PAGES,
                            .slot_pages = SLOT_PAGES,
                            .page_tokens = PAGE_TOKENS};
    struct forward_limits fl = {.rows = l.rows,
                                .outputs = l.slots,
                                .slots = l.slots,
                                .pages = l.pages,
                                .page_tokens = l.page_tokens,
                                .slot_pages = l.slot_pages};

    if (MOST_TOKENS > b->config->max_position)
        return k3_errorf(err, "%s: --bench needs a context of %d tokens, config.json says %d", o->model, MOST_TOKENS,
                         b->config->max_position);
    b->stream = device_stream_create(o->backend, o->threads, err);
    if (!b->stream)
        return -1;
    fl.latents = kern_latent_dtype(b->stream);
    if (comm_attach(b->comm, b->stream, err) < 0)
        return -1;
    b->profile = kern_profile_create();
    b->weights = weights_load(o->model, b->config, &b->shard, b->stream, NULL, err);
    if (!b->weights || !b->profile)
        return -1;
    b->forward = forward_create(b->config, &b->shard, b->weights, b->comm, b->stream, &fl, err);
    b->plan = plan_create(&l);
    if (comm_rank(b->comm) == 0) {
        b->cache = cache_create(&(struct cache_limits){l.slots, l.pages, l.page_tokens});
        b->prefix = prefix_create(b->cache, 0);
        b->scheduler = scheduler_create(b->cache, b->prefix, l.slots, o->chunk);
        b->sampler = sampler_create(b->config->vocab);
        memcpy(b->phase, phases, sizeof phases);
    }
    return b->forward ? 0 : -1;
}

/* What the profile has counted on this rank. */
static struct cost counted(const struct bench *b)
{
    struct cost sum = {0, 0};
    int count;
    const struct kern_profile_row *row = kern_profile_rows(b->profile, &count);

    for (int i = 0; i < count; i++) {
        sum.bytes += row[i].bytes;
        sum.flops += row[i].flops;
    }
    return sum;
}

/* Begin a profiled round on all ranks, or end it and learn what it cost them together. */
static int toggle_profile(struct bench *b, struct cost *sum, struct k3_error *err)
{
    int ranks = comm_size(b->comm), rc = 0;

    b->profiling = !b->profiling;
    if (b->profiling) {
        kern_profile_reset(b->profile);
        kern_profile_start(b->profile, b->stream);
        return 0;
    }
    kern_profile_stop(b->profile, b->stream);
    struct cost mine = counted(b), *all = k3_calloc((size_t)ranks, sizeof *all);
    rc = comm_allgather(b->comm, &mine, all, sizeof mine, err);
    *sum = (struct cost){0, 0};
    for (int r = 0; r < ranks && rc == 0; r++) {
        sum->bytes += all[r].bytes;
        sum->flops += all[r].flops;
    }
    free(all);
    return rc;
}

/* Run the plan that rank 0 broadcasts. */
static int run_plan(struct bench *b, const float **logits, int32_t *outputs, struct k3_error *err)
{
    struct forward_step step;
    size_t bytes;
    void *message = plan_message(b->plan, &bytes);

    if (comm_broadcast(b->comm, message, bytes, 0, err) < 0)
        return -1;
    if (plan_kind(b->plan) != PLAN_STEP)
        return 0;
    if (plan_apply(b->plan, &step, err) < 0)
        return -1;
    *outputs = step.outputs;
    return forward_step(b->forward, &step, logits, err);
}

/* An idle plan toggles the profile. */
static int follow(struct bench *b, struct k3_error *err)
{
    const float *logits;
    int32_t outputs;
    struct cost sum;

    for (;;) {
        if (run_plan(b, &logits, &outputs, err) < 0)
            return -1;
        if (plan_kind(b->plan) == PLAN_STOP)
            return 0;
        if (plan_kind(b->plan) == PLAN_IDLE && toggle_profile(b, &sum, err) < 0)
            return -1;
    }
}

/* --- rank 0 ---------------------------------------------------------------------------------------------------------
 */

static int tell(struct bench *b, enum plan_kind kind, struct k3_error *err)
{
    const float *logits;
    int32_t outputs;

    plan_begin(b->plan, kind);
    return run_plan(b, &logits, &outputs, err);
}

/* One step of the engine; *sampled: sequences that got a token. */
static int step(struct bench *b, int32_t *sampled, struct k3_error *err)
{
    static const struct sampling greedy = {.temperature = 0, .top_p = 1};
    const float *logits;

    scheduler_plan(b->scheduler, b->plan);
    if (run_plan(b, &logits, sampled, err) < 0)
        return -1;
    scheduler_ran(b->scheduler);
    for (int32_t i = 0; i < *sampled; i++) {
        int32_t row;
        struct sequence *q = scheduler_output(b->scheduler, i, &row);
        struct sampler_text text = sequence_text(q);
        int32_t token = sampler_pick(b->sampler, &greedy, logits + (size_t)row * (size_t)b->config->vocab, &text, err);
        if (token < 0)
            return -1;
        sequence_append(q, token, NULL, NULL);
    }
    return 0;
}

/* Sequence n of a phase has the same prompt in every round. */
static void add_sequence(struct bench *b, const struct phase *ph, int n)
{
    int32_t prompt[BENCH_PROMPT];

    for (int i = 0; i < ph->prompt; i++)
        prompt[i] = (int32_t)(random_uniform((uint64_t)n, (uint64_t)i) * b->config->vocab);
    scheduler_add(b->scheduler, sequence_create(&(struct sequence_args){.lease = (uint64_t)n,
                                                                        .prompt = prompt,
                                                                        .prompt_tokens = ph->prompt,
                                                                        .max_tokens = MOST_TOKENS - ph->prompt}));
}

/* Time what the phase calls a step. */
static int timed(struct bench *b, struct phase *ph, struct k3_error *err)
{
    double start = clock_monotonic(), before = kern_profile_seconds(b->profile), elapsed;
    int32_t sampled = 0;

    do {
        if (step(b, &sampled, err) < 0)
            return -1;
    } while (sampled == 0);
    elapsed = clock_monotonic() - start;
    if (b->profiling) {
        ph->outside[ph->profiled++] = elapsed - (kern_profile_seconds(b->profile) - before);
    } else {
        ph->seconds[ph->samples++] = elapsed;
    }
    return 0;
}

static int profile(struct bench *b, struct cost *sum, struct k3_error *err)
{
    return tell(b, PLAN_IDLE, err) < 0 || toggle_profile(b, sum, err) < 0 ? -1 : 0;
}

static void keep_rows(struct bench *b, struct phase *ph)
{
    int count;
    const struct kern_profile_row *row = kern_profile_rows(b->profile, &count);

    ph->row = k3_calloc((size_t)count, sizeof *row);
    memcpy(ph->row, row, (size_t)count * sizeof *row);
}

static int round_of(struct bench *b, struct phase *ph, int profiled, struct k3_error *err)
{
    int rc = -1;

    for (int n = 0; n < ph->batch; n++)
        add_sequence(b, ph, n);
    /* Until all of them decode. */
    for (int32_t sampled = 0; ph->steps > 0 && sampled < ph->batch;)
        if (step(b, &sampled, err) < 0)
            goto out;
    if (profiled && profile(b, &ph->cost, err) < 0)
        goto out;
    for (int i = 0; i < (ph->steps > 0 ? ph->steps : 1); i++)
        if (timed(b, ph, err) < 0)
            goto out;
    if (profiled) {
        if (profile(b, &ph->cost, err) < 0)
            goto out;
        keep_rows(b, ph);
    }
    rc = 0;
out:
    scheduler_finish_all(b->scheduler, END_DROPPED);
    for (struct sequence *q; (q = scheduler_reap(b->scheduler));)
        sequence_destroy(q);
    return rc;
}

static int lead(struct bench *b, struct k3_error *err)
{
    for (int round = 0; round <= BENCH_ROUNDS; round++)
        for (int i = 0; i < PHASES; i++)
            if (round_of(b, &b->phase[i], round == BENCH_ROUNDS, err) < 0)
                return -1;
    return tell(b, PLAN_STOP, err);
}

/* --- what comes out -------------------------------------------------------------------------------------------------
 */

/* The figures of a phase, a step each. */
struct figures {
    double seconds, best, outside, bytes, flops;
    double read_bound; /* the time that reading these bytes takes at least */
    double fma_share;
};

static struct figures figures(struct bench *b, struct phase *ph)
{
    struct figures f = {.seconds = median(ph->seconds, ph->samples), .outside = median(ph->outside, ph->profiled)};

    f.best = ph->seconds[0]; /* median() has sorted them */
    f.bytes = (double)ph->cost.bytes / ph->profiled;
    f.flops = (double)ph->cost.flops / ph->profiled;
    f.read_bound = f.bytes / b->machine.read_bytes;
    f.fma_share = f.flops / f.seconds / b->machine.fma_flops;
    return f;
}

static double batch_gain(const struct figures *f)
{
    return phases[PHASES - 1].batch / f[PHASES - 1].seconds * f[1].seconds;
}

static int operations(const struct bench *b)
{
    int count;

    kern_profile_rows(b->profile, &count);
    return count;
}

static void print_operations(const struct bench *b, const struct phase *ph, FILE *to)
{
    double all = 0;

    for (int i = 0; i < operations(b); i++)
        all += ph->row[i].seconds;
    for (int i = 0; i < operations(b); i++) {
        const struct kern_profile_row *r = &ph->row[i];
        if (r->calls > 0)
            fprintf(to, "%-8s %5d %-13s %6" PRIu64 " %9.3f %6.1f %10.3f %8.2f %8.2f\n", ph->name, ph->batch, r->name,
                    r->calls / (unsigned int)ph->profiled, 1e3 * r->seconds / ph->profiled, 100 * r->seconds / all,
                    1e-6 * (double)r->bytes / ph->profiled, 1e-9 * (double)r->bytes / r->seconds,
                    1e-9 * (double)r->flops / r->seconds);
    }
}

static void print_table(struct bench *b, const struct figures *f, FILE *to)
{
    char name[LAYOUT_NAME];

    fprintf(to, "# k3run %s, %s, ranks %d, %s, threads %d, backend %s, prefill chunk %d, medians of %d rounds\n",
            PACKAGE_VERSION, b->o->model, comm_size(b->comm), layout_name(b->layout, name), b->o->threads,
            kern_stream_name(b->stream), b->o->chunk, BENCH_ROUNDS);
    fprintf(to, "# machine: reads %.2f GB/s (%d MiB a rank, best of %d), fp32 FMA %.1f GFLOP/s (%s, best of %d)\n",
            1e-9 * b->machine.read_bytes, MACHINE_READ_MIB, MACHINE_RUNS, 1e-9 * b->machine.fma_flops,
            b->machine.fma_set, MACHINE_RUNS);
    fprintf(to, "# batch %d gives %.2f times the tokens/s of batch 1\n", BENCH_BATCH, batch_gain(f));
    fprintf(to, "# MB: weights, experts chosen by the step's tokens, state in and out, latents; a step, all ranks\n");
    fprintf(to, "# bound: MB / reads;  fma_%%: share of the FMA rate;  outside: of rank 0's kernels\n");
    fprintf(to, "#phase  batch tokens/s    step_ms    best_ms         MB   MB/token  step/bound  fma_%%  outside_us\n");
    for (int i = 0; i < PHASES; i++) {
        const struct phase *ph = &b->phase[i];
        fprintf(to, "%-8s %5d %8.2f %10.3f %10.3f %10.1f %10.2f %11.3f %6.2f %11.1f\n", ph->name, ph->batch,
                ph->tokens / f[i].seconds, 1e3 * f[i].seconds, 1e3 * f[i].best, 1e-6 * f[i].bytes,
                1e-6 * f[i].bytes / ph->tokens, f[i].seconds / f[i].read_bound, 100 * f[i].fma_share,
                1e6 * f[i].outside);
    }
    fprintf(to, "\n\n# rank 0's kernels, a step\n");
    fprintf(to, "#phase  batch operation      calls        ms      %%         MB     GB/s  GFLOP/s\n");
    for (int i = 0; i < PHASES; i++)
        print_operations(b, &b->phase[i], to);
}

static json_t *operations_json(const struct bench *b, const struct phase *ph)
{
    json_t *list = json_array();

    for (int i = 0; i < operations(b); i++) {
        const struct kern_profile_row *r = &ph->row[i];
        if (r->calls > 0)
            json_array_append_new(list, json_pack("{s:s, s:I, s:f, s:f, s:f}", "name", r->name, "calls",
                                                  (json_int_t)r->calls / ph->profiled, "seconds",
                                                  r->seconds / ph->profiled, "bytes", (double)r->bytes / ph->profiled,
                                                  "flops", (double)r->flops / ph->profiled));
    }
    return list;
}

static int print_json(struct bench *b, const struct figures *f, FILE *to)
{
    json_t *list = json_array();
    char name[LAYOUT_NAME];

    for (int i = 0; i < PHASES; i++) {
        const struct phase *ph = &b->phase[i];
        json_array_append_new(
            list, json_pack("{s:s, s:i, s:i, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:o}", "phase", ph->name, "batch",
                            ph->batch, "tokens", ph->tokens, "tokens_per_second", ph->tokens / f[i].seconds,
                            "step_seconds", f[i].seconds, "best_step_seconds", f[i].best, "bytes", f[i].bytes, "flops",
                            f[i].flops, "step_over_bound", f[i].seconds / f[i].read_bound, "fma_share", f[i].fma_share,
                            "outside_seconds", f[i].outside, "operations", operations_json(b, ph)));
    }
    json_t *root = json_pack(
        "{s:s, s:s, s:i, s:s, s:i, s:s, s:i, s:i, s:{s:f, s:f, s:s}, s:f, s:o}", "version", PACKAGE_VERSION, "model",
        b->o->model, "ranks", comm_size(b->comm), "layout", layout_name(b->layout, name), "threads", b->o->threads,
        "backend", kern_stream_name(b->stream), "prefill_chunk", b->o->chunk, "rounds", BENCH_ROUNDS, "machine",
        "read_bytes_per_second", b->machine.read_bytes, "fma_flops_per_second", b->machine.fma_flops,
        "fma_instructions", b->machine.fma_set, "batch_gain", batch_gain(f), "phases", list);
    int rc = root ? json_dumpf(root, to, JSON_INDENT(1) | JSON_REAL_PRECISION(8)) : -1;
    fputc('\n', to);
    json_decref(root);
    return rc;
}

static int print(struct bench *b, FILE *to, struct k3_error *err)
{
    struct figures f[PHASES];

    for (int i = 0; i < PHASES; i++)
        f[i] = figures(b, &b->phase[i]);
    if (!b->o->json)
        print_table(b, f, to);
    else if (print_json(b, f, to) < 0)
        return k3_errorf(err, "cannot write the figures as JSON");
    return 0;
}

static void release(struct bench *b)
{
    for (int i = 0; i < PHASES; i++)
        free(b->phase[i].row);
    if (b->profiling)
        kern_profile_stop(b->profile, b->stream);
    sampler_destroy(b->sampler);
    scheduler_destroy(b->scheduler);
    prefix_destroy(b->prefix);
    cache_destroy(b->cache);
    plan_destroy(b->plan);
    forward_destroy(b->forward);
    weights_destroy(b->weights);
    kern_stream_destroy(b->stream);
    kern_profile_destroy(b->profile);
}

int bench_run(const struct bench_options *o, const struct k3_config *c, const struct layout *l, struct comm *comm,
              FILE *to, struct k3_error *err)
{
    struct bench b = {.o = o, .config = c, .layout = l, .comm = comm, .shard = layout_shard(l, comm_rank(comm))};
    int first = comm_rank(comm) == 0;
    int rc = -1;

    if (measure_machine(&b, err) < 0 || comm_agree(comm, load(&b, err), err) < 0)
        goto out;
    rc = first ? lead(&b, err) : follow(&b, err);
    if (rc < 0 && comm_size(comm) > 1) { /* the others are in the middle of a step */
        log_err("rank %d: %s", comm_rank(comm), err->text);
        comm_abort(comm, EXIT_FAILURE);
    }
    if (rc == 0 && first)
        rc = print(&b, to, err);
out:
    release(&b);
    return rc;
}
