/* comm.h - what ranks say to each other: a few collectives, over MPI and NCCL or within one process
 *
 * Activations are exchanged in the memory of a stream and in its order: over MPI once the stream has come to rest, over
 * NCCL as one more operation of the stream.  Everything else lies in this process' memory and goes over MPI.
 *
 * Every rank of a communicator makes the same calls in the same order with the same sizes, but for messages from one
 * rank to another.  Sums are taken in rank order for every element, so that a result's bits depend on the layout only,
 * never on the size of the message or on batch mates.  A call that fails means that the step is lost: the caller ends
 * its rank, and whoever started the ranks starts them again. */
#ifndef K3_COMM_H
#define K3_COMM_H

#include <stddef.h>
#include <stdint.h>

#include "common/error.h"
#include "kernels/kernels.h"

struct comm;

/* A communicator of one: every collective is a copy. */
struct comm *comm_self_create(void);
/* All ranks of this MPI job.  MPI must be built in and this process started as a rank (mpirun, srun --mpi=pmix); MPI is
 * initialised here and finalised by comm_destroy().  Collectives may be called from any one thread at a time. */
struct comm *comm_mpi_create(struct k3_error *err);
/* comm_mpi_create() when the environment says that we are one of several ranks, else comm_self_create(). */
struct comm *comm_create(struct k3_error *err);
/* Waits for the other ranks to do the same; one that gives up alone calls comm_abort(). */
void comm_destroy(struct comm *c);

/* One rank of `size`, alone, to measure it: an exchange takes `microseconds` of the stream's time (0 at first); a sum
 * is this rank's part of it, the others' columns are this rank's, and what is received was there before. */
struct comm *comm_delay_create(int rank, int size);
void comm_delay_set(struct comm *c, double microseconds);
/* Exchanges of activations that were queued since this was last asked. */
int comm_delay_exchanges(struct comm *c);

/* All ranks, once, before they exchange activations in the memory of a GPU's stream; nothing to do for others.  Borrows
 * the stream. */
int comm_attach(struct comm *c, struct k3_stream *s, struct k3_error *err);
/* Before the stream is destroyed, and after all graphs with exchanges in them are; accepts NULL and what was never
 * attached. */
void comm_detach(struct comm *c);

int comm_rank(const struct comm *c);
int comm_size(const struct comm *c);

/* Divide the ranks into stages, each of as many consecutive ranks: all ranks, once, before comm_attach().  What this
 * makes belongs to c, is attached and detached with it, and takes over its exchanges of activations. */
int comm_divide(struct comm *c, int stages, struct k3_error *err);
/* The ranks of this rank's stage; c itself when it is not divided. */
struct comm *comm_stage(struct comm *c);
/* The ranks that have this rank's place in their stages, by stage; NULL when c is not divided. */
struct comm *comm_pipeline(struct comm *c);

/* x[i] = sum over ranks of x[i], in rank order; count floats. */
int comm_allreduce(struct comm *c, struct k3_stream *s, float *x, size_t count, struct k3_error *err);
/* Of a matrix, rank r holds mine [rows, begin[r + 1] - begin[r]] and everyone gets all [rows, begin[size]]. */
struct comm_columns {
    const float *mine;
    float *all;
    const int64_t *begin; /* [size + 1], from 0 */
};
/* Of several matrices, 1 ... COMM_MATRICES, in one exchange; of more than one, a row of all together is at most 2^18
 * numbers. */
enum { COMM_MATRICES = 2 };
int comm_allgather_columns(struct comm *c, struct k3_stream *s, const struct comm_columns *matrix, int matrices,
                           int64_t rows, struct k3_error *err);
/* To one other rank, which receives as many: `parts` times count floats. */
int comm_send(struct comm *c, struct k3_stream *s, const float *const *part, int parts, size_t count, int to,
              struct k3_error *err);
int comm_receive(struct comm *c, struct k3_stream *s, float *const *part, int parts, size_t count, int from,
                 struct k3_error *err);
/* Every rank contributes `bytes` and gets all contributions in rank order; all [size * bytes]. */
int comm_allgather(struct comm *c, const void *mine, void *all, size_t bytes, struct k3_error *err);
int comm_broadcast(struct comm *c, void *data, size_t bytes, int root, struct k3_error *err);
/* As comm_broadcast(), for a wait that may last hours: the waiting ranks sleep in between instead of spinning. */
int comm_broadcast_idle(struct comm *c, void *data, size_t bytes, int root, struct k3_error *err);
int comm_barrier(struct comm *c, struct k3_error *err);
/* Every rank says how a common step went for it (rc, and err when rc < 0).  0 when it went well everywhere, else -1 for
 * all, with the sentence of the first rank that failed.  For the start of a program: it allocates. */
int comm_agree(struct comm *c, int rc, struct k3_error *err);
/* End every rank at once with this exit code; does not return. */
void comm_abort(struct comm *c, int code) __attribute__((noreturn));

#endif
