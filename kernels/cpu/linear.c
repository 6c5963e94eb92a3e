/* linear.c - y[t,o] = sum_i w[o,i] x[t,i] (+ y[t,o]); every worker makes a range of o.  fp32, in matmul.h's order */
#include "kernels/cpu/matmul.h"

static void outputs(struct cpu_worker *w, const void *arg)
{
    const struct linear_args *a = arg;
    int64_t o0, o1;
    cpu_share(w, a->w->rows, 16, &o0, &o1);
    for (int64_t t = 0; t < a->x->rows && o0 < o1; t += CPU_TILE_ROWS) {
        const float *x[CPU_TILE_ROWS];
        float *y[CPU_TILE_ROWS];
        int n = a->x->rows - t < CPU_TILE_ROWS ? (int)(a->x->rows - t) : CPU_TILE_ROWS;
        for (int i = 0; i < n; i++) {
            x[i] = cpu_row(a->x, t + i);
            y[i] = cpu_row(a->y, t + i);
            if (!a->accumulate)
                memset(y[i] + o0, 0, (size_t)(o1 - o0) * sizeof(float));
        }
        CPU(matmul)(w, n, x, a->w, o0, o1, y, NULL);
    }
}

int CPU(linear)(const struct linear_args *a, struct k3_stream *s)
{
    CPU(run)(s, 1 + a->x->rows * a->w->rows * a->w->cols / 16384, outputs, a);
    return 0;
}
