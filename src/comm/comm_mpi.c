/* comm_mpi.c - collectives over MPI
 *
 * MPI_Allreduce may add in any order it likes, and in another one for another size.  Ours moves the numbers and adds
 * them here, in rank order: a short message is gathered whole by everyone; of a long one each rank gets everyone's copy
 * of its own piece, adds, and the sums are gathered.  Both give the same bits. */
#include <mpi.h>

#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "comm/backend.h"
#include "common/alloc.h"

enum {
    BLOCK = 1 << 18,        /* floats that pass through the buffer at a time */
    GATHER_WHOLE = 1 << 16, /* floats of all ranks together up to which a sum is one exchange, not two */
    AWAKE_NS = 200000,      /* an idle wait yields for so long before it sleeps */
    NAP_MOST_NS = 1000000
};

struct comm_mpi {
    struct comm base;
    MPI_Comm ranks;
    int is_part;                                      /* of another, which ends MPI */
    int *send_count, *send_at, *recv_count, *recv_at; /* [size] each */
    float *buffer;                                    /* [BLOCK + size] */
    float *packed;                                    /* [BLOCK]: what goes out of several rows or matrices */
};

/* Run an MPI call; when it fails, write its sentence and return -1 from the function. */
#define MPI_TRY(call)                                                                                                  \
    do {                                                                                                               \
        int code_ = (call);                                                                                            \
        if (code_ != MPI_SUCCESS)                                                                                      \
            return mpi_failed(err, #call, code_);                                                                      \
    } while (0)

static int mpi_failed(struct k3_error *err, const char *call, int code)
{
    char text[MPI_MAX_ERROR_STRING];
    int len;

    if (MPI_Error_string(code, text, &len) != MPI_SUCCESS)
        text[0] = '\0';
    errno = EIO;
    return k3_errorf(err, "%.*s: %s", (int)strcspn(call, "("), call, text);
}

static struct comm_mpi *self(struct comm *c)
{
    return (struct comm_mpi *)c;
}

/* x [n] becomes the sum of the `size` rows of parts [size, n], first row first. */
static void add_in_rank_order(float *x, const float *parts, int size, int n)
{
    memcpy(x, parts, (size_t)n * sizeof *x);
    for (int r = 1; r < size; r++)
        for (int i = 0; i < n; i++)
            x[i] += parts[(size_t)r * (size_t)n + (size_t)i];
}

static int allreduce_whole(struct comm_mpi *m, float *x, int n, struct k3_error *err)
{
    MPI_TRY(MPI_Allgather(x, n, MPI_FLOAT, m->buffer, n, MPI_FLOAT, m->ranks));
    add_in_rank_order(x, m->buffer, m->base.size, n);
    return 0;
}

static int allreduce_pieces(struct comm_mpi *m, float *x, int n, struct k3_error *err)
{
    int rank = m->base.rank, size = m->base.size, piece = (n + size - 1) / size;

    for (int r = 0; r < size; r++) {
        m->send_at[r] = r * piece < n ? r * piece : n;
        m->send_count[r] = n - m->send_at[r] < piece ? n - m->send_at[r] : piece;
    }
    int mine = m->send_count[rank];
    for (int r = 0; r < size; r++) {
        m->recv_count[r] = mine;
        m->recv_at[r] = r * mine;
    }
    MPI_TRY(MPI_Alltoallv(x, m->send_count, m->send_at, MPI_FLOAT, m->buffer, m->recv_count, m->recv_at, MPI_FLOAT,
                          m->ranks));
    add_in_rank_order(x + m->send_at[rank], m->buffer, size, mine);
    MPI_TRY(MPI_Allgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, x, m->send_count, m->send_at, MPI_FLOAT, m->ranks));
    return 0;
}

/* Bring a stream to rest, so that its results lie in this process' memory. */
static int come_to_rest(struct k3_stream *s, struct k3_error *err)
{
    return kern_sync(s) < 0 ? k3_errorf(err, "backend %s: %s", kern_stream_name(s), kern_stream_error(s)) : 0;
}

static int mpi_allreduce(struct comm *c, struct k3_stream *s, float *x, size_t count, struct k3_error *err)
{
    struct comm_mpi *m = self(c);

    if (come_to_rest(s, err) < 0)
        return -1;
    for (size_t at = 0; at < count; at += BLOCK) {
        int n = count - at < BLOCK ? (int)(count - at) : BLOCK;
        int rc = (size_t)n * (size_t)c->size <= GATHER_WHOLE ? allreduce_whole(m, x + at, n, err)
                                                             : allreduce_pieces(m, x + at, n, err);
        if (rc < 0)
            return -1;
    }
    return 0;
}

static int64_t width_of(const struct comm_columns *m, int rank)
{
    return m->begin[rank + 1] - m->begin[rank];
}

