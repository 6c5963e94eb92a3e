/* mla_attend.c - attention over the latents, keys and values absorbed (SPEC 6)
 *
 *   qa = UK^T qn;  score_s = scale (qa . c_s + qp . kp_s);  p = softmax(score);  cbar = sum_s p_s c_s;  o = UV cbar
 *
 * A query is one (row, head).  A worker takes up to QUERIES of one sequence at a time, and they walk together through
 * the positions in blocks of BLOCK, aligned to the sequence's position 0, with the running maximum and sum of an online
 * softmax.  Per query the order of every sum is fixed by absolute positions: it knows nothing of pages, of the other
 * queries, or of how a prompt was cut into steps.  All fp32. */
#include <math.h>

#include "kernels/cpu/fmath.h"
#include "kernels/cpu/matmul.h"

enum { QUERIES = 32, BLOCK = 64, TILE = 4, HEAD_ROWS = K3_NOPE_DIM + K3_V_DIM };

struct query {
    const float *q; /* 128 nope, 64 pe */
    float *o;
    int64_t head, positions; /* it sees positions 0 ... positions - 1 */
    float max, sum;
};

struct scratch {
    float qa[QUERIES][K3_CACHE_DIM], cbar[QUERIES][K3_LATENT_DIM], p[QUERIES][BLOCK];
};
_Static_assert(sizeof(struct scratch) <= CPU_OWN_FLOATS * sizeof(float), "the queries fit a worker's scratch");

static const uint16_t *head_weights(const struct mla_attend_args *a, int64_t head)
{
    return (const uint16_t *)a->kv_b->data + head * HEAD_ROWS * a->kv_b->stride;
}

/* --- absorbed queries -------------------------------------------------------------------------------------------- */

enum { STRIP = 8 };

/* qa[r] += sum_n qn[r][n] UK[n] for STRIP rows n of UK and 2 LANES columns, whose even and odd ones lie apart. */
SIMD_INLINE void absorb_tile(const int R, const struct query *q, int n0, const uint16_t *uk, int64_t stride, int d,
                             struct scratch *s, int first)
{
    vec even[TILE], odd[TILE];
    UNROLL
    for (int r = 0; r < R; r++) {
        even[r] = vec_load(&s->qa[first + r][d]);
        odd[r] = vec_load(&s->qa[first + r][d + LANES]);
    }
    for (int n = n0; n < n0 + STRIP; n++) {
        vec we, wo;
        bf16_lanes(uk + n * stride + d, &we, &wo);
        UNROLL
        for (int r = 0; r < R; r++) {
            even[r] = vec_fma(we, vec_set(q[r].q[n]), even[r]);
            odd[r] = vec_fma(wo, vec_set(q[r].q[n]), odd[r]);
        }
    }
    UNROLL
    for (int r = 0; r < R; r++) {
        vec_store(&s->qa[first + r][d], even[r]);
        vec_store(&s->qa[first + r][d + LANES], odd[r]);
    }
}

static void interleave(float *qa)
{
    for (int d = 0; d < K3_LATENT_DIM; d += 2 * LANES) {
        float apart[2 * LANES];
        memcpy(apart, qa + d, sizeof apart);
        for (int i = 0; i < LANES; i++) {
            qa[d + 2 * i] = apart[i];
            qa[d + 2 * i + 1] = apart[LANES + i];
        }
    }
}

/* qa of queries [first, first + n), all of one head. */
static void absorb(const struct mla_attend_args *a, const struct query *q, int first, int n, struct scratch *s)
{
    const uint16_t *uk = head_weights(a, q[first].head);
    for (int j = first; j < first + n; j++) {
        memset(s->qa[j], 0, K3_LATENT_DIM * sizeof(float));
        memcpy(s->qa[j] + K3_LATENT_DIM, q[j].q + K3_NOPE_DIM, K3_ROPE_DIM * sizeof(float));
    }
    for (int n0 = 0; n0 < K3_NOPE_DIM; n0 += STRIP)
        for (int d = 0; d < K3_LATENT_DIM; d += 2 * LANES) {
            int j = first;
            for (; j + TILE <= first + n; j += TILE)
                absorb_tile(TILE, q + j, n0, uk, a->kv_b->stride, d, s, j);
            for (; j < first + n; j++)
                absorb_tile(1, q + j, n0, uk, a->kv_b->stride, d, s, j);
        }
    for (int j = first; j < first + n; j++)
        interleave(s->qa[j]);
}

