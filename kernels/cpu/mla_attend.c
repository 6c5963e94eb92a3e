/* mla_attend.c - attention over the latents, keys and values absorbed (SPEC 6)
 *
 *   qa = UK^T qn;  score_s = scale (qa . c_s + qp . kp_s);  p = softmax(score);  cbar = sum_s p_s c_s;  o = UV cbar
 *
 * A query is one (row, head).  A worker takes up to QUERIES of one sequence at a time through all its positions
 * (attend.h).  Rows that take the expanded form are left to mla_expand.c. */
#include <math.h>

#include "kernels/cpu/attend.h"
#include "kernels/cpu/matmul.h"
#include "kernels/cpu/mla.h"

enum { QUERIES = ATTEND_QUERIES, TILE = 4 };

struct query {
    const float *q; /* 128 nope, 64 pe */
    float *o;
    int64_t head;
};

struct scratch {
    float qa[QUERIES][K3_CACHE_DIM], cbar[QUERIES][K3_LATENT_DIM], p[QUERIES][ATTEND_BLOCK];
};
_Static_assert(sizeof(struct scratch) <= CPU_OWN_FLOATS * sizeof(float), "the queries fit a worker's scratch");

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
    const uint16_t *uk = mla_head_weights(a, q[first].head);
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

/* --- queries ----------------------------------------------------------------------------------------------------- */

/* o = UV cbar for queries [first, first + n), all of one head. */
static void expand(struct cpu_worker *w, const struct mla_attend_args *a, struct query *q, int first, int n,
                   struct scratch *s)
{
    struct k3_tensor uv = *a->kv_b;
    const float *x[QUERIES];
    float *y[QUERIES];
    uv.data = (void *)(mla_head_weights(a, q[first].head) + K3_NOPE_DIM * a->kv_b->stride);
    uv.rows = K3_V_DIM;
    for (int j = 0; j < n; j++) {
        x[j] = s->cbar[first + j];
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

static void attend(struct cpu_worker *w, const struct mla_attend_args *a, int i, struct query *q,
                   const int64_t *positions, int n)
{
    const struct attend_form form = {.key = K3_CACHE_DIM, .value = K3_LATENT_DIM, .scale = a->scale};
    struct scratch *s = (struct scratch *)w->own;
    struct attend_query walk[QUERIES];
    int64_t last = 0;
    for (int j = 0, run; j < n; j += run) {
        run = same_head(q, j, n);
        absorb(a, q, j, run, s);
    }
    memset(s->cbar, 0, (size_t)n * sizeof s->cbar[0]);
    for (int j = 0; j < n; j++) {
        walk[j] = (struct attend_query){s->qa[j], s->cbar[j], positions[j], -INFINITY, 0};
        last = positions[j] > last ? positions[j] : last;
    }
    for (int64_t pos = 0; pos < last; pos += ATTEND_BLOCK) {
        const float *c[ATTEND_BLOCK];
        int count = last - pos < ATTEND_BLOCK ? (int)(last - pos) : ATTEND_BLOCK;
        for (int p = 0; p < count; p++)
            c[p] = cpu_latent(a->cache, a->batch, i, pos + p);
        CPU(attend_block)(&form, walk, n, pos, count, c, s->p);
    }
    CPU(attend_end)(&form, walk, n);
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
        int64_t expanded = kern_expanded_rows(b, i), rows = b->begin[i + 1] - b->begin[i] - expanded, begin, end;
        cpu_share(w, rows * a->heads, 1, &begin, &end);
        for (int64_t item = begin; item < end; item += QUERIES) {
            struct query q[QUERIES];
            int64_t positions[QUERIES];
            int n = end - item < QUERIES ? (int)(end - item) : QUERIES;
            for (int j = 0; j < n; j++) {
                int64_t row = expanded + (item + j) % rows, head = (item + j) / rows, t = b->begin[i] + row;
                q[j] = (struct query){cpu_row(a->q, t) + head * K3_QK_DIM, cpu_row(a->o, t) + head * K3_V_DIM, head};
                positions[j] = b->pos[i] + row + 1;
            }
            attend(w, a, i, q, positions, n);
        }
    }
}

int CPU(mla_attend)(const struct mla_attend_args *a, struct k3_stream *s)
{
    CPU(run)(s, a->q->rows * a->heads, queries, a);
    for (int i = 0; i < a->batch->seqs; i++)
        CPU(mla_attend_expanded)(a, i, s);
    return 0;
}
