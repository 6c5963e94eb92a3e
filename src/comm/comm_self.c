/* comm_self.c - a communicator of one process: what it sends, it has received */
#include <stdlib.h>
#include <string.h>

#include "comm/backend.h"
#include "common/alloc.h"

static int self_allreduce(struct comm *c, struct k3_stream *s, float *x, size_t count, struct k3_error *err)
{
    (void)c, (void)s, (void)x, (void)count, (void)err;
    return 0;
}

static int self_allgather_columns(struct comm *c, struct k3_stream *s, const struct comm_columns *matrix, int matrices,
                                  int64_t rows, struct k3_error *err)
{
    (void)c;
    for (const struct comm_columns *m = matrix; m < matrix + matrices; m++) {
        size_t bytes = (size_t)rows * (size_t)m->begin[1] * sizeof *m->all;
        if (kern_copy(s, m->all, bytes, m->mine, bytes, bytes, 1) < 0)
            return k3_errorf(err, "a copy of %zu bytes: %s", bytes, kern_stream_error(s));
    }
    return 0;
}

static int self_allgather(struct comm *c, const void *mine, void *all, size_t bytes, struct k3_error *err)
{
    (void)c, (void)err;
    memcpy(all, mine, bytes);
    return 0;
}

static int self_broadcast(struct comm *c, void *data, size_t bytes, int root, struct k3_error *err)
{
    (void)c, (void)data, (void)bytes, (void)root, (void)err;
    return 0;
}

static int self_barrier(struct comm *c, struct k3_error *err)
{
    (void)c, (void)err;
    return 0;
}

static void self_abort(struct comm *c, int code)
{
    (void)c, (void)code;
}

static void self_destroy(struct comm *c)
{
    free(c);
}

static const struct comm_ops self_ops = {
    .allreduce = self_allreduce,
    .allgather_columns = self_allgather_columns,
    .allgather = self_allgather,
    .broadcast = self_broadcast,
    .broadcast_idle = self_broadcast,
    .barrier = self_barrier,
    .abort = self_abort,
    .destroy = self_destroy,
};

struct comm *comm_self_create(void)
{
    struct comm *c = k3_zalloc(sizeof *c);

    *c = (struct comm){.ops = &self_ops, .rank = 0, .size = 1};
    return c;
}
