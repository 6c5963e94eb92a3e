/* comm_nccl.c - activations between GPUs: operations of the stream that computes, so a step of them can be one graph
 *
 * ncclAllReduce() may add in any order, and in another one for another size.  With two ranks there is but one order;
 * with more, numbers are gathered and added here, in rank order (see comm.h): of a short message everyone gathers
 * everyone's, of a long one everyone's copy of its own piece, and then the sums.
 *
 * NCCL notices a lost peer on its own time.  A thread asks every WATCH_MS and ends the process, for a kernel that waits
 * for a peer cannot be called back. */
#include <cuda_runtime_api.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wstrict-prototypes" /* NCCL's header serves C++ first */
#include <nccl.h>
#pragma GCC diagnostic pop

#include "comm/backend.h"
#include "common/alloc.h"
#include "common/log.h"

enum {
    BLOCK = 1 << 20,        /* floats of a rank that pass through the buffer at a time */
    GATHER_WHOLE = 1 << 16, /* floats of all ranks together up to which a sum is one exchange, not two */
    WATCH_MS = 200
};

struct comm_nccl {
    struct comm_device base;
    ncclComm_t nccl;
    struct k3_stream *stream;
    float *buffer;      /* [size, BLOCK], on the device */
    const float **part; /* [size] */
    size_t bytes;
    pthread_t watch;
    int watching;
    atomic_int stop;
};

static int failed(struct k3_error *err, const char *call, ncclResult_t rc)
{
    errno = EIO;
    return k3_errorf(err, "%s: %s", call, ncclGetErrorString(rc));
}