/* Rows [row, row + n) of all matrices.  A rank sends its rows of one after those of the other; a single row of a single
 * matrix needs no packing. */
static int gather_rows(struct comm_mpi *m, const struct comm_columns *matrix, int matrices, int64_t row, int64_t n,
                       struct k3_error *err)
{
    int plain = n == 1 && matrices == 1, rank = m->base.rank, size = m->base.size;
    const float *from = plain ? matrix->mine + row * width_of(matrix, rank) : m->packed;
    float *landing = plain ? matrix->all + row * matrix->begin[size] : m->buffer;
    int64_t at = 0;

    for (int r = 0; r < size; r++) {
        m->recv_at[r] = (int)at;
        for (int i = 0; i < matrices; i++)
            at += n * width_of(&matrix[i], r);
        m->recv_count[r] = (int)at - m->recv_at[r];
    }
    at = 0;
    for (int i = 0; i < matrices && !plain; i++) {
        int64_t width = width_of(&matrix[i], rank);
        memcpy(m->packed + at, matrix[i].mine + row * width, (size_t)(n * width) * sizeof *m->packed);
        at += n * width;
    }
    MPI_TRY(
        MPI_Allgatherv(from, m->recv_count[rank], MPI_FLOAT, landing, m->recv_count, m->recv_at, MPI_FLOAT, m->ranks));
    for (int r = 0; r < size && !plain; r++) {
        const float *part = landing + m->recv_at[r];
        for (int i = 0; i < matrices; i++) {
            int64_t width = width_of(&matrix[i], r), cols = matrix[i].begin[size];
            for (int64_t t = row; t < row + n; t++, part += width)
                memcpy(matrix[i].all + t * cols + matrix[i].begin[r], part, (size_t)width * sizeof *part);
        }
    }
    return 0;
}

/* As many rows at a time as the buffer holds. */
static int mpi_allgather_columns(struct comm *c, struct k3_stream *s, const struct comm_columns *matrix, int matrices,
                                 int64_t rows, struct k3_error *err)
{
    int64_t cols = 0;

    if (come_to_rest(s, err) < 0)
        return -1;
    for (int i = 0; i < matrices; i++)
        cols += matrix[i].begin[c->size];
    if (cols == 0)
        return 0;
    if (cols > (matrices > 1 ? BLOCK : INT_MAX)) {
        errno = EMSGSIZE;
        return k3_errorf(err, "a row of %lld columns is too long to gather", (long long)cols);
    }
    int64_t block = cols < BLOCK ? BLOCK / cols : 1;
    for (int64_t row = 0; row < rows; row += block)
        if (gather_rows(self(c), matrix, matrices, row, rows - row < block ? rows - row : block, err) < 0)
            return -1;
    return 0;
}

static int check_bytes(size_t bytes, struct k3_error *err)
{
    if (bytes <= INT_MAX)
        return 0;
    errno = EMSGSIZE;
    return k3_errorf(err, "a message of %zu bytes between ranks is longer than %d", bytes, INT_MAX);
}

static int mpi_send(struct comm *c, struct k3_stream *s, const float *const *part, int parts, size_t count, int to,
                    struct k3_error *err)
{
    if (come_to_rest(s, err) < 0 || check_bytes(count * sizeof **part, err) < 0)
        return -1;
    for (int i = 0; i < parts; i++)
        MPI_TRY(MPI_Send(part[i], (int)count, MPI_FLOAT, to, 0, self(c)->ranks));
    return 0;
}

static int mpi_receive(struct comm *c, struct k3_stream *s, float *const *part, int parts, size_t count, int from,
                       struct k3_error *err)
{
    if (come_to_rest(s, err) < 0 || check_bytes(count * sizeof **part, err) < 0)
        return -1;
    for (int i = 0; i < parts; i++)
        MPI_TRY(MPI_Recv(part[i], (int)count, MPI_FLOAT, from, 0, self(c)->ranks, MPI_STATUS_IGNORE));
    return 0;
}

static int mpi_allgather(struct comm *c, const void *mine, void *all, size_t bytes, struct k3_error *err)
{
    if (check_bytes(bytes, err) < 0)
        return -1;
    MPI_TRY(MPI_Allgather(mine, (int)bytes, MPI_BYTE, all, (int)bytes, MPI_BYTE, self(c)->ranks));
    return 0;
}

static int mpi_broadcast(struct comm *c, void *data, size_t bytes, int root, struct k3_error *err)
{
    if (check_bytes(bytes, err) < 0)
        return -1;
    MPI_TRY(MPI_Bcast(data, (int)bytes, MPI_BYTE, root, self(c)->ranks));
    return 0;
}

static int64_t now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

/* Sleep an eighth of what was waited so far: the answer is late by an eighth at most, and a long wait costs nothing. */
static void nap(int64_t waited_ns)
{
    int64_t ns = waited_ns / 8;

    if (waited_ns < AWAKE_NS)
        sched_yield();
    else
        nanosleep(&(struct timespec){.tv_nsec = ns < NAP_MOST_NS ? ns : NAP_MOST_NS}, NULL);
}

