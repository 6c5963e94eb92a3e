/* comm_delay.c - one rank of several, alone: what it would get from the others is missing, the time it takes is not */
#include <stdlib.h>
#include <string.h>

#include "comm/backend.h"
#include "common/alloc.h"

struct comm_delay {
    struct comm base;
    double us;
    int exchanges;
    const float **part; /* [size] */
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

/* The others' columns are this rank's once more, so that what is chosen by all of them is as varied as it would be.
 * Where they are wider than ours they stay as they were. */
static int delay_gather(struct comm *c, struct k3_stream *s, const struct comm_columns *m, int64_t rows)
{
    struct comm_delay *d = (struct comm_delay *)c;
    int64_t width = m->begin[c->rank + 1] - m->begin[c->rank];
    size_t bytes = (size_t)width * sizeof *m->all, cols = (size_t)m->begin[c->size] * sizeof *m->all;

    if (width * c->size != m->begin[c->size])
        return kern_copy(s, m->all + m->begin[c->rank], cols, m->mine, bytes, bytes, (size_t)rows);
    for (int r = 0; r < c->size; r++)
        d->part[r] = m->mine;
    return comm_lay_columns(s, d->part, m->begin, c->size, m->all, rows);
}

static int delay_allgather_columns(struct comm *c, struct k3_stream *s, const struct comm_columns *matrix, int matrices,
                                   int64_t rows, struct k3_error *err)
{
    for (int i = 0; i < matrices; i++)
        if (delay_gather(c, s, &matrix[i], rows) < 0)
            return k3_errorf(err, "columns: %s", kern_stream_error(s));
    return pass_time(c, s, err);
}

static int delay_send(struct comm *c, struct k3_stream *s, const float *const *part, int parts, size_t count, int to,
                      struct k3_error *err)
{
    (void)part, (void)parts, (void)count, (void)to;
    return pass_time(c, s, err);
}

static int delay_receive(struct comm *c, struct k3_stream *s, float *const *part, int parts, size_t count, int from,
                         struct k3_error *err)
{
    (void)part, (void)parts, (void)count, (void)from;
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
    free(((struct comm_delay *)c)->part);
    free(c);
}

static const struct comm_ops delay_ops = {
    .allreduce = delay_allreduce,
    .allgather_columns = delay_allgather_columns,
    .send = delay_send,
    .receive = delay_receive,
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
    d->part = k3_calloc((size_t)size, sizeof *d->part);
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
