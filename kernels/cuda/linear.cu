/* linear.cu - y[t,o] = sum_i w[o,i] x[t,i] (+ y[t,o])
 *
 * One warp an output column and 8 rows: lane l adds up columns l, l + 32, ...; the lanes' sums are added in a tree. */
#include "kernels/cuda/matrix.h"

enum { WARPS = 8, ROWS = 8 };

static __global__ void linear(const float *x, int64_t x_stride, int64_t rows, struct cuda_matrix w, float *y,
                              int64_t y_stride, int accumulate)
{
    int64_t o = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32, t0 = (int64_t)blockIdx.y * ROWS;
    float sum[ROWS] = {};

    cuda_next();
    cuda_wait();
    if (o >= w.rows)
        return;
    for (int64_t i = threadIdx.x % 32; i < w.cols; i += 32) {
        float v = w.at(o, i);
        for (int r = 0; r < ROWS && t0 + r < rows; r++)
            sum[r] += v * x[(t0 + r) * x_stride + i];
    }
    for (int r = 0; r < ROWS && t0 + r < rows; r++) {
        float total = cuda_warp_sum(sum[r]), *to = y + (t0 + r) * y_stride + o;
        if (threadIdx.x % 32 == 0)
            *to = accumulate ? *to + total : total;
    }
}

extern "C" int cuda_linear(const struct linear_args *a, struct k3_stream *s)
{
    dim3 grid((unsigned)((a->w->rows + WARPS - 1) / WARPS), (unsigned)((a->x->rows + ROWS - 1) / ROWS));

    return cuda_launch(s, "linear", linear, grid, WARPS * 32, 0, a->x->data, a->x->stride, a->x->rows,
                       cuda_matrix_of(a->w), a->y->data, a->y->stride, a->accumulate);
}

extern "C" int cuda_linears(const struct linears_args *a, struct k3_stream *s)
{
    for (int i = 0; i < a->count; i++)
        if (cuda_linear(&a->product[i], s) < 0)
            return -1;
    return 0;
}
