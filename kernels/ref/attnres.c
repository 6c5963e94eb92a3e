/* attnres.c - the mixture of the block snapshots and the running residual (SPEC 4.3, "mix") */
#include <math.h>

#include "kernels/ref/ref.h"

static const struct k3_tensor *candidate(const struct attnres_args *a, int i)
{
    return i < a->snapshots ? &a->snapshot[i] : a->p;
}

static double score(const struct attnres_args *a, const struct k3_tensor *v, int64_t t)
{
    double dot = 0, square = 0;
    for (int64_t d = 0; d < v->cols; d++) {
        dot += ref_get(v, t, d) * ref_get(a->norm, 0, d) * ref_get(a->proj, 0, d);
        square += ref_get(v, t, d) * ref_get(v, t, d);
    }
    return dot / sqrt(square / (double)v->cols + a->eps);
}

int ref_attnres(const struct attnres_args *a, struct k3_stream *s)
{
    int m = a->snapshots;
    if (a->branch != NULL)
        ref_add(&(struct add_args){a->branch, a->p}, s);
    for (int64_t t = 0; t < a->p->rows; t++) {
        double w[K3_MAX_SNAPSHOTS + 1] = {1}, max = -INFINITY, sum = 0;
        for (int i = 0; m > 0 && i <= m; i++) {
            w[i] = score(a, candidate(a, i), t);
            max = fmax(max, w[i]);
        }
        for (int i = 0; i <= m; i++)
            sum += w[i] = m > 0 ? exp(w[i] - max) : 1;
        for (int64_t d = 0; d < a->p->cols; d++) {
            double y = 0;
            for (int i = 0; i <= m; i++)
                y += w[i] / sum * ref_get(candidate(a, i), t, d);
            ref_put(a->y, t, d, y);
        }
    }
    return a->out ? ref_rmsnorm(&(struct rmsnorm_args){a->y, a->out, a->y, a->eps}, s) : 0;
}
