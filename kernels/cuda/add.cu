/* add.cu - y += x
 *
 * One block a row and 1,024 columns. */
#include "kernels/cuda/cuda.h"

enum { THREADS = 256, SPAN = 1024 };

static __global__ void add(const float *x, int64_t x_stride, float *y, int64_t y_stride, int64_t cols)
{
    int64_t t = blockIdx.x, begin = (int64_t)blockIdx.y * SPAN, end = min(begin + SPAN, cols);

    cuda_next();
    cuda_wait();
    for (int64_t d = begin + threadIdx.x; d < end; d += THREADS)
        y[t * y_stride + d] += x[t * x_stride + d];
}

extern "C" int cuda_add(const struct add_args *a, struct k3_stream *s)
{
    dim3 grid((unsigned)a->y->rows, (unsigned)((a->y->cols + SPAN - 1) / SPAN));

    return cuda_launch(s, "add", add, grid, THREADS, 0, a->x->data, a->x->stride, a->y->data, a->y->stride, a->y->cols);
}
