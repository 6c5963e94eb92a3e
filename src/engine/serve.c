#include "config.h"

#include "engine/serve.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <zmq.h>

#include "comm/boot.h"
#include "comm/comm.h"
#include "comm/network.h"
#include "common/alloc.h"
#include "common/log.h"
#include "common/loop.h"
#include "engine/agree.h"
#include "engine/cache.h"
#include "engine/intake.h"
#include "engine/job.h"
#include "engine/load.h"
#include "engine/plan.h"
#include "engine/prefix.h"
#include "engine/step.h"
#include "gpu/arena.h"
#include "gpu/device.h"
#include "gpu/guard.h"
#include "kernels/kernels.h"
#include "model/config.h"
#include "model/forward.h"
#include "model/layout.h"
#include "model/modelhash.h"
#include "model/weights.h"
#include "text/vocab.h"
#include "wire/message.h"

struct engine {
    const struct settings *settings;
    struct loop *loop;
    struct boot *boot;

    /* Known before anything large is loaded. */
    struct k3_config config;
    struct layout layout;
    struct shard shard;
    struct plan_limits limits;
    int64_t context;     /* most tokens of a sequence */
    struct vocab *vocab; /* rank 0 */
    struct device_health health;
    struct guard *guard;
    struct k3_stream *stream;

    struct comm *comm;
    struct weights *weights;
    struct forward *forward;
    struct step step;

    /* Rank 0. */
    char model[MESSAGE_NAME];
    void *zmq;
    struct route *route; /* to the daemon */
    struct intake *intake;
    pthread_t leader;
    bool step_lost;      /* the other ranks hang in the middle of a step */
    struct k3_error why; /* the leader's */
};

