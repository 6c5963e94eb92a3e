/* rmsnorm.c - y[t,d] = x[t,d] w[d] / sqrt(mean_d x[t,d]^2 + eps) (SPEC 4.1) */
#include <math.h>

#include "kernels/ref/ref.h"

int ref_rmsnorm(const struct rmsnorm_args *a, struct k3_stream *s)
{
    int64_t n = a->x->cols;
    (void)s;
    for (int64_t t = 0; t < a->x->rows; t++) {
        double sum = 0;
        for (int64_t d = 0; d < n; d++)
            sum += ref_get(a->x, t, d) * ref_get(a->x, t, d);
        double r = 1 / sqrt(sum / (double)n + a->eps);
        for (int64_t d = 0; d < n; d++)
            ref_put(a->y, t, d, ref_get(a->x, t, d) * r * ref_get(a->w, 0, d));
    }
    return 0;
}
