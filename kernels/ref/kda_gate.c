/* kda_gate.c - log decays and betas of Kimi Delta Attention (SPEC 4.4 steps 4 and 5) */
#include <math.h>

#include "kernels/ref/ref.h"

int ref_kda_gate(const struct kda_gate_args *a, struct k3_stream *s)
{
    (void)s;
    for (int64_t t = 0; t < a->r->rows; t++) {
        for (int64_t c = 0; c < a->r->cols; c++) {
            double r = ref_get(a->r, t, c) + ref_get(a->dt_bias, 0, c);
            ref_put(a->g, t, c, a->lower_bound * ref_sigmoid(exp(ref_get(a->a_log, 0, c / K3_HEAD_DIM)) * r));
        }
        for (int64_t h = 0; h < a->b->cols; h++)
            ref_put(a->beta, t, h, ref_sigmoid(ref_get(a->b, t, h)));
    }
    return 0;
}
