/* ranks.c - every collective with inputs whose results each rank can predict alone
 *
 * Rank 0 prints one line a check ("ok NAME" or "not ok NAME"), true when it held on every rank; t1101-comm.t makes TAP
 * of them for several numbers of ranks. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "comm/boot.h"
#include "comm/comm.h"
#include "common/alloc.h"

static struct comm *c;
static struct k3_stream *s;
static struct k3_error err;

/* What rank r contributes at i: of very different sizes and both signs, so that another order gives other bits. */
static float value(int r, size_t i)
{
    uint32_t h = (uint32_t)i * 2654435761u + (uint32_t)r * 40503u;
    h ^= h >> 15;
    h *= 2246822519u;
    h ^= h >> 13;
    float small = (float)(h & 0xffff) / 65536.0f + 0.5f;
    static const float size[4] = {1.0f, 1e4f, 1e-4f, 1e7f};
    return (h & 0x10000 ? -small : small) * size[(h >> 20) & 3];
}

static float expected(size_t i)
{
    float sum = value(0, i);
    for (int r = 1; r < comm_size(c); r++)
        sum += value(r, i);
    return sum;
}

static float backwards(size_t i)
{
    float sum = value(comm_size(c) - 1, i);
    for (int r = comm_size(c) - 2; r >= 0; r--)
        sum += value(r, i);
    return sum;
}

static int sums(size_t count)
{
    float *x = k3_calloc(count + 1, sizeof *x);
    int right = 1;

    for (size_t i = 0; i < count; i++)
        x[i] = value(comm_rank(c), i);
    x[count] = 42;
    right &= comm_allreduce(c, s, x, count, &err) == 0;
    for (size_t i = 0; i < count; i++) {
        float want = expected(i);
        right &= memcmp(&x[i], &want, sizeof want) == 0;
    }
    right &= x[count] == 42;
    free(x);
    return right;
}

/* The inputs above would not notice a wrong order if no order mattered to them. */
static int order_matters(void)
{
    int differ = 0;

    for (size_t i = 0; i < 1000; i++)
        differ += expected(i) != backwards(i);
    return comm_size(c) < 3 || differ > 100;
}

/* A matrix whose element [i, j] is i * columns + j, of which this rank has columns of width `unit` + rank; rank 1 none.
 */
struct matrix {
    int64_t *begin, cols;
    float *mine, *all;
};

static struct matrix matrix_create(int64_t rows, int64_t unit)
{
    int size = comm_size(c), rank = comm_rank(c);
    struct matrix m = {.begin = k3_calloc((size_t)size + 1, sizeof *m.begin)};

    for (int r = 0; r < size; r++)
        m.begin[r + 1] = m.begin[r] + (r == 1 ? 0 : unit + r);
    int64_t width = m.begin[rank + 1] - m.begin[rank];
    m.cols = m.begin[size];
    m.mine = k3_calloc((size_t)(rows * width), sizeof *m.mine);
    m.all = k3_calloc((size_t)(rows * m.cols), sizeof *m.all);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < width; j++)
            m.mine[i * width + j] = (float)(i * m.cols + m.begin[rank] + j);
    return m;
}

static int matrix_is_whole(const struct matrix *m, int64_t rows)
{
    for (int64_t i = 0; i < rows * m->cols; i++)
        if (m->all[i] != (float)i)
            return 0;
    return 1;
}

static void matrix_free(struct matrix *m)
{
    free(m->begin);
    free(m->mine);
    free(m->all);
}

/* A matrix alone, and up to `most` at once. */
static int columns(int64_t rows, int64_t unit, int most)
{
    int right = 1;

    for (int matrices = 1; matrices <= most; matrices++) {
        struct matrix m[] = {matrix_create(rows, unit), matrix_create(rows, 3)};
        struct comm_columns set[COMM_MATRICES];
        for (int i = 0; i < matrices; i++)
            set[i] = (struct comm_columns){m[i].mine, m[i].all, m[i].begin};
        right &= comm_allgather_columns(c, s, set, matrices, rows, &err) == 0;
        for (int i = 0; i < COMM_MATRICES; i++) {
            right &= i >= matrices || matrix_is_whole(&m[i], rows);
            matrix_free(&m[i]);
        }
    }
    return right;
}

static int gathers(void)
{
    char mine[3] = {'a', (char)comm_rank(c), 'z'}, *all = k3_calloc((size_t)comm_size(c), 3);
    int right = comm_allgather(c, mine, all, 3, &err) == 0;

    for (int r = 0; r < comm_size(c); r++)
        right &= all[3 * r] == 'a' && all[3 * r + 1] == r && all[3 * r + 2] == 'z';
    free(all);
    return right;
}

static int broadcasts(int (*broadcast)(struct comm *, void *, size_t, int, struct k3_error *))
{
    int right = 1;

    for (int root = 0; root < comm_size(c); root++) {
        int64_t data[2] = {0, 0};
        if (comm_rank(c) == root)
            data[0] = 7 + root, data[1] = -1;
        right &= broadcast(c, data, sizeof data, root, &err) == 0;
        right &= data[0] == 7 + root && data[1] == -1;
    }
    return right;
}

/* Wait half a second for rank 0; the others must have used little of a core meanwhile. */
static int idles(void)
{
    int word = 0;
    clock_t before = clock();

    if (comm_rank(c) == 0) {
        nanosleep(&(struct timespec){.tv_nsec = 500000000}, NULL);
        word = 1;
    }
    int right = comm_broadcast_idle(c, &word, sizeof word, 0, &err) == 0 && word == 1;
    return right && (double)(clock() - before) / CLOCKS_PER_SEC < 0.1;
}

