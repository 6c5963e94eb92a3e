/* forward_create.c - a rank's forward pass, with its memory placed */
#include <errno.h>
#include <stdlib.h>

#include "common/alloc.h"
#include "model/forward_private.h"

/* Where each rank's columns of an axis begin; the last entry is the axis' length. */
static int64_t *begins(const struct k3_config *c, const struct shard *sh, enum shard_axis axis)
{
    int64_t *begin = k3_calloc((size_t)sh->tp + 1, sizeof *begin);

    for (int r = 0; r < sh->tp; r++)
        begin[r + 1] = shard_range(c, &(struct shard){.tp = sh->tp, .rank = r}, axis).end;
    return begin;
}

/* With room for all rows that may ask for them. */
static size_t logits_bytes(const struct forward *f)
{
    return (size_t)f->limits.outputs * (size_t)f->c->vocab * sizeof(float) + 1;
}

size_t forward_trace_bytes(const struct forward *f)
{
    return (size_t)f->limits.rows * (size_t)f->c->hidden * sizeof(float);
}

/* This side of what goes to and comes from memory that is not this process'. */
static int take_host_memory(struct forward *f, struct k3_error *err)
{
    if (kern_is_host(f->s))
        return 0;
    f->lists_block = kern_alloc_host(f->s, f->lists_bytes);
    if (forward_has_logits(f))
        f->logits_host = kern_alloc_host(f->s, logits_bytes(f));
    if (!f->lists_block || (forward_has_logits(f) && !f->logits_host))
        return k3_errorf(err, "no pinned memory for %zu bytes: %s", f->lists_bytes + logits_bytes(f),
                         kern_stream_error(f->s));
    forward_place_lists(&f->lists, f->lists_block, &f->limits);
    return 0;
}

static int check_limits(const struct shard *sh, struct comm *comm, const struct forward_limits *l, struct k3_error *err)
{
    errno = EINVAL;
    struct comm *stage = comm_stage(comm), *pipeline = comm_pipeline(comm);
    int stages = pipeline ? comm_size(pipeline) : 1, at = pipeline ? comm_rank(pipeline) : 0;

    if (sh->tp != comm_size(stage) || sh->rank != comm_rank(stage) || (sh->pp > 0 ? sh->pp : 1) != stages ||
        sh->stage != at)
        return k3_errorf(err, "rank %d of %d in stage %d of %d was given the shard of rank %d of %d in stage %d of %d",
                         comm_rank(stage), comm_size(stage), at, stages, sh->rank, sh->tp, sh->stage, sh->pp);
    if (l->slot_pages < 0 || l->rows < 1 || l->outputs < 0 || l->slots < 1 || l->checkpoints < 0 || l->pages < 0 ||
        l->page_tokens < 1)
        return k3_errorf(err, "impossible limits: %d rows, %d outputs, %d slots, %d checkpoints, %d pages of %d tokens",
                         l->rows, l->outputs, l->slots, l->checkpoints, l->pages, l->page_tokens);
    return 0;
}

struct forward *forward_create(const struct k3_config *c, const struct shard *sh, const struct weights *w,
                               struct comm *comm, struct k3_stream *s, const struct forward_limits *l,
                               struct k3_error *err)
{
    if (check_limits(sh, comm, l, err) < 0)
        return NULL;

    struct forward *f = k3_zalloc(sizeof *f);
    forward_describe(f, c, sh, l);
    f->w = w;
    f->comm = comm_stage(comm);
    f->pipeline = comm_pipeline(comm);
    f->s = s;
    f->latent_begin = begins(c, sh, SHARD_LATENT);
    f->router_begin = begins(c, sh, SHARD_ROUTER);
    f->vocab_begin = begins(c, sh, SHARD_VOCAB);
    if (arena_commit(f->arena, s, err) < 0 || take_host_memory(f, err) < 0) {
        k3_error_prefix(err, "a step of %d rows, %d slots, %d pages: ", l->rows, l->slots, l->pages);
        forward_destroy(f);
        return NULL;
    }
    forward_lay_out(f);
    forward_place_lists(&f->sent, f->sent_block, l);
    return f;
}

void forward_destroy(struct forward *f)
{
    if (!f)
        return;

    int saved = errno;
    forward_forget_graphs(f);
    if (f->lists_block)
        kern_free_host(f->s, f->lists_block, f->lists_bytes);
    if (f->logits_host)
        kern_free_host(f->s, f->logits_host, logits_bytes(f));
    if (f->trace_host)
        kern_free_host(f->s, f->trace_host, forward_trace_bytes(f));
    forward_undescribe(f);
    free(f->latent_begin);
    free(f->router_begin);
    free(f->vocab_begin);
    free(f);
    errno = saved;
}
