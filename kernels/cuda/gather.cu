/* gather.cu - y[i] = x[row[i]]
 *
 * One block a row and 1,024 columns. */
#include "kernels/cuda/cuda.h"

enum { THREADS = 256, SPAN = 1024 };

static __global__ void gather(const float *x, int64_t x_stride, const int32_t *row, float *y, int64_t cols,
                              int64_t y_stride)
{
    int64_t i = blockIdx.x, begin = (int64_t)blockIdx.y * SPAN, end = min(begin + SPAN, cols);

    cuda_next();
    cuda_wait();
    x += row[i] * x_stride;
    for (int64_t d = begin + threadIdx.x; d < end; d += THREADS)
        y[i * y_stride + d] = x[d];
}

extern "C" int cuda_gather(const struct gather_args *a, struct k3_stream *s)
{
    dim3 grid((unsigned)a->y->rows, (unsigned)((a->y->cols + SPAN - 1) / SPAN));

    return cuda_launch(s, "gather", gather, grid, THREADS, 0, a->x->data, a->x->stride, a->row, a->y->data, a->y->cols,
                       a->y->stride);
}
