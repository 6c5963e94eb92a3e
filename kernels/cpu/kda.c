/* kda.c - the gated delta rule, one token after the other (SPEC 4.4 step 3, 5.1)
 *
 *   S <- diag(e^g) S;  e = beta (v - S^T k);  S <- S + k e^T;  o = S^T q
 *
 * The state lies transposed, [v][k], so both products are dots along its rows; all fp32.  Work is shared by (sequence,
 * head).  CHUNK tokens are prepared together and then meet TILE rows of the state at a time, which stay in the
 * first-level cache; neither changes the order of a sum. */
#include <math.h>

#include "kernels/cpu/fmath.h"
#include "kernels/cpu/norm.h"

enum { D = K3_HEAD_DIM, CHUNK = 64, TILE = 32 };

struct prepared {
    float q[D], k[D], decay[D], decayed_k[D];
};
_Static_assert(CHUNK * sizeof(struct prepared) <= CPU_OWN_FLOATS * sizeof(float), "a chunk fits a worker's scratch");

static void prepare(const struct kda_args *a, int64_t t, int64_t first, struct prepared *p)
{
    const float *q = cpu_row(a->q, t) + first, *k = cpu_row(a->k, t) + first, *g = cpu_row(a->g, t) + first;
    v8 q_scale = v8_set(0.08838834764831845f / sqrtf(norm_dot(q, q, D) + 1e-6f)); /* 128^-1/2 */
    v8 k_scale = v8_set(1 / sqrtf(norm_dot(k, k, D) + 1e-6f));
    for (int d = 0; d < D; d += LANES) {
        v8 decay = v8_exp(v8_load(g + d)), kd = v8_load(k + d) * k_scale;
        v8_store(p->q + d, v8_load(q + d) * q_scale);
        v8_store(p->k + d, kd);
        v8_store(p->decay + d, decay);
        v8_store(p->decayed_k + d, decay * kd);
    }
}

/* One token against one row of the state: moves the row on and yields o of that row. */
static float step_row(const struct prepared *p, float v, float beta, float *row)
{
    float e = beta * (v - norm_dot(row, p->decayed_k, D));
    v8 acc[2] = {v8_set(0), v8_set(0)};
    for (int d = 0; d < D; d += 2 * LANES) {
        UNROLL
        for (int j = 0; j < 2; j++) {
            int at = d + j * LANES;
            v8 next = v8_fma(v8_load(p->k + at), v8_set(e), v8_load(row + at) * v8_load(p->decay + at));
            v8_store(row + at, next);
            acc[j] = v8_fma(next, v8_load(p->q + at), acc[j]);
        }
    }
    return v8_sum(acc[0] + acc[1]);
}

static void head(const struct kda_args *a, int i, int h, struct prepared *p)
{
    const struct kern_batch *b = a->batch;
    float *state = (float *)a->state + ((int64_t)b->slot[i] * a->heads + h) * D * D;
    int64_t first = (int64_t)h * D;
    if (b->pos[i] == 0)
        memset(state, 0, D * D * sizeof *state);
    for (int64_t t0 = b->begin[i]; t0 < b->begin[i + 1]; t0 += CHUNK) {
        int n = b->begin[i + 1] - t0 < CHUNK ? (int)(b->begin[i + 1] - t0) : CHUNK;
        for (int j = 0; j < n; j++)
            prepare(a, t0 + j, first, &p[j]);
        for (int tile = 0; tile < D; tile += TILE)
            for (int j = 0; j < n; j++) {
                const float *v = cpu_row(a->v, t0 + j) + first;
                float beta = cpu_row(a->beta, t0 + j)[h], *o = cpu_row(a->o, t0 + j) + first;
                for (int r = tile; r < tile + TILE; r++)
                    o[r] = step_row(&p[j], v[r], beta, state + r * D);
            }
    }
}

static void heads(struct cpu_worker *w, const void *arg)
{
    const struct kda_args *a = arg;
    int64_t begin, end;
    cpu_share(w, (int64_t)a->batch->seqs * a->heads, 1, &begin, &end);
    for (int64_t item = begin; item < end; item++) {
        int i = (int)(item / a->heads);
        if (a->batch->begin[i] < a->batch->begin[i + 1])
            head(a, i, (int)(item % a->heads), (struct prepared *)w->own);
    }
}

int CPU(kda)(const struct kda_args *a, struct k3_stream *s)
{
    CPU(run)(s, (int64_t)a->batch->seqs * a->heads, heads, a);
    return 0;
}
