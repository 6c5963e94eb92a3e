/* situ.cu - y = SiTU(gate, up)
 *
 * One block a row and 1,024 columns; y may be gate. */
#include "kernels/cuda/situ.h"

enum { THREADS = 256, SPAN = 1024 };

static __global__ void situ(const float *gate, int64_t gate_stride, const float *up, int64_t up_stride, float *y,
                            int64_t y_stride, int64_t cols, float beta, float linear_beta)
{
    int64_t t = blockIdx.x, begin = (int64_t)blockIdx.y * SPAN, end = min(begin + SPAN, cols);

    cuda_next();
    cuda_wait();
    for (int64_t d = begin + threadIdx.x; d < end; d += THREADS)
        y[t * y_stride + d] = cuda_situ_of(gate[t * gate_stride + d], up[t * up_stride + d], beta, linear_beta);
}

extern "C" int cuda_situ(const struct situ_args *a, struct k3_stream *s)
{
    dim3 grid((unsigned)a->y->rows, (unsigned)((a->y->cols + SPAN - 1) / SPAN));

    return cuda_launch(s, "situ", situ, grid, THREADS, 0, a->gate->data, a->gate->stride, a->up->data, a->up->stride,
                       a->y->data, a->y->stride, a->y->cols, a->beta, a->linear_beta);
}
