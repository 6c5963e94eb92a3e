/* backend.h - what an implementation of comm.h provides; private to src/comm
 *
 * An implementation embeds struct comm first in a struct of its own. */
#ifndef K3_COMM_BACKEND_H
#define K3_COMM_BACKEND_H

#include "comm/comm.h"

/* Floats that lie in several places, count in each. */
typedef int comm_send_f(struct comm *c, struct k3_stream *s, const float *const *part, int parts, size_t count, int to,
                        struct k3_error *err);
typedef int comm_receive_f(struct comm *c, struct k3_stream *s, float *const *part, int parts, size_t count, int from,
                           struct k3_error *err);

struct comm_ops {
    int (*allreduce)(struct comm *c, struct k3_stream *s, float *x, size_t count, struct k3_error *err);
    int (*allgather_columns)(struct comm *c, struct k3_stream *s, const struct comm_columns *matrix, int matrices,
                             int64_t rows, struct k3_error *err);
    comm_send_f *send;
    comm_receive_f *receive;
    int (*allgather)(struct comm *c, const void *mine, void *all, size_t bytes, struct k3_error *err);
    int (*broadcast)(struct comm *c, void *data, size_t bytes, int root, struct k3_error *err);
    int (*broadcast_idle)(struct comm *c, void *data, size_t bytes, int root, struct k3_error *err);
    int (*barrier)(struct comm *c, struct k3_error *err);
    /* Those of all ranks that say the same colour, in their order.  NULL: there is no such thing. */
    struct comm *(*split)(struct comm *c, int colour, struct k3_error *err);
    void (*abort)(struct comm *c, int code);
    void (*destroy)(struct comm *c);
};

/* Collectives between GPUs, ended before the communicator itself. */
struct comm_device {
    int (*allreduce)(struct comm *c, struct k3_stream *s, float *x, size_t count, struct k3_error *err);
    int (*allgather_columns)(struct comm *c, struct k3_stream *s, const struct comm_columns *matrix, int matrices,
                             int64_t rows, struct k3_error *err);
    comm_send_f *send;
    comm_receive_f *receive;
    void (*destroy)(struct comm_device *d);
};

struct comm {
    const struct comm_ops *ops;
    int rank, size;
    int alone;                     /* the other ranks are imagined */
    struct comm_device *device;    /* NULL: activations go the way of everything else */
    struct comm *stage, *pipeline; /* NULL: not divided */
};

/* kern_columns() of any number of parts. */
int comm_lay_columns(struct k3_stream *s, const float *const *part, const int64_t *begin, int parts, float *all,
                     int64_t rows);

/* Over NCCL; the ranks learn the unique id from rank 0 through c. */
struct comm_device *comm_nccl_create(struct comm *c, struct k3_stream *s, struct k3_error *err);

#endif