#define NCCL_TRY(call)                                                                                                 \
    do {                                                                                                               \
        ncclResult_t rc_ = (call);                                                                                     \
        if (rc_ != ncclSuccess)                                                                                        \
            return failed(err, #call, rc_);                                                                            \
    } while (0)

#define KERN_TRY(call)                                                                                                 \
    do {                                                                                                               \
        if ((call) < 0)                                                                                                \
            return k3_errorf(err, "between ranks: %s", kern_stream_error(s));                                          \
    } while (0)

static struct comm_nccl *self(struct comm *c)
{
    return (struct comm_nccl *)c->device;
}

static cudaStream_t queue(struct k3_stream *s)
{
    return kern_stream_native(s);
}

/* x = the sum of `size` parts of n floats, one after the other, in their order */
static int sum_parts(struct k3_stream *s, const float *part, int size, float *x, size_t n, struct k3_error *err)
{
    struct k3_tensor parts = {
        .data = (float *)part, .dtype = K3_F32, .rows = size, .cols = (int64_t)n, .stride = (int64_t)n};
    struct k3_tensor sum = {.data = x, .dtype = K3_F32, .rows = 1, .cols = (int64_t)n, .stride = (int64_t)n};

    KERN_TRY(kern_sum(&(struct sum_args){&parts, &sum}, s));
    return 0;
}

/* Everyone gets all numbers of everyone: n floats, at most BLOCK. */
static int sum_whole(struct comm *c, struct k3_stream *s, float *x, size_t n, struct k3_error *err)
{
    struct comm_nccl *d = self(c);

    NCCL_TRY(ncclAllGather(x, d->buffer, n, ncclFloat, d->nccl, queue(s)));
    return sum_parts(s, d->buffer, c->size, x, n, err);
}

/* Everyone gets everyone's numbers of its own piece, and then the sums of the others: n floats, at most size * BLOCK
 * and a multiple of size. */
static int sum_pieces(struct comm *c, struct k3_stream *s, float *x, size_t n, struct k3_error *err)
{
    struct comm_nccl *d = self(c);
    size_t piece = n / (size_t)c->size;
    float *mine = x + (size_t)c->rank * piece;

    NCCL_TRY(ncclGroupStart());
    for (int r = 0; r < c->size; r++) {
        NCCL_TRY(ncclSend(x + (size_t)r * piece, piece, ncclFloat, r, d->nccl, queue(s)));
        NCCL_TRY(ncclRecv(d->buffer + (size_t)r * piece, piece, ncclFloat, r, d->nccl, queue(s)));
    }
    NCCL_TRY(ncclGroupEnd());
    if (sum_parts(s, d->buffer, c->size, mine, piece, err) < 0)
        return -1;
    NCCL_TRY(ncclAllGather(mine, x, piece, ncclFloat, d->nccl, queue(s)));
    return 0;
}

/* The bits are those of the sum in rank order, whichever way: of two there is only one order. */
static int nccl_allreduce(struct comm *c, struct k3_stream *s, float *x, size_t count, struct k3_error *err)
{
    struct comm_nccl *d = self(c);
    size_t size = (size_t)c->size, most = size * BLOCK;

    if (size == 2) {
        NCCL_TRY(ncclAllReduce(x, x, count, ncclFloat, ncclSum, d->nccl, queue(s)));
        return 0;
    }
    for (size_t at = 0, n; at < count; at += n) {
        n = count - at < most ? count - at : most;
        int pieces = n * size > GATHER_WHOLE && n % size == 0;
        if (!pieces && n > BLOCK)
            n = BLOCK;
        if ((pieces ? sum_pieces : sum_whole)(c, s, x + at, n, err) < 0)
            return -1;
    }
    return 0;
}

/* Everyone's `rows` rows of a matrix, a rank's after the other's. */
static int gather_packed(struct comm *c, struct k3_stream *s, const float *mine, float *to, int64_t rows,
                         const int64_t *begin, struct k3_error *err)
{
    struct comm_nccl *d = self(c);
    int even = 1;

    for (int r = 0; r < c->size; r++)
        even &= begin[r + 1] - begin[r] == begin[1];
    if (even) {
        NCCL_TRY(ncclAllGather(mine, to, (size_t)(rows * begin[1]), ncclFloat, d->nccl, queue(s)));
        return 0;
    }
    for (int r = 0; r < c->size; r++) {
        size_t n = (size_t)(rows * (begin[r + 1] - begin[r]));
        if (n > 0)
            NCCL_TRY(ncclBroadcast(mine, to + rows * begin[r], n, ncclFloat, r, d->nccl, queue(s)));
    }
    return 0;
}

/* Rows [row, row + n) of all matrices, in one launch of NCCL's; a single row lands where it belongs. */
static int gather_rows(struct comm *c, struct k3_stream *s, const struct comm_columns *matrix, int matrices,
                       int64_t row, int64_t n, struct k3_error *err)
{
    struct comm_nccl *d = self(c);
    float *landing[COMM_MATRICES], *free_place = d->buffer;
    int rc = 0;

    NCCL_TRY(ncclGroupStart());
    for (int i = 0; i < matrices && rc == 0; i++) {
        const int64_t *begin = matrix[i].begin;
        int64_t width = begin[c->rank + 1] - begin[c->rank];
        landing[i] = n == 1 ? matrix[i].all + row * begin[c->size] : free_place;
        free_place += n * begin[c->size];
        rc = gather_packed(c, s, matrix[i].mine + row * width, landing[i], n, begin, err);
    }
    NCCL_TRY(ncclGroupEnd());
    for (int i = 0; i < matrices && rc == 0 && n > 1; i++) {
        const int64_t *begin = matrix[i].begin;
        for (int r = 0; r < c->size; r++)
            d->part[r] = landing[i] + n * begin[r];
        KERN_TRY(comm_lay_columns(s, d->part, begin, c->size, matrix[i].all + row * begin[c->size], n));
    }
    return rc;
}

static int nccl_allgather_columns(struct comm *c, struct k3_stream *s, const struct comm_columns *matrix, int matrices,
                                  int64_t rows, struct k3_error *err)
{
    int64_t cols = 0, room = (int64_t)c->size * BLOCK;

    for (int i = 0; i < matrices; i++)
        cols += matrix[i].begin[c->size];
    if (cols == 0)
        return 0;
    if (cols > room) {
        errno = EMSGSIZE;
        return k3_errorf(err, "a row of %lld columns is too long to gather", (long long)cols);
    }
    for (int64_t row = 0, n; row < rows; row += n) {
        n = rows - row < room / cols ? rows - row : room / cols;
        if (gather_rows(c, s, matrix, matrices, row, n, err) < 0)
            return -1;
    }
    return 0;
}

/* In one launch of NCCL's. */
static int nccl_send(struct comm *c, struct k3_stream *s, const float *const *part, int parts, size_t count, int to,
                     struct k3_error *err)
{
    NCCL_TRY(ncclGroupStart());
    for (int i = 0; i < parts; i++)
        NCCL_TRY(ncclSend(part[i], count, ncclFloat, to, self(c)->nccl, queue(s)));
    NCCL_TRY(ncclGroupEnd());
    return 0;
}

static int nccl_receive(struct comm *c, struct k3_stream *s, float *const *part, int parts, size_t count, int from,
                        struct k3_error *err)
{
    NCCL_TRY(ncclGroupStart());
    for (int i = 0; i < parts; i++)
        NCCL_TRY(ncclRecv(part[i], count, ncclFloat, from, self(c)->nccl, queue(s)));
    NCCL_TRY(ncclGroupEnd());
    return 0;
}

/* --- a lost peer -------------------------------------------------------------------------------------------------- */

static void *watch(void *arg)
{
    struct comm_nccl *d = arg;
    ncclResult_t state = ncclSuccess;

    while (!atomic_load(&d->stop)) {
        if (ncclCommGetAsyncError(d->nccl, &state) != ncclSuccess ||
            (state != ncclSuccess && state != ncclInProgress)) {
            log_err("NCCL: %s: this rank ends", ncclGetLastError(d->nccl));
            _exit(EXIT_FAILURE);
        }
        nanosleep(&(struct timespec){.tv_nsec = WATCH_MS * 1000000L}, NULL);
    }
    return NULL;
}

/* --- creation ----------------------------------------------------------------------------------------------------- */

static void nccl_destroy(struct comm_device *base)
{
    struct comm_nccl *d = (struct comm_nccl *)base;

    if (d->watching) {
        atomic_store(&d->stop, 1);
        pthread_join(d->watch, NULL);
    }
    if (d->nccl)
        ncclCommDestroy(d->nccl);
    kern_free(d->stream, d->buffer, d->bytes);
    free(d->part);
    free(d);
}

static int join(struct comm *c, struct comm_nccl *d, struct k3_error *err)
{
    ncclUniqueId id = {{0}};
    int version = 0, rc = 0;

    if (c->rank == 0 && ncclGetUniqueId(&id) != ncclSuccess)
        rc = k3_errorf(err, "ncclGetUniqueId: %s", ncclGetLastError(NULL));
    if (comm_agree(c, rc, err) < 0 || comm_broadcast(c, &id, sizeof id, 0, err) < 0)
        return -1;
    NCCL_TRY(ncclCommInitRank(&d->nccl, c->size, id, c->rank));
    ncclGetVersion(&version);
    if (c->rank == 0)
        log_info("NCCL %d.%d.%d between %d ranks", version / 10000, version / 100 % 100, version % 100, c->size);
    return 0;
}

struct comm_device *comm_nccl_create(struct comm *c, struct k3_stream *s, struct k3_error *err)
{
    struct comm_nccl *d = k3_zalloc(sizeof *d);

    d->base = (struct comm_device){nccl_allreduce, nccl_allgather_columns, nccl_send, nccl_receive, nccl_destroy};
    d->stream = s;
    d->bytes = (size_t)c->size * BLOCK * sizeof *d->buffer;
    d->part = k3_calloc((size_t)c->size, sizeof *d->part);
    if (join(c, d, err) < 0)
        goto failed;
    if (!(d->buffer = kern_alloc(s, d->bytes))) {
        k3_errorf(err, "no memory for %zu bytes between ranks: %s", d->bytes, kern_stream_error(s));
        goto failed;
    }
    d->watching = pthread_create(&d->watch, NULL, watch, d) == 0;
    return &d->base;
failed:
    nccl_destroy(&d->base);
    return NULL;
}
