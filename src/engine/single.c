#include "engine/single.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "common/alloc.h"
#include "gpu/arena.h"
#include "gpu/device.h"
#include "model/shard.h"
#include "model/weights.h"

enum { PAGE_TOKENS = 64 };

struct single {
    struct comm *comm;
    struct shard shard;
    struct weights *weights;
    struct k3_stream *stream;
    struct forward *forward;
    int32_t *page;   /* page n is the n-th, but behind a fork */
    int32_t *output; /* [rows]: 0, 1, 2 ... */
    int32_t pages, prompt;
    int64_t length; /* tokens so far */
    int32_t slot;   /* 0; behind the fork 1 */
    bool forks;     /* before the next step */
    struct forward_copy fork;
};

static int32_t *count_up(int32_t n)
{
    int32_t *list = k3_calloc((size_t)n, sizeof *list);

    for (int32_t i = 0; i < n; i++)
        list[i] = i;
    return list;
}

static void log_memory(const struct k3_config *c, const struct shard *sh, const struct forward_limits *l)
{
    struct forward_bytes bytes = forward_bytes(c, sh, l);
    const struct arena_row row[] = {
        {"weights", weights_bytes(c, sh)},
        {"state", bytes.state},
        {"latents", bytes.latents},
        {"scratch", bytes.scratch},
    };

    arena_log_budget(row, sizeof row / sizeof *row);
}

static int load(struct single *s, const struct single_options *o, const struct k3_config *c, struct comm *comm,
                struct k3_error *err)
{
    struct forward_limits limits = {
        .rows = o->rows,
        .outputs = o->all_outputs ? o->rows : 1,
        .slots = o->forks ? 2 : 1,
        .pages = o->forks ? s->pages + 1 : s->pages,
        .page_tokens = PAGE_TOKENS,
        .slot_pages = s->pages,
    };

    s->stream = device_stream_create(o->backend, o->threads, err);
    if (!s->stream)
        return -1;
    limits.latents = kern_latent_dtype(s->stream);
    if (comm_rank(comm) == 0)
        log_memory(c, &s->shard, &limits);
    if (comm_attach(comm, s->stream, err) < 0)
        return -1;
    s->weights =
        weights_load(o->model, c, &s->shard, s->stream, &(struct weights_loading){.unverified = o->unverified}, err);
    if (!s->weights)
        return -1;
    s->forward = forward_create(c, &s->shard, s->weights, comm, s->stream, &limits, err);
    return s->forward ? 0 : -1;
}

struct single *single_create(const struct single_options *o, const struct k3_config *c, const struct layout *l,
                             struct comm *comm, struct k3_error *err)
{
    struct single *s = k3_zalloc(sizeof *s);

    s->comm = comm;
    s->shard = layout_shard(l, comm_rank(comm));
    s->pages = (int32_t)((o->tokens + PAGE_TOKENS - 1) / PAGE_TOKENS);
    s->prompt = o->prompt;
    s->page = count_up(s->pages);
    s->output = count_up(o->rows);
    if (load(s, o, c, comm, err) < 0) {
        single_destroy(s);
        return NULL;
    }
    return s;
}

void single_destroy(struct single *s)
{
    if (!s)
        return;

    int saved = errno;
    forward_destroy(s->forward);
    weights_destroy(s->weights);
    comm_detach(s->comm);
    kern_stream_destroy(s->stream);
    free(s->page);
    free(s->output);
    free(s);
    errno = saved;
}

struct forward *single_forward(struct single *s)
{
    return s->forward;
}

/* What struct kern_batch says of the next n tokens. */
static int32_t prefill_of(const struct single *s, int32_t n)
{
    int64_t end = s->length + n;

    if (s->length % K3_PREFILL_BLOCK != 0 || end > s->prompt || (end < s->prompt && end % K3_PREFILL_BLOCK != 0))
        return 0;
    return s->prompt;
}

/* The pages behind the fork have been used by nobody else by the time of the first, and by a fork that is gone later.
 */
void single_fork(struct single *s)
{
    int32_t full = (int32_t)(s->prompt / PAGE_TOKENS);

    s->fork = (struct forward_copy){FORWARD_FORK, 0, 1, -1, -1};
    if (s->prompt % PAGE_TOKENS != 0) {
        s->fork.from_page = full;
        s->fork.to_page = s->page[full] = s->pages;
    }
    s->slot = 1;
    s->length = s->prompt;
    s->forks = true;
}

int single_feed(struct single *s, const int32_t *token, int32_t n, enum single_outputs outputs, const float **logits,
                struct k3_error *err)
{
    const int32_t begin[2] = {0, n}, last = n - 1, prefill = prefill_of(s, n);
    struct forward_step step = {
        .copy = &s->fork,
        .copies = s->forks,
        .batch = {.rows = n,
                  .seqs = 1,
                  .begin = begin,
                  .slot = &s->slot,
                  .pos = &s->length,
                  .pages = s->page,
                  .page_stride = s->pages,
                  .prefill = &prefill},
        .token = token,
        .output = outputs == SINGLE_LAST ? &last : s->output,
        .outputs = outputs == SINGLE_NONE   ? 0
                   : outputs == SINGLE_LAST ? 1
                                            : n,
    };

    if (forward_step(s->forward, &step, logits, err) < 0)
        return -1;
    s->length += n;
    s->forks = false;
    return 0;
}