/* --- one block of positions -------------------------------------------------------------------------------------- */

static void score_block(struct scratch *s, int n, const float *const *c, int count)
{
    for (int j = 0; j < n; j += TILE) {
        int rows = n - j < TILE ? n - j : TILE;
        const float *qa[TILE];
        for (int r = 0; r < rows; r++)
            qa[r] = s->qa[j + r];
        for (int pos = 0; pos < count; pos += DOT_OUTS)
            CPU(dot)
        (rows, count - pos < DOT_OUTS ? count - pos : DOT_OUTS, K3_CACHE_DIM, qa, c + pos, &s->p[j][pos], BLOCK);
    }
}

/* The first `seen` scores of a query become weights relative to its running maximum, the others 0. */
static void weigh_block(struct query *q, float scale, int seen, float *p, float *cbar)
{
    float max = q->max, factor;
    vec sum = vec_set(0);
    for (int i = 0; i < BLOCK; i++) {
        p[i] = i < seen ? p[i] * scale : -INFINITY;
        max = p[i] > max ? p[i] : max;
    }
    for (int i = 0; i < BLOCK; i += LANES) {
        vec e = vec_exp(vec_load(p + i) - vec_set(max));
        vec_store(p + i, e);
        sum += e;
    }
    factor = vec_exp(vec_set(q->max - max))[0];
    q->sum = q->sum * factor + vec_sum(sum);
    q->max = max;
    for (int d = 0; d < K3_LATENT_DIM; d += LANES)
        vec_store(cbar + d, vec_load(cbar + d) * vec_set(factor));
}

/* cbar[r] += sum_pos p[r][pos] c[pos] for positions [begin, end) and 2 LANES latents. */
SIMD_INLINE void mix_tile(const int R, struct scratch *s, int first, int begin, int end, const float *const *c, int d)
{
    vec acc[TILE][2];
    UNROLL
    for (int r = 0; r < R; r++) {
        UNROLL
        for (int j = 0; j < 2; j++)
            acc[r][j] = vec_load(&s->cbar[first + r][d + j * LANES]);
    }
    for (int pos = begin; pos < end; pos++) {
        vec c0 = vec_load(c[pos] + d), c1 = vec_load(c[pos] + d + LANES);
        UNROLL
        for (int r = 0; r < R; r++) {
            vec p = vec_set(s->p[first + r][pos]);
            acc[r][0] = vec_fma(p, c0, acc[r][0]);
            acc[r][1] = vec_fma(p, c1, acc[r][1]);
        }
    }
    UNROLL
    for (int r = 0; r < R; r++) {
        UNROLL
        for (int j = 0; j < 2; j++)
            vec_store(&s->cbar[first + r][d + j * LANES], acc[r][j]);
    }
}

/* Every query adds the positions that it sees and no other, be what it does not see NaN. */
static void mix_block(struct scratch *s, int n, const int *seen, const float *const *c)
{
    for (int j = 0; j < n; j += TILE) {
        int rows = n - j < TILE ? n - j : TILE, all = rows == TILE ? seen[j] : 0;
        for (int r = 0; r < rows; r++)
            all = seen[j + r] < all ? seen[j + r] : all;
        for (int d = 0; d < K3_LATENT_DIM; d += 2 * LANES) {
            if (all > 0)
                mix_tile(TILE, s, j, 0, all, c, d);
            for (int r = 0; r < rows; r++)
                if (seen[j + r] > all)
                    mix_tile(1, s, j + r, all, seen[j + r], c, d);
        }
    }
}