static int agrees(void)
{
    struct k3_error mine = {"own"};
    int right = comm_agree(c, 0, &mine) == 0, last = comm_size(c) - 1;

    k3_errorf(&mine, "no tea for %d", comm_rank(c));
    right &= comm_agree(c, comm_rank(c) == last ? -1 : 0, &mine) < 0;
    char want[40];
    if (last > 0)
        snprintf(want, sizeof want, "rank %d: no tea for %d", last, last);
    else
        snprintf(want, sizeof want, "no tea for 0");
    right &= strcmp(mine.text, want) == 0;
    k3_errorf(&mine, "no tea for %d", comm_rank(c));
    right &= comm_agree(c, -1, &mine) < 0 && strcmp(mine.text, "no tea for 0") == 0;
    return right;
}

/* Each stage hands its number on, in two parts, to the next; the last one's comes back to the first. */
static int divides(void)
{
    int size = comm_size(c), stages = size % 2 ? size : 2, tp = size / stages, right;

    right = comm_stage(c) == c && !comm_pipeline(c) && comm_divide(c, size + 1, &err) < 0;
    right &= comm_divide(c, stages, &err) == 0;
    if (stages == 1)
        return right && comm_stage(c) == c && !comm_pipeline(c);
    struct comm *stage = comm_stage(c), *pipeline = comm_pipeline(c);
    int at = comm_rank(pipeline), member = comm_rank(stage);
    right &= comm_size(stage) == tp && comm_size(pipeline) == stages && at * tp + member == comm_rank(c);
    float sum = (float)comm_rank(c), x[7] = {0}, want = 0;
    for (int r = 0; r < tp; r++)
        want += (float)(at * tp + r);
    right &= comm_allreduce(stage, s, &sum, 1, &err) == 0 && sum == want;
    float *part[2] = {x, x + 4};
    if (at > 0)
        right &= comm_receive(pipeline, s, part, 2, 3, at - 1, &err) == 0;
    right &= x[0] == (float)at && x[6] == (float)(at * 10) && x[3] == 0;
    x[0] += 1;
    x[6] += 10;
    right &= comm_send(pipeline, s, (const float *const *)part, 2, 3, (at + 1) % stages, &err) == 0;
    if (at == 0)
        right &= comm_receive(pipeline, s, part, 2, 3, stages - 1, &err) == 0 && x[0] == (float)stages;
    return right && comm_send(pipeline, s, (const float *const *)part, 1, 1, at, &err) < 0;
}

static int boots(void)
{
    struct boot *b = boot_create(&err);
    int right = b != NULL;

    if (b) {
        int mine[2] = {boot_rank(b), 1000 + boot_rank(b)}, *all = k3_calloc((size_t)boot_size(b), sizeof mine);
        right &= boot_rank(b) == comm_rank(c) && boot_size(b) == comm_size(c) && boot_node(b)[0];
        right &= boot_exchange(b, "test.pair", mine, sizeof mine, all, &err) == 0;
        for (int r = 0; r < boot_size(b); r++)
            right &= all[2 * r] == r && all[2 * r + 1] == 1000 + r;
        /* One rank with something longer to say is named by everyone. */
        size_t bytes = boot_rank(b) == boot_size(b) - 1 ? 8 : 4;
        if (boot_size(b) > 1 && boot_rank(b) != boot_size(b) - 1) {
            char name[32];
            snprintf(name, sizeof name, "rank %d ", boot_size(b) - 1);
            right &= boot_exchange(b, "test.odd", mine, bytes, all, &err) < 0 && strstr(err.text, name) == err.text;
        } else if (boot_size(b) > 1) {
            right &= boot_exchange(b, "test.odd", mine, bytes, all, &err) < 0;
        }
        free(all);
    }
    boot_destroy(b);
    return right;
}

static void report(const char *name, int right)
{
    int all[64];

    if (comm_allgather(c, &right, all, sizeof right, &err) < 0) {
        fprintf(stderr, "%s\n", err.text);
        comm_abort(c, 1);
    }
    for (int r = 0; r < comm_size(c); r++)
        right &= all[r];
    if (comm_rank(c) == 0)
        printf("%s %s\n", right ? "ok" : "not ok", name);
}

int main(int argc, char **argv)
{
    c = comm_create(&err);
    if (!c) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    s = kern_stream_create("ref", 1);
    if (argc > 1 && strcmp(argv[1], "abort") == 0) {
        if (comm_rank(c) == comm_size(c) - 1)
            comm_abort(c, 7);
        comm_barrier(c, &err);
        return 0;
    }
    if (argc > 1) {
        int want = atoi(argv[1]);
        report("as many ranks as were started", comm_size(c) == want && comm_size(c) <= 64);
    }
    report("the order of the sums' inputs matters", order_matters());
    report("sum of 1", sums(1));
    report("sum of nothing", sums(0));
    report("sum of 7168", sums(7168));
    report("sum of 100001, in pieces", sums(100001));
    report("sum of 600001, in blocks", sums(600001));
    report("columns of one row", columns(1, 5, COMM_MATRICES));
    report("columns of many rows", columns(1000, 300, COMM_MATRICES));
    report("columns of rows wider than the buffer", columns(2, 300000, 1));
    report("bytes of every rank", gathers());
    report("broadcast from each rank", broadcasts(comm_broadcast));
    report("idle broadcast from each rank", broadcasts(comm_broadcast_idle));
    report("a long wait sleeps", idles());
    report("barrier", comm_barrier(c, &err) == 0);
    report("a failure of one is everyone's", agrees());
    report("stages and pipelines", divides());
    report("PMIx agrees on ranks and exchanges", boots());
    comm_destroy(c);
    kern_stream_destroy(s);
    return 0;
}
