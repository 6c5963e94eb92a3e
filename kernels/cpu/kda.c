/* kda.c - the gated delta rule: one token after the other here, in chunks in kda_chunks.c (SPEC 4.4 step 3, 5.1)
 *
 *   S <- diag(e^g) S;  e = beta (v - S^T k);  S <- S + k e^T;  o = S^T q
 *
 * The state lies transposed, [v][k], so both products are dots along its rows, of which ROWS go together; all fp32.
 * Work is shared by (sequence, head).  CHUNK tokens are prepared together and then meet TILE rows of the state at a
 * time, which stay in the first-level cache; neither changes the order of a sum. */
#include "kernels/cpu/fmath.h"
#include "kernels/cpu/kda.h"

enum { CHUNK = 16, TILE = 32, ROWS = 4 };

struct prepared {
    float q[D], k[D], decay[D], decayed_k[D];
};
_Static_assert(CHUNK * sizeof(struct prepared) <= CPU_OWN_FLOATS * sizeof(float), "a chunk fits a worker's scratch");

static void prepare(const struct kda_args *a, int64_t t, int64_t first, struct prepared *p)
{
    const float *q = cpu_row(a->q, t) + first, *k = cpu_row(a->k, t) + first, *g = cpu_row(a->g, t) + first;
    vec q_scale = vec_set(kda_q_scale(q)), k_scale = vec_set(kda_k_scale(k));
    for (int d = 0; d < D; d += LANES) {
        vec decay = vec_exp(vec_load(g + d)), kd = vec_load(k + d) * k_scale;
        vec_store(p->q + d, vec_load(q + d) * q_scale);
        vec_store(p->k + d, kd);
        vec_store(p->decay + d, decay);
        vec_store(p->decayed_k + d, decay * kd);
    }
}

/* One token against ROWS rows of the state: moves them on and yields their o. */
static void step_rows(const struct prepared *p, const float *v, float beta, float *row, float *o)
{
    vec acc[ROWS] = {vec_set(0), vec_set(0), vec_set(0), vec_set(0)}, e[ROWS];
    float dot[ROWS];
    for (int d = 0; d < D; d += LANES) {
        vec k = vec_load(p->decayed_k + d);
        UNROLL
        for (int r = 0; r < ROWS; r++)
            acc[r] = vec_fma(vec_load(row + r * D + d), k, acc[r]);
    }
    vec_sum4(acc, dot);
    UNROLL
    for (int r = 0; r < ROWS; r++) {
        e[r] = vec_set(beta * (v[r] - dot[r]));
        acc[r] = vec_set(0);
    }
    for (int d = 0; d < D; d += LANES) {
        vec k = vec_load(p->k + d), decay = vec_load(p->decay + d), q = vec_load(p->q + d);
        UNROLL
        for (int r = 0; r < ROWS; r++) {
            vec next = vec_fma(k, e[r], vec_load(row + r * D + d) * decay);
            vec_store(row + r * D + d, next);
            acc[r] = vec_fma(next, q, acc[r]);
        }
    }
    vec_sum4(acc, o);
}

static void one_by_one(struct cpu_worker *w, const struct kda_args *a, int i, int h, float *state)
{
    struct prepared *p = (struct prepared *)w->own;
    const struct kern_batch *b = a->batch;
    int64_t first = (int64_t)h * D;
    for (int64_t t0 = b->begin[i]; t0 < b->begin[i + 1]; t0 += CHUNK) {
        int n = b->begin[i + 1] - t0 < CHUNK ? (int)(b->begin[i + 1] - t0) : CHUNK;
        for (int j = 0; j < n; j++)
            prepare(a, t0 + j, first, &p[j]);
        for (int tile = 0; tile < D; tile += TILE)
            for (int j = 0; j < n; j++) {
                const float *v = cpu_row(a->v, t0 + j) + first;
                float beta = cpu_row(a->beta, t0 + j)[h], *o = cpu_row(a->o, t0 + j) + first;
                for (int r = tile; r < tile + TILE; r += ROWS)
                    step_rows(&p[j], v + r, beta, state + r * D, o + r);
            }
    }
}

static void head(struct cpu_worker *w, const struct kda_args *a, int i, int h)
{
    const struct kern_batch *b = a->batch;
    float *state = (float *)a->state + ((int64_t)b->slot[i] * a->heads + h) * D * D;
    if (b->begin[i] == b->begin[i + 1])
        return;
    if (b->pos[i] == 0)
        memset(state, 0, D * D * sizeof *state);
    if (b->prefill != NULL && b->prefill[i] != 0)
        CPU(kda_chunks)(w, a, i, h, state);
    else
        one_by_one(w, a, i, h, state);
}

static void heads(struct cpu_worker *w, const void *arg)
{
    const struct kda_args *a = arg;
    int64_t begin, end;
    cpu_share(w, (int64_t)a->batch->seqs * a->heads, 1, &begin, &end);
    for (int64_t item = begin; item < end; item++)
        head(w, a, (int)(item / a->heads), (int)(item % a->heads));
}

int CPU(kda)(const struct kda_args *a, struct k3_stream *s)
{
    CPU(run)(s, (int64_t)a->batch->seqs * a->heads, heads, a);
    return 0;
}
