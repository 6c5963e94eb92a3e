/* rmsnorm.c - y[t,d] = x[t,d] w[d] / sqrt(mean_d x[t,d]^2 + eps) (SPEC 4.1); the sum of squares is fp32 on lanes */
#include "kernels/cpu/norm.h"

static void rows(struct cpu_worker *w, const void *arg)
{
    const struct rmsnorm_args *a = arg;
    int64_t begin, end, n = a->x->cols;
    cpu_share(w, a->x->rows, 1, &begin, &end);
    for (int64_t t = begin; t < end; t++) {
        const float *x = cpu_row(a->x, t);
        float r = norm_factor(x, n, a->eps);
        norm_scale(x, n, r, a->w, cpu_row(a->y, t));
    }
}

int CPU(rmsnorm)(const struct rmsnorm_args *a, struct k3_stream *s)
{
    CPU(run)(s, 1 + a->x->rows * a->x->cols / 16384, rows, a);
    return 0;
}
