/* embed.cu - y[t] = table[token[t] - first], zeros outside the shard
 *
 * One block a row and 1,024 columns. */
#include "kernels/cuda/cuda.h"

enum { THREADS = 256, SPAN = 1024 };

static __global__ void embed(const int32_t *token, const __nv_bfloat16 *table, int64_t rows, int64_t stride,
                             int32_t first, float *y, int64_t cols, int64_t y_stride)
{
    int64_t t = blockIdx.x, begin = (int64_t)blockIdx.y * SPAN, end = min(begin + SPAN, cols);

    cuda_next();
    cuda_wait();
    int64_t row = (int64_t)token[t] - first;
    bool here = row >= 0 && row < rows;
    for (int64_t d = begin + threadIdx.x; d < end; d += THREADS)
        y[t * y_stride + d] = here ? __bfloat162float(table[row * stride + d]) : 0;
}

extern "C" int cuda_embed(const struct embed_args *a, struct k3_stream *s)
{
    dim3 grid((unsigned)a->y->rows, (unsigned)((a->y->cols + SPAN - 1) / SPAN));

    return cuda_launch(s, "embed", embed, grid, THREADS, 0, a->token, a->table->data, a->table->rows, a->table->stride,
                       a->first, a->y->data, a->y->cols, a->y->stride);
}
