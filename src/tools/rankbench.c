#include "tools/rankbench.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/comm.h"
#include "common/alloc.h"
#include "common/clock.h"
#include "common/median.h"
#include "gpu/device.h"
#include "model/config.h"
#include "model/cost.h"
#include "model/forward.h"
#include "model/inventory.h"
#include "model/jsontext.h"
#include "model/weights.h"

enum { PAGE_TOKENS = 64, WARM_UP = 3, COPY_ROUNDS = 10, CONFIG_BYTES = 4 << 20 };
static const size_t copy_bytes = (size_t)2 << 30;

struct rankbench {
    const struct rankbench_options *o;
    struct k3_config config;
    struct shard shard;
    struct k3_stream *stream;
    struct comm *comm;
    struct weights *weights;
    struct forward *forward;
    struct forward_limits limits;
    double copy_gbs;

    /* a step's lists */
    int32_t *begin, *slot, *pages, *token, *output, *prefill;
    int64_t *pos;
    double *seconds; /* [steps] */
};

struct run {
    int batch, context, delay;
    double ms, bytes, flops;
    int operations, exchanges;
};

static int most(const int *list, int n)
{
    int max = 0;

    for (int i = 0; i < n; i++)
        max = list[i] > max ? list[i] : max;
    return max;
}

/* What a copy on this device reaches, bytes read and written a second. */
static int measure_copy(struct rankbench *b, struct k3_error *err)
{
    char *from = kern_alloc(b->stream, copy_bytes), *to = kern_alloc(b->stream, copy_bytes);
    double seconds[COPY_ROUNDS];
    int rc = from && to ? 0 : -1;

    for (int i = -WARM_UP; rc == 0 && i < COPY_ROUNDS; i++) {
        double start = clock_monotonic();
        rc = kern_copy(b->stream, to, copy_bytes, from, copy_bytes, copy_bytes, 1) < 0 ? -1 : kern_sync(b->stream);
        if (i >= 0)
            seconds[i] = clock_monotonic() - start;
    }
    if (rc < 0)
        k3_errorf(err, "a copy of %zu bytes: %s", copy_bytes, kern_stream_error(b->stream));
    else
        b->copy_gbs = 2e-9 * (double)copy_bytes / median(seconds, COPY_ROUNDS);
    kern_free(b->stream, from, copy_bytes);
    kern_free(b->stream, to, copy_bytes);
    return rc;
}

static void set_limits(struct rankbench *b)
{
    const struct rankbench_options *o = b->o;
    int64_t pages = 0;
    int longest = most(o->context, o->contexts) + (o->prefill > 1 ? o->prefill : 1);
    int seqs = o->prefill ? 1 : most(o->batch, o->batches);

    /* Batch and context that go together: all of them. */
    b->limits = (struct forward_limits){.rows = o->prefill ? o->prefill : seqs,
                                        .outputs = seqs,
                                        .slots = seqs,
                                        .page_tokens = PAGE_TOKENS,
                                        .slot_pages = (longest + PAGE_TOKENS - 1) / PAGE_TOKENS,
                                        .latents = kern_latent_dtype(b->stream)};
    pages = (int64_t)seqs * b->limits.slot_pages;
    b->limits.pages = (int32_t)pages;
}

static void make_lists(struct rankbench *b)
{
    const struct forward_limits *l = &b->limits;
    uint32_t seed = 1;

    b->begin = k3_calloc((size_t)l->slots + 1, sizeof *b->begin);
    b->slot = k3_calloc((size_t)l->slots, sizeof *b->slot);
    b->pos = k3_calloc((size_t)l->slots, sizeof *b->pos);
    b->prefill = k3_calloc((size_t)l->slots, sizeof *b->prefill);
    b->pages = k3_calloc((size_t)l->slots * (size_t)l->slot_pages, sizeof *b->pages);
    b->token = k3_calloc((size_t)l->rows, sizeof *b->token);
    b->output = k3_calloc((size_t)l->slots, sizeof *b->output);
    b->seconds = k3_calloc((size_t)b->o->steps, sizeof *b->seconds);
    for (int i = 0; i < l->slots; i++)
        b->slot[i] = i;
    for (int i = 0; i < l->pages; i++)
        b->pages[i] = i;
    for (int i = 0; i < l->rows; i++)
        b->token[i] = (int32_t)((seed = seed * 1664525u + 1013904223u) % (uint32_t)b->config.vocab);
}

static int read_config(struct rankbench *b, struct k3_error *err)
{
    size_t len;
    char *text = jsontext_load(b->o->config, CONFIG_BYTES, &len, err);
    int rc = text ? k3_config_parse(b->o->config, text, len, &b->config, err) : -1;

    free(text);
    return rc;
}

static int prepare(struct rankbench *b, struct k3_error *err)
{
    const struct rankbench_options *o = b->o;

    if (read_config(b, err) < 0)
        return -1;
    b->config.dense = o->dense;
    if (o->layers > 0 && o->layers < b->config.layers)
        b->config.layers = o->layers;
    if (!(b->stream = device_stream_create(o->backend, 1, err)))
        return -1;
    b->shard = (struct shard){.tp = o->tp, .rank = o->rank};
    b->comm = comm_delay_create(o->rank, o->tp);
    set_limits(b);
    make_lists(b);
    if (measure_copy(b, err) < 0 || !(b->weights = weights_synthetic(&b->config, &b->shard, b->stream, err)))
        return -1;
    b->forward = forward_create(&b->config, &b->shard, b->weights, b->comm, b->stream, &b->limits, err);
    return b->forward ? 0 : -1;
}

static struct forward_step step_of(struct rankbench *b, const struct run *r)
{
    int rows = b->o->prefill ? b->o->prefill : r->batch;