static int mpi_broadcast_idle(struct comm *c, void *data, size_t bytes, int root, struct k3_error *err)
{
    MPI_Request request;
    int done = 0;

    if (check_bytes(bytes, err) < 0)
        return -1;
    MPI_TRY(MPI_Ibcast(data, (int)bytes, MPI_BYTE, root, self(c)->ranks, &request));
    for (int64_t start = now_ns();; nap(now_ns() - start)) {
        MPI_TRY(MPI_Test(&request, &done, MPI_STATUS_IGNORE));
        if (done)
            return 0;
    }
}

static int mpi_barrier(struct comm *c, struct k3_error *err)
{
    MPI_TRY(MPI_Barrier(self(c)->ranks));
    return 0;
}

static void mpi_abort(struct comm *c, int code)
{
    MPI_Abort(self(c)->ranks, code);
}

static void mpi_destroy(struct comm *c)
{
    struct comm_mpi *m = self(c);

    if (m->ranks != MPI_COMM_NULL)
        MPI_Comm_free(&m->ranks);
    if (!m->is_part)
        MPI_Finalize();
    free(m->send_count);
    free(m->buffer);
    free(m->packed);
    free(m);
}

static struct comm *mpi_split(struct comm *c, int colour, struct k3_error *err);

static const struct comm_ops mpi_ops = {
    .allreduce = mpi_allreduce,
    .allgather_columns = mpi_allgather_columns,
    .send = mpi_send,
    .receive = mpi_receive,
    .allgather = mpi_allgather,
    .broadcast = mpi_broadcast,
    .broadcast_idle = mpi_broadcast_idle,
    .barrier = mpi_barrier,
    .split = mpi_split,
    .abort = mpi_abort,
    .destroy = mpi_destroy,
};

static int mpi_start(struct k3_error *err)
{
    int level;

    /* Open MPI spins while it waits.  Where ranks or threads outnumber cores that makes an exchange last 18 ms instead
     * of 0.1; where they do not, a yield costs less than a microsecond. */
    setenv("OMPI_MCA_mpi_yield_when_idle", "1", 0);
    MPI_TRY(MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level));
    if (level < MPI_THREAD_SERIALIZED) {
        MPI_Finalize();
        errno = ENOTSUP;
        return k3_errorf(err, "this MPI library cannot be used from more than one thread (MPI_THREAD_SERIALIZED)");
    }
    return 0;
}

/* Takes `from` over, as this communicator's own. */
static int take_ranks(struct comm_mpi *m, MPI_Comm from, struct k3_error *err)
{
    m->ranks = from;
    MPI_TRY(MPI_Comm_set_errhandler(m->ranks, MPI_ERRORS_RETURN));
    MPI_TRY(MPI_Comm_rank(m->ranks, &m->base.rank));
    MPI_TRY(MPI_Comm_size(m->ranks, &m->base.size));
    size_t size = (size_t)m->base.size;
    m->send_count = k3_calloc(4 * size, sizeof *m->send_count);
    m->send_at = m->send_count + size;
    m->recv_count = m->send_at + size;
    m->recv_at = m->recv_count + size;
    m->buffer = k3_calloc(BLOCK + size, sizeof *m->buffer);
    m->packed = k3_calloc(BLOCK, sizeof *m->packed);
    return 0;
}

static int join(struct comm_mpi *m, struct k3_error *err)
{
    MPI_Comm all;

    MPI_TRY(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    MPI_TRY(MPI_Comm_dup(MPI_COMM_WORLD, &all));
    return take_ranks(m, all, err);
}

static int join_part(struct comm_mpi *m, const struct comm_mpi *of, int colour, struct k3_error *err)
{
    MPI_Comm part;

    MPI_TRY(MPI_Comm_split(of->ranks, colour, of->base.rank, &part));
    return take_ranks(m, part, err);
}

static struct comm_mpi *allocate(int is_part)
{
    struct comm_mpi *m = k3_zalloc(sizeof *m);

    m->base.ops = &mpi_ops;
    m->ranks = MPI_COMM_NULL;
    m->is_part = is_part;
    return m;
}

static struct comm *mpi_split(struct comm *c, int colour, struct k3_error *err)
{
    struct comm_mpi *m = allocate(1);

    if (join_part(m, self(c), colour, err) == 0)
        return &m->base;
    comm_destroy(&m->base);
    return NULL;
}

struct comm *comm_mpi_create(struct k3_error *err)
{
    struct comm_mpi *m;

    if (mpi_start(err) < 0)
        return NULL;
    m = allocate(0);
    if (join(m, err) == 0)
        return &m->base;
    comm_destroy(&m->base);
    return NULL;
}
