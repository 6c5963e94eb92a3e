/* sum.c - parts of a sum, the first one first */
#include "kernels/ref/ref.h"

int ref_sum(const struct sum_args *a, struct k3_stream *s)
{
    (void)s;
    for (int64_t i = 0; i < a->x->cols; i++) {
        double sum = 0;
        for (int64_t p = 0; p < a->x->rows; p++)
            sum += ref_get(a->x, p, i);
        ref_put(a->y, 0, i, sum);
    }
    return 0;
}
