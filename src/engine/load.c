#include "engine/load.h"

#include <stdlib.h>

#include "common/alloc.h"
#include "common/log.h"

struct share {
    uint64_t done, total;
};

struct load {
    struct comm *comm;
    int told; /* meetings that are over */
    struct share *all;
    uint64_t *done, *total;
    load_progress_f *progress;
    void *arg;
};

static void meet(struct load *l, uint64_t done, uint64_t total)
{
    struct share mine = {done, total};
    struct k3_error err;
    int ranks = comm_size(l->comm);

    l->told++;
    if (comm_allgather(l->comm, &mine, l->all, sizeof mine, &err) < 0) {
        log_err("rank %d while loading: %s", comm_rank(l->comm), err.text);
        comm_abort(l->comm, EXIT_FAILURE);
    }
    if (comm_rank(l->comm) != 0)
        return;
    for (int r = 0; r < ranks; r++) {
        l->done[r] = l->all[r].done;
        l->total[r] = l->all[r].total;
    }
    l->progress(l->done, l->total, ranks, l->arg);
}

/* Meetings are counted, so every rank holds as many whatever the size of its share or of a tensor. */
static void loaded(uint64_t done, uint64_t total, void *arg)
{
    struct load *l = arg;

    while (l->told <= LOAD_PIECES && (double)done * LOAD_PIECES >= (double)total * l->told)
        meet(l, done, total);
}

struct weights *load_weights(const char *model_dir, const struct k3_config *config, const struct shard *sh,
                             struct k3_stream *s, struct comm *c, bool verify, load_progress_f *progress, void *arg,
                             struct k3_error *err)
{
    size_t ranks = (size_t)comm_size(c);
    struct load l = {.comm = c,
                     .all = k3_calloc(ranks, sizeof *l.all),
                     .done = k3_calloc(ranks, sizeof *l.done),
                     .total = k3_calloc(ranks, sizeof *l.total),
                     .progress = progress,
                     .arg = arg};

    struct weights_loading how = {.progress = loaded, .arg = &l, .unverified = !verify};

    loaded(0, weights_bytes(config, sh), &l);
    struct weights *w = weights_load(model_dir, config, sh, s, &how, err);
    while (l.told <= LOAD_PIECES) /* failed, but the others are waiting */
        meet(&l, 0, 0);
    if (comm_agree(c, w ? 0 : -1, err) < 0) {
        weights_destroy(w);
        w = NULL;
    }
    free(l.all);
    free(l.done);
    free(l.total);
    return w;
}
