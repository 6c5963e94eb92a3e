/* gated_norm.c - RMS norm a head, then the output gate (SPEC 4.4 step 7), fp32 */
#include "kernels/cpu/fmath.h"
#include "kernels/cpu/norm.h"

static void rows(struct cpu_worker *worker, const void *arg)
{
    const struct gated_norm_args *a = arg;
    int64_t begin, end;
    const float *w = cpu_row(a->w, 0);
    cpu_share(worker, a->o->rows, 1, &begin, &end);
    for (int64_t t = begin; t < end; t++)
        for (int64_t first = 0; first < a->o->cols; first += K3_HEAD_DIM) {
            const float *o = cpu_row(a->o, t) + first, *gate = cpu_row(a->gate, t) + first;
            float *y = cpu_row(a->y, t) + first;
            vec r = vec_set(norm_factor(o, K3_HEAD_DIM, a->eps));
            for (int d = 0; d < K3_HEAD_DIM; d += LANES)
                vec_store(y + d, vec_load(o + d) * r * vec_load(w + d) * vec_sigmoid(vec_load(gate + d)));
        }
}

int CPU(gated_norm)(const struct gated_norm_args *a, struct k3_stream *s)
{
    CPU(run)(s, 1 + a->o->rows * a->o->cols / 8192, rows, a);
    return 0;
}
