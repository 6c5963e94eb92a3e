/* experts.c - y[t] = sum_j weight[t,j] w2_e SiTU(w1_e z[t], w3_e z[t]), e = id[t,j] (SPEC 4.6 steps 5 and 6), fp32
 *
 * The (row, choice) pairs of a step are sorted by expert, so that an expert's weights are read once for all rows that
 * chose it, and worked off in groups whose inner activations fit the shared scratch.  A row adds up its experts by
 * ascending number: an order that is the row's own, whoever else is in the step. */
#include <errno.h>

#include "kernels/cpu/fmath.h"
#include "kernels/cpu/matmul.h"

enum { MAX_EXPERTS = 8192, MAX_PAIRS = CPU_SHARED_INTS - MAX_EXPERTS - 1 };

struct group {
    const struct experts_args *a;
    const int32_t *pair; /* row * topk + choice, sorted by expert */
    int begin, end;      /* the group's pairs */
    float *gate, *h;     /* [pairs of the group, inner] */
};

static struct k3_tensor expert(const struct experts_args *a, const struct kern_expert_matrix *m, int32_t id)
{
    struct k3_tensor w = m->first;
    int64_t e = id - a->first;
    w.data = (uint8_t *)w.data + e * m->data_step;
    if (w.scale != NULL)
        w.scale = (uint8_t *)w.scale + e * m->scale_step;
    return w;
}

/* Pairs from p on that go to one expert, as many as a matrix product takes at a time: from different rows, because each
 * row adds up in one place. */
static int run_length(const struct group *g, int p)
{
    int n = 1, topk = g->a->topk;
    while (n < CPU_TILE_ROWS && p + n < g->end && g->a->id[g->pair[p + n]] == g->a->id[g->pair[p]] &&
           g->pair[p + n] / topk != g->pair[p + n - 1] / topk)
        n++;
    return n;
}

static void inner_part(struct cpu_worker *worker, const void *arg)
{
    const struct group *g = arg;
    const struct experts_args *a = g->a;
    int64_t i0, i1, inner = a->w1->first.rows;
    cpu_share(worker, inner, 16, &i0, &i1);
    for (int p = g->begin, n; p < g->end && i0 < i1; p += n) {
        struct k3_tensor w1 = expert(a, a->w1, a->id[g->pair[p]]), w3 = expert(a, a->w3, a->id[g->pair[p]]);
        const float *z[CPU_TILE_ROWS];
        float *gate[CPU_TILE_ROWS], *up[CPU_TILE_ROWS];
        n = run_length(g, p);
        for (int j = 0; j < n; j++) {
            z[j] = cpu_row(a->z, g->pair[p + j] / a->topk);
            gate[j] = g->gate + (p + j - g->begin) * inner;
            up[j] = g->h + (p + j - g->begin) * inner;
            memset(gate[j] + i0, 0, (size_t)(i1 - i0) * sizeof(float));
            memset(up[j] + i0, 0, (size_t)(i1 - i0) * sizeof(float));
        }
        CPU(matmul)(worker, n, z, &w1, i0, i1, gate, NULL);
        CPU(matmul)(worker, n, z, &w3, i0, i1, up, NULL);
        for (int j = 0; j < n; j++)
            for (int64_t i = i0; i < i1; i += LANES) /* inner is a multiple of 32 */
                vec_store(up[j] + i, vec_situ(vec_load(gate[j] + i), vec_load(up[j] + i), a->beta, a->linear_beta));
    }
}

static void outer_part(struct cpu_worker *worker, const void *arg)
{
    const struct group *g = arg;
    const struct experts_args *a = g->a;
    int64_t l0, l1, inner = a->w1->first.rows;
    cpu_share(worker, a->y->cols, 16, &l0, &l1);
    for (int p = g->begin, n; p < g->end && l0 < l1; p += n) {
        struct k3_tensor w2 = expert(a, a->w2, a->id[g->pair[p]]);
        const float *h[CPU_TILE_ROWS];
        float *y[CPU_TILE_ROWS], weight[CPU_TILE_ROWS];
        n = run_length(g, p);
        for (int j = 0; j < n; j++) {
            h[j] = g->h + (p + j - g->begin) * inner;
            y[j] = cpu_row(a->y, g->pair[p + j] / a->topk);
            weight[j] = a->weight[g->pair[p + j]];
        }
        CPU(matmul)(worker, n, h, &w2, l0, l1, y, weight);
    }
}

static int is_held(const struct experts_args *a, int32_t id)
{
    return id >= a->first && id - a->first < a->held;
}

/* Counting sort of the pairs of rows [t0, t1) whose experts are held; returns their number. */
static int sort_pairs(const struct experts_args *a, int64_t t0, int64_t t1, int32_t *first, int32_t *pair)
{
    int begin = (int)(t0 * a->topk), end = (int)(t1 * a->topk);
    memset(first, 0, (size_t)(a->held + 1) * sizeof *first);
    for (int p = begin; p < end; p++)
        if (is_held(a, a->id[p]))
            first[a->id[p] - a->first + 1]++;
    for (int e = 0; e < a->held; e++)
        first[e + 1] += first[e];
    int pairs = first[a->held];
    for (int p = begin; p < end; p++)
        if (is_held(a, a->id[p]))
            pair[first[a->id[p] - a->first]++] = p;
    return pairs;
}

static void run_rows(const struct experts_args *a, struct k3_stream *s, int64_t t0, int64_t t1)
{
    struct cpu_stream *c = (struct cpu_stream *)s;
    int32_t *pair = c->shared_ints + MAX_EXPERTS + 1;
    int pairs = sort_pairs(a, t0, t1, c->shared_ints, pair);
    int64_t inner = a->w1->first.rows, room = CPU_SHARED_FLOATS / 2 / (inner > 0 ? inner : 1);
    for (int64_t t = t0; t < t1; t++)
        memset(cpu_row(a->y, t), 0, (size_t)a->y->cols * sizeof(float));
    for (int p = 0; p < pairs; p += (int)room) {
        struct group g = {.a = a,
                          .pair = pair,
                          .begin = p,
                          .end = pairs - p < room ? pairs : p + (int)room,
                          .gate = c->shared,
                          .h = c->shared + CPU_SHARED_FLOATS / 2};
        int64_t workers = 1 + (g.end - p) * inner * a->z->cols / 16384;
        CPU(run)(s, workers, inner_part, &g);
        CPU(run)(s, workers, outer_part, &g);
    }
}

int CPU(experts)(const struct experts_args *a, struct k3_stream *s)
{
    int64_t rows = a->z->rows, tile = MAX_PAIRS / a->topk;
    int bad = a->held > MAX_EXPERTS || a->w1->first.rows > CPU_SHARED_FLOATS / 2 || rows > INT32_MAX / a->topk;
    for (int64_t p = 0; !bad && p < rows * a->topk; p++)
        bad = a->id[p] < 0 || a->id[p] >= a->experts;
    if (bad) {
        errno = EINVAL;
        return -1;
    }
    for (int64_t t = 0; t < rows; t += tile)
        run_rows(a, s, t, rows - t < tile ? rows : t + tile);
    return 0;
}
