/* gated_norm.c - RMS norm a head, then the output gate (SPEC 4.4 step 7) */
#include <math.h>

#include "kernels/ref/ref.h"

int ref_gated_norm(const struct gated_norm_args *a, struct k3_stream *s)
{
    (void)s;
    for (int64_t t = 0; t < a->o->rows; t++)
        for (int64_t first = 0; first < a->o->cols; first += K3_HEAD_DIM) {
            double sum = 0;
            for (int64_t d = 0; d < K3_HEAD_DIM; d++)
                sum += ref_get(a->o, t, first + d) * ref_get(a->o, t, first + d);
            double r = 1 / sqrt(sum / K3_HEAD_DIM + a->eps);
            for (int64_t d = 0; d < K3_HEAD_DIM; d++)
                ref_put(a->y, t, first + d,
                        ref_get(a->o, t, first + d) * r * ref_get(a->w, 0, d) *
                            ref_sigmoid(ref_get(a->gate, t, first + d)));
        }
    return 0;
}