    for (int i = 0; i < r->batch; i++) {
        b->begin[i + 1] = b->o->prefill ? rows : i + 1;
        b->pos[i] = r->context;
        b->prefill[i] = b->o->prefill ? r->context + rows : 0;
        b->output[i] = b->begin[i + 1] - 1;
    }
    return (struct forward_step){.batch = {.rows = rows,
                                           .seqs = r->batch,
                                           .begin = b->begin,
                                           .slot = b->slot,
                                           .pos = b->pos,
                                           .pages = b->pages,
                                           .page_stride = b->limits.slot_pages,
                                           .prefill = b->prefill},
                                 .token = b->token,
                                 .output = b->output,
                                 .outputs = r->batch};
}

static int time_steps(struct rankbench *b, struct run *r, struct k3_error *err)
{
    struct forward_step step = step_of(b, r);
    const float *logits;

    comm_delay_set(b->comm, r->delay);
    forward_forget_graphs(b->forward);
    comm_delay_exchanges(b->comm);
    for (int i = -WARM_UP; i < b->o->steps; i++) {
        double start = clock_monotonic();
        if (forward_step(b->forward, &step, &logits, err) < 0)
            return -1;
        if (i == -WARM_UP)
            r->exchanges = comm_delay_exchanges(b->comm);
        if (i >= 0)
            b->seconds[i] = clock_monotonic() - start;
    }
    r->ms = 1e3 * median(b->seconds, b->o->steps);
    r->operations = forward_operations(b->forward, step.batch.rows);
    return 0;
}

/* What must be read and computed, the same way as k3plan counts it. */
static void count_work(struct rankbench *b, struct run *r)
{
    struct layout layout = {b->o->tp, 1, 1};
    struct cost_options options = {.dense = b->o->dense, .latents = b->limits.latents, .value_bytes = 4};
    struct cost_step step = {
        .rows = b->o->prefill ? b->o->prefill : r->batch, .seqs = r->batch, .context = r->context, .outputs = r->batch};
    struct cost_work work;

    cost_work(&b->config, &layout, b->o->rank, &options, &step, &work);
    for (int g = 0; g < COST_GROUPS; g++) {
        r->bytes += g == COST_STREAM ? 0 : work.bytes[g];
        r->flops += work.flops[g];
    }
}

static void show(struct rankbench *b, const struct run *r)
{
    double ideal_ms = 1e-6 * r->bytes / b->copy_gbs;

    if (b->o->prefill)
        printf("%6d %8d %5d %10.3f %10.1f %9.1f %10d\n", b->o->prefill, r->context, r->delay, r->ms,
               1e3 * b->o->prefill / r->ms, 1e-9 * r->flops / r->ms, r->exchanges);
    else
        printf("%6d %8d %5d %10.3f %10.1f %9.3f %7.2f %6d %6d\n", r->batch, r->context, r->delay, r->ms,
               1e-6 * r->bytes, ideal_ms, r->ms / ideal_ms, r->operations, r->exchanges);
    fflush(stdout);
}

static void head(const struct rankbench *b)
{
    printf("rank %d of tp=%d, backend %s, %d layers, dense %s, a copy reaches %.0f GB/s (read and written)\n",
           b->o->rank, b->o->tp, kern_stream_name(b->stream), b->config.layers, inventory_dense_name(b->o->dense),
           b->copy_gbs);
    if (b->o->prefill)
        printf("prompt  context us/ex    ms/step      tok/s    TFLOP/s  exchanges\n");
    else
        printf(" batch  context us/ex    ms/step    MB/step  ideal ms   ratio    ops  exch.\n");
}

static json_t *run_json(const struct run *r)
{
    return json_pack("{s:i,s:i,s:f,s:f,s:i,s:i,s:f}", "batch", r->batch, "context", r->context, "exchange_us",
                     (double)r->delay, "ms_per_step", r->ms, "operations", r->operations, "exchanges", r->exchanges,
                     "bytes_ideal", r->bytes);
}

static int run_all(struct rankbench *b, json_t *list, struct k3_error *err)
{
    const struct rankbench_options *o = b->o;

    head(b);
    for (int x = 0; x < o->contexts; x++)
        for (int n = 0; n < (o->prefill ? 1 : o->batches); n++)
            for (int d = 0; d < o->delays; d++) {
                struct run r = {.batch = o->prefill ? 1 : o->batch[n], .context = o->context[x], .delay = o->delay[d]};
                if (time_steps(b, &r, err) < 0)
                    return -1;
                count_work(b, &r);
                show(b, &r);
                json_array_append_new(list, run_json(&r));
            }
    return 0;
}

static void finish(struct rankbench *b)
{
    forward_destroy(b->forward);
    weights_destroy(b->weights);
    comm_destroy(b->comm);
    kern_stream_destroy(b->stream);
    free(b->begin);
    free(b->slot);
    free(b->pos);
    free(b->prefill);
    free(b->pages);
    free(b->token);
    free(b->output);
    free(b->seconds);
}

int rankbench(const struct rankbench_options *o, json_t *runs, struct k3_error *err)
{
    struct rankbench b = {.o = o};
    json_t *list = json_array();
    int rc = prepare(&b, err);

    if (rc == 0)
        rc = run_all(&b, list, err);
    json_object_set_new(runs, "tp", json_integer(o->tp));
    json_object_set_new(runs, "rank", json_integer(o->rank));
    json_object_set_new(runs, "dense", json_string(inventory_dense_name(o->dense)));
    json_object_set_new(runs, "copy_GBps", json_real(b.copy_gbs));
    json_object_set_new(runs, "runs", list);
    finish(&b);
    return rc;
}