static bool is_first(const struct engine *e)
{
    return boot_rank(e->boot) == 0;
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* --- what this rank knows by itself ---------------------------------------------------------------------------------
 */

static int set_limits(struct engine *e, struct k3_error *err)
{
    int32_t slots = e->settings->k3served.slots, page_tokens = e->settings->k3served.page_tokens;
    int32_t rows = e->settings->k3served.batch_tokens, pages = e->settings->k3served.cache_tokens / page_tokens;

    if (layout_of_job(e->settings->k3served.layout, boot_size(e->boot), &e->config, &e->layout, err) < 0)
        return k3_error_prefix(err, "k3served.layout: ");
    errno = EINVAL;
    if (rows < slots + K3_PREFILL_BLOCK)
        return k3_errorf(err, "k3served.batch_tokens (%d) must not be below k3served.slots + %d (%d)", rows,
                         K3_PREFILL_BLOCK, slots + K3_PREFILL_BLOCK);
    if (page_tokens % K3_PREFILL_BLOCK != 0 || e->settings->k3served.prefill_chunk % K3_PREFILL_BLOCK != 0)
        return k3_errorf(err, "k3served.page_tokens (%d) and k3served.prefill_chunk (%d) must be multiples of %d",
                         page_tokens, e->settings->k3served.prefill_chunk, K3_PREFILL_BLOCK);
    if (pages < 1)
        return k3_errorf(err, "k3served.cache_tokens (%d) must not be below k3served.page_tokens (%d)",
                         e->settings->k3served.cache_tokens, page_tokens);
    e->shard = layout_shard(&e->layout, boot_rank(e->boot));
    e->context = least(least(e->settings->k3served.max_context, e->config.max_position), (int64_t)pages * page_tokens);
    e->limits = (struct plan_limits){.rows = rows,
                                     .slots = slots,
                                     .checkpoints = e->settings->k3served.prefix_slots,
                                     .pages = pages,
                                     .slot_pages = (int32_t)((e->context + page_tokens - 1) / page_tokens),
                                     .page_tokens = page_tokens};
    return 0;
}

static struct forward_limits forward_limits(const struct engine *e)
{
    return (struct forward_limits){.rows = e->limits.rows,
                                   .outputs = e->limits.slots,
                                   .slots = e->limits.slots,
                                   .checkpoints = e->limits.checkpoints,
                                   .pages = e->limits.pages,
                                   .page_tokens = e->limits.page_tokens,
                                   .slot_pages = e->limits.slot_pages,
                                   .latents = kern_latent_dtype(e->stream)};
}

static int know_model(struct engine *e, struct k3_error *err)
{
    const char *model = e->settings->k3served.model, *backend = e->settings->k3served.backend;

    if (!*model) {
        errno = EINVAL;
        return k3_errorf(err, "k3.conf names no checkpoint: set k3served.model to its directory");
    }
    /* Files that are missing or cut end the job now and not at every start. */
    if (k3_config_load(model, &e->config, err) < 0 || set_limits(e, err) < 0 ||
        weights_look(model, &e->config, &e->shard, err) < 0)
        return -1;
    if (is_first(e) && !(e->vocab = vocab_load(model, err)))
        return -1;
    if (!(e->stream = device_stream_create(backend, e->settings->k3served.threads, err)))
        return k3_error_prefix(err, "k3served: ");
    if (boot_size(e->boot) > 1 && !kern_is_host(e->stream) &&
        network_choose(e->settings->k3served.nccl_interface, e->settings->k3served.nccl_hca, err) < 0)
        return -1;
    return device_look(e->stream, &e->health, err);
}

/* --- memory ---------------------------------------------------------------------------------------------------------
 */

enum { COMM_BYTES = 32 << 20 }; /* MPI's own buffers and ours */

/* Where the weights will lie: the GPU's memory, the host's, or what both of them share. */
static uint64_t available_bytes(const struct engine *e)
{
    const struct kern_device *d = &e->health.device;
    uint64_t host = guard_available_bytes();

    return !*d->id || (d->unified && host < d->free) ? host : d->free;
}

/* What this rank will take; rank 0 prints its own. */
static uint64_t budget(const struct engine *e)
{
    struct forward_limits limits = forward_limits(e);
    struct forward_bytes f = forward_bytes(&e->config, &e->shard, &limits);
    uint64_t weights = weights_bytes(&e->config, &e->shard), comm = boot_size(e->boot) > 1 ? COMM_BYTES : 0;
    uint64_t known = weights + f.state + f.checkpoints + f.latents + f.scratch + comm;
    /* A host whose memory runs out may hang: leave a sixteenth, and what a process needs in any case. */
    const struct arena_row row[] = {{"weights", weights},
                                    {"state slots", f.state},
                                    {"checkpoints", f.checkpoints},
                                    {"latent pages", f.latents},
                                    {"scratch", f.scratch},
                                    {"communication", comm},
                                    {"reserve", known / 16 + (64 << 20)}};
    int rows = sizeof row / sizeof *row;
    uint64_t total = 0;

    for (int i = 0; i < rows; i++)
        total += row[i].bytes;
    if (is_first(e)) {
        arena_log_budget(row, rows);
        log_info("memory %-12s %15llu bytes", "available", (unsigned long long)available_bytes(e));
    }
    return total;
}

/* --- what all ranks must agree on -----------------------------------------------------------------------------------
 */

static void stand(struct engine *e, struct standing *mine, const struct k3_error *problem)
{
    const struct settings *s = e->settings;
    struct k3_error err = {""};

    memset(mine, 0, sizeof *mine);
    snprintf(mine->node, sizeof mine->node, "%s", boot_node(e->boot));
    gethostname(mine->host, sizeof mine->host - 1);
    snprintf(mine->version, sizeof mine->version, "%s", PACKAGE_VERSION);
    if (!s) {
        mine->problem = *problem;
        return;
    }
    snprintf(mine->backend, sizeof mine->backend, "%s", s->k3served.backend);
    mine->slots = s->k3served.slots;
    mine->page_tokens = s->k3served.page_tokens;
    mine->cache_tokens = s->k3served.cache_tokens;
    mine->max_context = s->k3served.max_context;
    mine->prefix_slots = s->k3served.prefix_slots;
    mine->prefill_chunk = s->k3served.prefill_chunk;
    mine->batch_tokens = s->k3served.batch_tokens;
    if (know_model(e, &err) < 0 || modelhash(s->k3served.model, mine->model, &err) < 0) {
        mine->problem = err;
        return;
    }
    layout_name(&e->layout, mine->layout);
    mine->need_bytes = budget(e);
    mine->available_bytes = available_bytes(e);
    mine->health = e->health;
}

static int agree(struct engine *e, const struct k3_error *problem, struct k3_error *err)
{
    int size = boot_size(e->boot);
    struct standing mine, *all = k3_calloc((size_t)size, sizeof *all);

    stand(e, &mine, problem);
    int rc = boot_exchange(e->boot, "k3.standing", &mine, sizeof mine, all, err);
    if (rc == 0)
        rc = agree_check(all, size, err);
    if (rc == 0 && is_first(e))
        agree_log_devices(all, size);
    free(all);
    return rc;
}

/* --- what every rank does once all agree ----------------------------------------------------------------------------
 */

static void tell_progress(const uint64_t *done, const uint64_t *total, int ranks, void *arg)
{
    struct engine *e = arg;
    struct report *r = k3_zalloc(sizeof *r);
    struct message_engine_load *load = &r->message.engine_load;
    size_t n = (size_t)ranks;

    r->message.head.type = WIRE_ENGINE_LOAD;
    load->ld = (struct message_u64s){k3_calloc(n, sizeof *done), n};
    load->lt = (struct message_u64s){k3_calloc(n, sizeof *total), n};
    memcpy(load->ld.v, done, n * sizeof *done);
    memcpy(load->lt.v, total, n * sizeof *total);
    mailbox_post(e->step.reports, &r->mail);
}

static void tell(struct engine *e, enum message_type type, const char *sentence)
{
    struct report *r = k3_zalloc(sizeof *r);

    r->message.head.type = type;
    if (sentence)
        r->message.engine_bye.msg = k3_strdup(sentence);
    mailbox_post(e->step.reports, &r->mail);
}

static int load(struct engine *e, struct k3_error *err)
{
    struct forward_limits limits = forward_limits(e);

    if (comm_agree(e->comm, comm_divide(e->comm, e->layout.pp, err), err) < 0 ||
        comm_agree(e->comm, comm_attach(e->comm, e->stream, err), err) < 0)
        return -1;
    e->weights = load_weights(e->settings->k3served.model, &e->config, &e->shard, e->stream, e->comm,
                              strcmp(e->settings->k3served.verify, "yes") == 0, tell_progress, e, err);
    if (!e->weights)
        return -1;
    e->forward = forward_create(&e->config, &e->shard, e->weights, e->comm, e->stream, &limits, err);
    if (comm_agree(e->comm, e->forward ? 0 : -1, err) < 0)
        return -1;
    e->step.comm = e->comm;
    e->step.forward = e->forward;
    e->step.plan = plan_create(&e->limits);
    e->step.vocab = e->config.vocab;
    e->step.slots = e->limits.slots;
    e->step.chunk = e->settings->k3served.prefill_chunk;
    return 0;
}

static int follow(struct engine *e, struct k3_error *err)
{
    if (load(e, err) < 0)
        return -1;
    e->step_lost = step_follow(&e->step, err) < 0;
    return e->step_lost ? -1 : 0;
}

/* --- rank 0 ---------------------------------------------------------------------------------------------------------
 */

static void *lead(void *arg)
{
    struct engine *e = arg;
    struct cache_limits limits = {e->limits.slots, e->limits.pages, e->limits.page_tokens};
    int rc = load(e, &e->why);

    if (rc == 0) {
        e->step.cache = cache_create(&limits);
        e->step.prefix = prefix_create(e->step.cache, e->limits.checkpoints);
        tell(e, WIRE_ENGINE_READY, NULL);
        rc = step_lead(&e->step, &e->why);
        e->step_lost = rc < 0;
    }
    tell(e, WIRE_ENGINE_BYE, rc < 0 ? e->why.text : NULL);
    return rc < 0 ? e : NULL;
}

static void on_signal(void *arg, int signo)
{
    struct engine *e = arg;

    if (e->intake)
        intake_drain(e->intake, strsignal(signo));
}

/* Ranks beside the first take these signals too, and leave them pending: they end when the first does. */
static int take_signals(struct engine *e, struct k3_error *err)
{
    static const int signals[] = {SIGTERM, SIGINT, SIGUSR1};

    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        if (loop_on_signal(e->loop, signals[i], on_signal, e, err) < 0)
            return -1;
    return 0;
}

/* The checkpoint's directory is what people call the model. */
static void name_model(struct engine *e)
{
    const char *path = e->settings->k3served.model;
    size_t end = strlen(path);

    while (end > 1 && path[end - 1] == '/')
        end--;
    size_t begin = end;
    while (begin > 0 && path[begin - 1] != '/')
        begin--;
    snprintf(e->model, sizeof e->model, "%.*s", (int)(end - begin), path + begin);
}

static int open_intake(struct engine *e, struct k3_error *err)
{
    char layout[LAYOUT_NAME];

    if (!(e->step.orders = mailbox_create(err)) || !(e->step.reports = mailbox_create(err)) ||
        !(e->step.deltas = report_pool_create(STEP_DELTAS * e->limits.slots, err)))
        return -1;
    if (!(e->route = route_find(e->settings, err)))
        return -1;
    log_info("the daemon is looked for at %s", route_endpoint(e->route));
    e->zmq = zmq_ctx_new();
    name_model(e);
    e->intake = intake_create(e->loop, e->zmq,
                              &(struct intake_options){
                                  .route = e->route,
                                  .munge_socket = e->settings->common.munge_socket,
                                  .job = job_id(),
                                  .node = boot_node(e->boot),
                                  .model = e->model,
                                  .layout = layout_name(&e->layout, layout),
                                  .ranks = boot_size(e->boot),
                                  .slots = e->limits.slots,
                                  .drain_timeout_s = e->settings->k3served.drain_timeout,
                                  .away_timeout_s = e->settings->k3served.away_timeout,
                                  .keep_bytes = (size_t)e->settings->k3served.keep_mib << 20,
                                  .limits = {.vocab = e->vocab,
                                             .ids = e->config.vocab,
                                             .context = e->context,
                                             .cache = {e->limits.slots, e->limits.pages, e->limits.page_tokens},
                                             .shares = e->limits.checkpoints > 0},
                                  .orders = e->step.orders,
                                  .reports = e->step.reports,
                                  .steps = &e->step.steps,
                              },
                              err);
    return e->intake ? 0 : -1;
}

/* The loop runs here, the model on a second thread; it stops when the leader has. */
static int run_intake(struct engine *e, struct k3_error *err)
{
    void *failed = NULL;

    if ((errno = pthread_create(&e->leader, NULL, lead, e)) != 0)
        return k3_errorf(err, "a second thread: %s", strerror(errno));
    int rc = loop_run(e->loop, err);
    if (rc < 0) {
        /* Nobody can give the leader its orders any more. */
        log_err("%s", err->text);
        comm_abort(e->comm, EXIT_CODE_FAILED);
    }
    pthread_join(e->leader, &failed);
    if (!failed)
        return 0;
    *err = e->why;
    return -1;
}

/* --- from start to end ----------------------------------------------------------------------------------------------
 */

static int run(struct engine *e, struct k3_error *err)
{
    bool first = is_first(e);
    int rc = comm_agree(e->comm, first ? open_intake(e, err) : 0, err);

    if (rc == 0)
        rc = first ? run_intake(e, err) : follow(e, err);
    if (e->intake && intake_refused(e->intake)) {
        k3_errorf(err, "the daemon refuses this engine: %s", intake_refused(e->intake));
        return EXIT_CODE_USAGE;
    }
    return rc < 0 ? EXIT_CODE_FAILED : EXIT_CODE_OK;
}

/* The last words to the daemon leave before anything can end this process. */
static void close_intake(struct engine *e)
{
    intake_destroy(e->intake);
    if (e->zmq)
        zmq_ctx_term(e->zmq);
    route_destroy(e->route);
    mailbox_destroy(e->step.orders, order_free);
    mailbox_destroy(e->step.reports, report_free);
    report_pool_destroy(e->step.deltas);
}

static void close_model(struct engine *e)
{
    prefix_destroy(e->step.prefix);
    cache_destroy(e->step.cache);
    plan_destroy(e->step.plan);
    forward_destroy(e->forward);
    weights_destroy(e->weights);
    comm_detach(e->comm);
    kern_stream_destroy(e->stream);
    vocab_destroy(e->vocab);
}

/* On the guard's thread: nothing of the engine is touched. */
static void starve(uint64_t left, void *arg)
{
    struct engine *e = arg;
    char why[128];

    snprintf(why, sizeof why, "%s: %.2f GiB of memory left: this rank ends before the host hangs", boot_node(e->boot),
             (double)left / (1 << 30));
    log_err("%s", why);
    boot_abort(e->boot, EXIT_CODE_FAILED, why);
}

int serve(const struct settings *settings, const struct k3_error *problem)
{
    struct engine e = {.settings = settings};
    struct k3_error err = {""};
    int code = EXIT_CODE_FAILED;

    if (!(e.loop = loop_create(&err)) || take_signals(&e, &err) < 0 || !(e.boot = boot_create(&err)))
        goto out;
    if (agree(&e, problem, &err) < 0) {
        code = EXIT_CODE_USAGE;
        goto out;
    }
    if (!(e.comm = boot_size(e.boot) > 1 ? comm_mpi_create(&err) : comm_self_create()))
        goto out;
    if (settings->k3served.memory_floor_mib > 0 &&
        !(e.guard = guard_create((uint64_t)settings->k3served.memory_floor_mib << 20, starve, &e, &err)))
        comm_abort(e.comm, code);
    code = run(&e, &err);
out:
    if (code != EXIT_CODE_OK && (!e.boot || boot_rank(e.boot) == 0 || e.step_lost))
        log_err("%s", err.text);
    guard_destroy(e.guard);
    close_intake(&e);
    if (e.step_lost)
        comm_abort(e.comm, code);
    close_model(&e);
    comm_destroy(e.comm);
    boot_destroy(e.boot);
    loop_destroy(e.loop);
    return code;
}
