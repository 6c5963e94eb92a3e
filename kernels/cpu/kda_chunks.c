/* kda_chunks.c - the gated delta rule, ROWS tokens at a time (SPEC 5.3)
 *
 *   G_i = g_0 + ... + g_i
 *   A_ij = (k_i e^G_i) . (k_j e^-G_j), i > j;   P_ij = (q_i e^G_i) . (k_j e^-G_j), i >= j
 *   e_i = beta_i (v_i - S^T (k_i e^G_i) - sum_j<i A_ij e_j)          forward substitution
 *   o_i = S^T (q_i e^G_i) + sum_j<=i P_ij e_j
 *   S <- diag(e^G_last) S + sum_i (k_i e^(G_last - G_i)) e_i^T
 *
 * e is what SPEC calls corrected values, U - W S: both of its solves have the same left side, so that here one is
 * enough.  A chunk is as long as a sub-block there, and its reference is the state before it: with g >= -5 no factor
 * exceeds e^80, which fp32 holds.  A longer chunk would save nothing here, since each pair of tokens costs as much as
 * what it saves with the state.
 *
 * Chunks are counted from a step's first row, which lies at a multiple of K3_PREFILL_BLOCK, a multiple of ROWS: how a
 * prompt was cut leaves no trace.  All fp32; the state lies transposed, [v][k]; TILE of its rows stay in the
 * first-level cache. */
#include "kernels/cpu/fmath.h"
#include "kernels/cpu/kda.h"
#include "kernels/cpu/matmul.h"

enum { ROWS = 16, TILE = 64, V_ROWS = 4, K_VECS = LANES / 4 };
_Static_assert(K3_PREFILL_BLOCK % ROWS == 0, "a step begins with a chunk");

struct chunk {
    float k[ROWS][D], q[ROWS][D]; /* times e^G: how the state before the chunk is seen */
    float back[ROWS][D];          /* k e^-G */
    float kept[ROWS][D];          /* k e^(G_last - G): how the state after the chunk is changed */
    float decay[D];               /* e^G_last */
    float beta[ROWS], A[ROWS][ROWS], P[ROWS][ROWS];
    float e[ROWS][TILE], o[ROWS][TILE];
};
_Static_assert(sizeof(struct chunk) <= CPU_OWN_FLOATS * sizeof(float), "a chunk fits a worker's scratch");

/* y[i][j] = x[i] . w[j] for i < n, j < m */
static void products(int n, float x[][D], int m, const float *w, float *y, int64_t stride)
{
    for (int j = 0; j < m; j += DOT_OUTS) {
        int outs = m - j < DOT_OUTS ? m - j : DOT_OUTS;
        const float *wj[DOT_OUTS];
        for (int o = 0; o < outs; o++)
            wj[o] = w + (j + o) * D;
        for (int i = 0; i < n; i += DOT_ROWS) {
            const float *xi[DOT_ROWS] = {x[i], x[i + 1], x[i + 2], x[i + 3]};
            CPU(dot)(n - i < DOT_ROWS ? n - i : DOT_ROWS, outs, D, xi, wj, y + i * stride + j, stride);
        }
    }
}
_Static_assert(DOT_ROWS == 4 && ROWS % DOT_ROWS == 0, "rows of x go four at a time");

/* The part that knows nothing of the state: n tokens from row t0 on. */
static void prepare(const struct kda_args *a, int64_t t0, int n, int h, struct chunk *c)
{
    int64_t first = (int64_t)h * D;
    float q_scale[ROWS], k_scale[ROWS];
    for (int i = 0; i < n; i++) {
        q_scale[i] = kda_q_scale(cpu_row(a->q, t0 + i) + first);
        k_scale[i] = kda_k_scale(cpu_row(a->k, t0 + i) + first);
        c->beta[i] = cpu_row(a->beta, t0 + i)[h];
    }
    for (int d = 0; d < D; d += LANES) {
        vec G = vec_set(0), decay = vec_set(1);
        for (int i = 0; i < n; i++) {
            vec q = vec_load(cpu_row(a->q, t0 + i) + first + d) * vec_set(q_scale[i]);
            vec k = vec_load(cpu_row(a->k, t0 + i) + first + d) * vec_set(k_scale[i]);
            G += vec_load(cpu_row(a->g, t0 + i) + first + d);
            decay = vec_exp(G);
            vec_store(c->q[i] + d, q * decay);
            vec_store(c->k[i] + d, k * decay);
            vec_store(c->back[i] + d, k * vec_exp(-G));
        }
        vec_store(c->decay + d, decay);
        for (int i = 0; i < n; i++)
            vec_store(c->kept[i] + d, vec_load(c->back[i] + d) * decay);
    }
    for (int i = 0; i < n; i += DOT_ROWS) { /* what lies above the diagonal is not read */
        int rows = n - i < DOT_ROWS ? n - i : DOT_ROWS;
        products(rows, c->k + i, i + rows, c->back[0], c->A[i], ROWS);
        products(rows, c->q + i, i + rows, c->back[0], c->P[i], ROWS);
    }
}

