#include "config.h"

#include "comm/comm.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "comm/backend.h"
#include "common/alloc.h"

/* A number from the environment, or `otherwise` when it is not there or is none. */
static long env_number(const char *name, long otherwise)
{
    const char *text = getenv(name);
    char *end;

    if (!text || !*text)
        return otherwise;
    long n = strtol(text, &end, 10);
    return *end ? otherwise : n;
}

/* Were we started as one of several ranks?  mpirun says how many; PMIx (srun --mpi=pmix) sets only our own rank, and
 * MPI finds the size, which may be one. */
static int started_as_rank(void)
{
    return env_number("OMPI_COMM_WORLD_SIZE", 1) > 1 || getenv("PMIX_RANK") != NULL;
}

struct comm *comm_create(struct k3_error *err)
{
    if (started_as_rank())
        return comm_mpi_create(err);

    /* srun's tasks that PMIx was not told about would each believe to be alone. */
    long tasks = env_number("SLURM_STEP_NUM_TASKS", 1);
    if (tasks > 1) {
        errno = EINVAL;
        k3_errorf(err, "started as one of %ld tasks of a Slurm step without PMIx: use srun --mpi=pmix", tasks);
        return NULL;
    }
    return comm_self_create();
}

#ifndef HAVE_MPI
struct comm *comm_mpi_create(struct k3_error *err)
{
    errno = ENOTSUP;
    k3_errorf(err, "started as one of several ranks, but this build has no MPI: configure --with-mpi");
    return NULL;
}
#endif

void comm_destroy(struct comm *c)
{
    if (!c)
        return;

    int saved = errno;
    comm_detach(c);
    comm_destroy(c->pipeline);
    comm_destroy(c->stage);
    c->ops->destroy(c);
    errno = saved;
}

int comm_rank(const struct comm *c)
{
    return c->rank;
}

int comm_size(const struct comm *c)
{
    return c->size;
}

int comm_divide(struct comm *c, int stages, struct k3_error *err)
{
    errno = EINVAL;
    if (stages == 1)
        return 0;
    if (stages < 1 || c->size % stages || !c->ops->split)
        return k3_errorf(err, "%d ranks cannot be divided into %d stages", c->size, stages);
    int tp = c->size / stages;
    if (!(c->stage = c->ops->split(c, c->rank / tp, err)) || !(c->pipeline = c->ops->split(c, c->rank % tp, err)))
        return -1;
    return 0;
}

struct comm *comm_stage(struct comm *c)
{
    return c->stage ? c->stage : c;
}

struct comm *comm_pipeline(struct comm *c)
{
    return c->pipeline;
}

int comm_attach(struct comm *c, struct k3_stream *s, struct k3_error *err)
{
    if (c->size == 1 || kern_is_host(s) || c->alone)
        return 0;
    if (c->stage) /* a stage that fails must not leave the others waiting for it in their pipelines */
        return comm_agree(c, comm_attach(c->stage, s, err), err) < 0 ? -1 : comm_attach(c->pipeline, s, err);
#ifdef HAVE_NCCL
    c->device = comm_nccl_create(c, s, err);
    return c->device ? 0 : -1;
#else
    errno = ENOTSUP;
    return k3_errorf(err, "%d ranks with GPUs, but this build has no NCCL: configure --with-nccl", c->size);
#endif
}

void comm_detach(struct comm *c)
{
    if (!c)
        return;
    comm_detach(c->pipeline);
    comm_detach(c->stage);
    if (!c->device)
        return;

    int saved = errno;
    c->device->destroy(c->device);
    c->device = NULL;
    errno = saved;
}

int comm_allreduce(struct comm *c, struct k3_stream *s, float *x, size_t count, struct k3_error *err)
{
    return c->device ? c->device->allreduce(c, s, x, count, err) : c->ops->allreduce(c, s, x, count, err);
}

int comm_allgather_columns(struct comm *c, struct k3_stream *s, const struct comm_columns *matrix, int matrices,
                           int64_t rows, struct k3_error *err)
{
    return c->device ? c->device->allgather_columns(c, s, matrix, matrices, rows, err)
                     : c->ops->allgather_columns(c, s, matrix, matrices, rows, err);
}

int comm_lay_columns(struct k3_stream *s, const float *const *part, const int64_t *begin, int parts, float *all,
                     int64_t rows)
{
    for (int p = 0; p < parts; p += K3_MAX_PARTS) {
        int n = parts - p < K3_MAX_PARTS ? parts - p : K3_MAX_PARTS;
        int64_t first[K3_MAX_PARTS + 1];
        for (int i = 0; i <= n; i++)
            first[i] = begin[p + i] - begin[p];
        struct k3_tensor y = {
            .data = all + begin[p], .dtype = K3_F32, .rows = rows, .cols = first[n], .stride = begin[parts]};
        if (kern_columns(&(struct columns_args){part + p, first, n, &y}, s) < 0)
            return -1;
    }
    return 0;
}

/* A rank says nothing to itself. */
static int is_other(const struct comm *c, int rank, struct k3_error *err)
{
    errno = EINVAL;
    return rank >= 0 && rank < c->size && rank != c->rank
               ? 0
               : k3_errorf(err, "rank %d of %d has no other rank %d", c->rank, c->size, rank);
}

int comm_send(struct comm *c, struct k3_stream *s, const float *const *part, int parts, size_t count, int to,
              struct k3_error *err)
{
    if (is_other(c, to, err) < 0)
        return -1;
    return (c->device ? c->device->send : c->ops->send)(c, s, part, parts, count, to, err);
}

int comm_receive(struct comm *c, struct k3_stream *s, float *const *part, int parts, size_t count, int from,
                 struct k3_error *err)
{
    if (is_other(c, from, err) < 0)
        return -1;
    return (c->device ? c->device->receive : c->ops->receive)(c, s, part, parts, count, from, err);
}

int comm_allgather(struct comm *c, const void *mine, void *all, size_t bytes, struct k3_error *err)
{
    return c->ops->allgather(c, mine, all, bytes, err);
}

int comm_broadcast(struct comm *c, void *data, size_t bytes, int root, struct k3_error *err)
{
    return c->ops->broadcast(c, data, bytes, root, err);
}

int comm_broadcast_idle(struct comm *c, void *data, size_t bytes, int root, struct k3_error *err)
{
    return c->ops->broadcast_idle(c, data, bytes, root, err);
}

int comm_barrier(struct comm *c, struct k3_error *err)
{
    return c->ops->barrier(c, err);
}

int comm_agree(struct comm *c, int rc, struct k3_error *err)
{
    struct report {
        int rc;
        struct k3_error err;
    } mine = {.rc = rc}, *all = k3_calloc((size_t)c->size, sizeof *all);
    int failed = 0, first = 0;

    if (rc < 0)
        mine.err = *err;
    if (comm_allgather(c, &mine, all, sizeof mine, err) < 0) {
        free(all);
        return -1;
    }
    for (int r = c->size - 1; r >= 0; r--) {
        failed += all[r].rc < 0;
        first = all[r].rc < 0 ? r : first;
    }
    if (failed > 0)
        *err = all[first].err;
    if (failed > 0 && failed < c->size)
        k3_error_prefix(err, "rank %d: ", first);
    free(all);
    return failed > 0 ? -1 : 0;
}

void comm_abort(struct comm *c, int code)
{
    c->ops->abort(c, code);
    _exit(code);
}
