/* add.c - y += x */
#include "kernels/cpu/cpu.h"

int CPU(add)(const struct add_args *a, struct k3_stream *s)
{
    (void)s;
    for (int64_t t = 0; t < a->y->rows; t++) {
        const float *x = cpu_row(a->x, t);
        float *y = cpu_row(a->y, t);
        for (int64_t d = 0; d < a->y->cols; d++)
            y[d] += x[d];
    }
    return 0;
}