/* y += sum_j<count factor[j] e[j] */
static void add_earlier(const struct chunk *c, int count, const float *factor, int col, vec y[2])
{
    for (int j = 0; j < count; j++) {
        y[0] = vec_fma(vec_set(factor[j]), vec_load(c->e[j] + col), y[0]);
        y[1] = vec_fma(vec_set(factor[j]), vec_load(c->e[j] + col + LANES), y[1]);
    }
}

/* The products with the state lie in e and o; v and o of the rows begin at their tile. */
static void solve(const struct kda_args *a, int64_t t0, int n, int64_t first, struct chunk *c)
{
    for (int i = 0; i < n; i++) {
        const float *v = cpu_row(a->v, t0 + i) + first;
        float *o = cpu_row(a->o, t0 + i) + first;
        for (int col = 0; col < TILE; col += 2 * LANES) {
            vec sum[2] = {vec_load(c->e[i] + col), vec_load(c->e[i] + col + LANES)}, beta = vec_set(c->beta[i]);
            add_earlier(c, i, c->A[i], col, sum);
            vec_store(c->e[i] + col, beta * (vec_load(v + col) - sum[0]));
            vec_store(c->e[i] + col + LANES, beta * (vec_load(v + col + LANES) - sum[1]));
            sum[0] = vec_load(c->o[i] + col), sum[1] = vec_load(c->o[i] + col + LANES);
            add_earlier(c, i + 1, c->P[i], col, sum);
            vec_store(o + col, sum[0]);
            vec_store(o + col + LANES, sum[1]);
        }
    }
}

/* V_ROWS rows of the state, the first of them number v of the tile, and K_VECS vectors of their columns. */
SIMD_INLINE void move_on(const struct chunk *c, int n, int v, int d, float *state)
{
    vec s[V_ROWS][K_VECS];
    UNROLL
    for (int r = 0; r < V_ROWS; r++) {
        UNROLL
        for (int j = 0; j < K_VECS; j++)
            s[r][j] = vec_load(state + r * D + d + j * LANES) * vec_load(c->decay + d + j * LANES);
    }
    for (int i = 0; i < n; i++) {
        vec k[K_VECS];
        UNROLL
        for (int j = 0; j < K_VECS; j++)
            k[j] = vec_load(c->kept[i] + d + j * LANES);
        UNROLL
        for (int r = 0; r < V_ROWS; r++) {
            vec e = vec_set(c->e[i][v + r]);
            UNROLL
            for (int j = 0; j < K_VECS; j++)
                s[r][j] = vec_fma(k[j], e, s[r][j]);
        }
    }
    UNROLL
    for (int r = 0; r < V_ROWS; r++) {
        UNROLL
        for (int j = 0; j < K_VECS; j++)
            vec_store(state + r * D + d + j * LANES, s[r][j]);
    }
}

void CPU(kda_chunks)(struct cpu_worker *w, const struct kda_args *a, int i, int h, float *state)
{
    struct chunk *c = (struct chunk *)w->own;
    int64_t end = a->batch->begin[i + 1];
    for (int64_t t0 = a->batch->begin[i]; t0 < end; t0 += ROWS) {
        int n = end - t0 < ROWS ? (int)(end - t0) : ROWS;
        prepare(a, t0, n, h, c);
        for (int tile = 0; tile < D; tile += TILE) {
            float *s = state + tile * D;
            products(n, c->k, TILE, s, c->e[0], TILE);
            products(n, c->q, TILE, s, c->o[0], TILE);
            solve(a, t0, n, (int64_t)h * D + tile, c);
            for (int v = 0; v < TILE; v += V_ROWS)
                for (int d = 0; d < D; d += K_VECS * LANES)
                    move_on(c, n, v, d, s + v * D);
        }
    }
}