/* --- queries ----------------------------------------------------------------------------------------------------- */

/* o = UV cbar / sum for queries [first, first + n), all of one head. */
static void expand(struct cpu_worker *w, const struct mla_attend_args *a, struct query *q, int first, int n,
                   struct scratch *s)
{
    struct k3_tensor uv = *a->kv_b;
    const float *x[QUERIES];
    float *y[QUERIES];
    uv.data = (void *)(head_weights(a, q[first].head) + K3_NOPE_DIM * a->kv_b->stride);
    uv.rows = K3_V_DIM;
    for (int j = 0; j < n; j++) {
        float *cbar = s->cbar[first + j];
        for (int d = 0; d < K3_LATENT_DIM; d += LANES)
            vec_store(cbar + d, vec_load(cbar + d) / vec_set(q[first + j].sum));
        x[j] = cbar;
        y[j] = q[first + j].o;
        memset(y[j], 0, K3_V_DIM * sizeof(float));
    }
    CPU(matmul)(w, n, x, &uv, 0, K3_V_DIM, y, NULL);
}

static int same_head(const struct query *q, int first, int n)
{
    int end = first + 1;
    while (end < n && q[end].head == q[first].head)
        end++;
    return end - first;
}

static void attend(struct cpu_worker *w, const struct mla_attend_args *a, int i, struct query *q, int n)
{
    struct scratch *s = (struct scratch *)w->own;
    int64_t last = 0;
    for (int j = 0, run; j < n; j += run) {
        run = same_head(q, j, n);
        absorb(a, q, j, run, s);
    }
    memset(s->cbar, 0, (size_t)n * sizeof s->cbar[0]);
    for (int j = 0; j < n; j++)
        last = q[j].positions > last ? q[j].positions : last;
    for (int64_t pos = 0; pos < last; pos += BLOCK) {
        const float *c[BLOCK];
        int count = last - pos < BLOCK ? (int)(last - pos) : BLOCK, seen[QUERIES];
        for (int p = 0; p < count; p++)
            c[p] = cpu_latent(a->cache, a->batch, i, pos + p);
        score_block(s, n, c, count);
        for (int j = 0; j < n; j++) {
            int64_t rest = q[j].positions - pos;
            seen[j] = rest < 0 ? 0 : rest < BLOCK ? (int)rest : BLOCK;
            if (seen[j] > 0)
                weigh_block(&q[j], a->scale, seen[j], s->p[j], s->cbar[j]);
        }
        mix_block(s, n, seen, c);
    }
    for (int j = 0, run; j < n; j += run) {
        run = same_head(q, j, n);
        expand(w, a, q, j, run, s);
    }
}

/* A sequence's queries lie head by head, so that rows which share a head's weights come together. */
static void queries(struct cpu_worker *w, const void *arg)
{
    const struct mla_attend_args *a = arg;
    const struct kern_batch *b = a->batch;
    for (int i = 0; i < b->seqs; i++) {
        int64_t rows = b->begin[i + 1] - b->begin[i], begin, end;
        cpu_share(w, rows * a->heads, 1, &begin, &end);
        for (int64_t item = begin; item < end; item += QUERIES) {
            struct query q[QUERIES];
            int n = end - item < QUERIES ? (int)(end - item) : QUERIES;
            for (int j = 0; j < n; j++) {
                int64_t row = (item + j) % rows, head = (item + j) / rows, t = b->begin[i] + row;
                q[j] = (struct query){.q = cpu_row(a->q, t) + head * K3_QK_DIM,
                                      .o = cpu_row(a->o, t) + head * K3_V_DIM,
                                      .head = head,
                                      .positions = b->pos[i] + row + 1,
                                      .max = -INFINITY};
            }
            attend(w, a, i, q, n);
        }
    }
}

int CPU(mla_attend)(const struct mla_attend_args *a, struct k3_stream *s)
{
    CPU(run)(s, a->q->rows * a->heads, queries, a);
    return 0;
}
