/* sum.cu - parts of a sum, the first one first */
#include "kernels/cuda/cuda.h"

__global__ static void sum(const float *x, int64_t stride, int64_t parts, float *y, int64_t n)
{
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;

    cuda_wait();
    cuda_next();
    if (i >= n)
        return;
    float total = x[i];
    for (int64_t p = 1; p < parts; p++)
        total += x[p * stride + i];
    y[i] = total;
}

extern "C" int cuda_sum(const struct sum_args *a, struct k3_stream *s)
{
    int64_t n = a->x->cols;

    return cuda_launch(s, "sum", sum, dim3((unsigned)((n + 255) / 256)), dim3(256), 0, (const float *)a->x->data,
                       a->x->stride, a->x->rows, (float *)a->y->data, n);
}
