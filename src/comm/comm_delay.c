/* comm_delay.c - one rank of several, alone: what it would get from the others is missing, the time it takes is not */
#include <stdlib.h>
#include <string.h>

#include "comm/backend.h"
#include "common/alloc.h"

struct comm_delay {
    struct comm base;
    double us;
    int exchanges;
};

static int pass_time(struct comm *c, struct k3_stream *s, struct k3_error *err)
{
    struct comm_delay *d = (struct comm_delay *)c;

    d->exchanges++;
    return kern_delay(s, d->us) < 0 ? k3_errorf(err, "a delay: %s", kern_stream_error(s)) : 0;
}

static int delay_allreduce(struct comm *c, struct k3_stream *s, float *x, size_t count, struct k3_error *err)
{
    (void)x, (void)count;
    return pass_time(c, s, err);
}

static int delay_allgather_columns(struct comm *c, struct k3_stream *s, const float *mine, float *all, int64_t rows,
                                   const int64_t *begin, struct k3_error *err)
{
    size_t cols = (size_t)begin[c->size] * sizeof *all, width = (size_t)(begin[c->rank + 1] - begin[c->rank]);

    width *= sizeof *all;
    if (kern_copy(s, all + begin[c->rank], cols, mine, width, width, (size_t)rows) < 0)
        return k3_errorf(err, "a copy of columns: %s", kern_stream_error(s));
    return pass_time(c, s, err);
}

static int delay_allgather(struct comm *c, const void *mine, void *all, size_t bytes, struct k3_error *err)
{
    (void)err;
    for (int r = 0; r < c->size; r++)
        memcpy((char *)all + (size_t)r * bytes, mine, bytes);
    return 0;
}

static int delay_broadcast(struct comm *c, void *data, size_t bytes, int root, struct k3_error *err)
{
    (void)c, (void)data, (void)bytes, (void)root, (void)err;
    return 0;
}

static int delay_barrier(struct comm *c, struct k3_error *err)
{
    (void)c, (void)err;
    return 0;
}

static void delay_abort(struct comm *c, int code)
{
    (void)c, (void)code;
}

static void delay_destroy(struct comm *c)
{
    free(c);
}

static const struct comm_ops delay_ops = {
    .allreduce = delay_allreduce,
    .allgather_columns = delay_allgather_columns,
    .allgather = delay_allgather,
    .broadcast = delay_broadcast,
    .broadcast_idle = delay_broadcast,
    .barrier = delay_barrier,
    .abort = delay_abort,
    .destroy = delay_destroy,
};

struct comm *comm_delay_create(int rank, int size)
{
    struct comm_delay *d = k3_zalloc(sizeof *d);

    d->base = (struct comm){.ops = &delay_ops, .rank = rank, .size = size, .alone = 1};
    return &d->base;
}

void comm_delay_set(struct comm *c, double microseconds)
{
    ((struct comm_delay *)c)->us = microseconds;
}

int comm_delay_exchanges(struct comm *c)
{
    struct comm_delay *d = (struct comm_delay *)c;
    int exchanges = d->exchanges;

    d->exchanges = 0;
    return exchanges;
}
