/* linear.c - y[t,o] = sum_i w[o,i] x[t,i] (+ y[t,o]) */
#include "kernels/ref/ref.h"

int ref_linear(const struct linear_args *a, struct k3_stream *s)
{
    (void)s;
    for (int64_t t = 0; t < a->y->rows; t++)
        for (int64_t o = 0; o < a->y->cols; o++) {
            double sum = a->accumulate ? ref_get(a->y, t, o) : 0;
            for (int64_t i = 0; i < a->x->cols; i++)
                sum += ref_get(a->w, o, i) * ref_get(a->x, t, i);
            ref_put(a->y, t, o, sum);
        }
    return 0;
}
