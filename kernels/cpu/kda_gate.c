/* kda_gate.c - log decays and betas of Kimi Delta Attention (SPEC 4.4 steps 4 and 5), fp32 */
#include <math.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/fmath.h"

static void rows(struct cpu_worker *w, const void *arg)
{
    const struct kda_gate_args *a = arg;
    int64_t begin, end, heads = a->b->cols;
    cpu_share(w, a->r->rows, 1, &begin, &end);
    for (int64_t t = begin; t < end; t++) {
        const float *r = cpu_row(a->r, t), *bias = cpu_row(a->dt_bias, 0), *b = cpu_row(a->b, t);
        float *g = cpu_row(a->g, t), *beta = cpu_row(a->beta, t);
        for (int64_t h = 0; h < heads; h++) {
            vec rate = vec_exp(vec_set(cpu_row(a->a_log, 0)[h]));
            for (int64_t c = h * K3_HEAD_DIM; c < (h + 1) * K3_HEAD_DIM; c += LANES)
                vec_store(g + c, vec_set(a->lower_bound) * vec_sigmoid(rate * (vec_load(r + c) + vec_load(bias + c))));
        }
        for (int64_t h = 0; h < heads; h += LANES) {
            int64_t n = heads - h < LANES ? heads - h : LANES;
            vec_store_n(beta + h, vec_sigmoid(vec_load_n(b + h, n)), n);
        }
    }
}

int CPU(kda_gate)(const struct kda_gate_args *a, struct k3_stream *s)
{
    CPU(run)(s, 1 + a->r->rows * a->r->cols / 8192, rows, a);
    return 0;
}
