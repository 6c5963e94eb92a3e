/* sigmoid_gate.cu - y = o * sigmoid(gate)
 *
 * One block a row and 1,024 columns; y may be o. */
#include "kernels/cuda/cuda.h"

enum { THREADS = 256, SPAN = 1024 };

static __global__ void sigmoid_gate(const float *o, int64_t o_stride, const float *gate, int64_t gate_stride, float *y,
                                    int64_t y_stride, int64_t cols)
{
    int64_t t = blockIdx.x, begin = (int64_t)blockIdx.y * SPAN, end = min(begin + SPAN, cols);

    cuda_next();
    cuda_wait();
    for (int64_t d = begin + threadIdx.x; d < end; d += THREADS)
        y[t * y_stride + d] = o[t * o_stride + d] * cuda_sigmoid(gate[t * gate_stride + d]);
}

extern "C" int cuda_sigmoid_gate(const struct sigmoid_gate_args *a, struct k3_stream *s)
{
    dim3 grid((unsigned)a->y->rows, (unsigned)((a->y->cols + SPAN - 1) / SPAN));

    return cuda_launch(s, "sigmoid_gate", sigmoid_gate, grid, THREADS, 0, a->o->data, a->o->stride, a->gate->data,
                       a->gate->stride, a->y->data, a->y->stride, a->y->cols);
}
