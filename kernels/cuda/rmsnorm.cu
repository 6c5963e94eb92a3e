/* rmsnorm.cu - y[t,d] = x[t,d] w[d] / sqrt(mean_d x[t,d]^2 + eps) (SPEC 4.1)
 *
 * A block a row, which is read once as far as it fits the registers.  All fp32. */
#include "kernels/cuda/rows.h"

enum { THREADS = 512, KEPT = 4 };

__global__ static void __launch_bounds__(THREADS)
    norm_rows(struct cuda_rows x, struct cuda_vector w, struct cuda_rows y, int64_t n, float eps)
{
    __shared__ float room[THREADS / 32];
    const float *from = x[blockIdx.x];
    float *to = y[blockIdx.x];
    int64_t first = threadIdx.x * 4, step = blockDim.x * 4;
    float4 kept[KEPT];
    float sum = 0;

    cuda_wait();
    cuda_next();
#pragma unroll
    for (int j = 0; j < KEPT; j++) {
        kept[j] = cuda_load4(from, first + j * step, n);
        sum += cuda_dot4(kept[j], kept[j]);
    }
    for (int64_t i = first + KEPT * step; i < n; i += step) {
        float4 v = cuda_load4(from, i, n);
        sum += cuda_dot4(v, v);
    }
    float r = 1.0f / sqrtf(cuda_block_sum(sum, room) / (float)n + eps);
#pragma unroll
    for (int j = 0; j < KEPT; j++) {
        int64_t i = first + j * step;
        float4 v = kept[j], u = cuda_load4(w, i, n);
        cuda_store4(to, i, n, make_float4(v.x * r * u.x, v.y * r * u.y, v.z * r * u.z, v.w * r * u.w));
    }
    for (int64_t i = first + KEPT * step; i < n; i += step) {
        float4 v = cuda_load4(from, i, n), u = cuda_load4(w, i, n);
        cuda_store4(to, i, n, make_float4(v.x * r * u.x, v.y * r * u.y, v.z * r * u.z, v.w * r * u.w));
    }
}

extern "C" int cuda_rmsnorm(const struct rmsnorm_args *a, struct k3_stream *s)
{
    int64_t n = a->x->cols, quads = (n + 3) / 4;
    int threads = quads < THREADS ? (int)(quads + 31) / 32 * 32 : THREADS;

    if (n == 0)
        return 0;
    return cuda_launch(s, "rmsnorm", norm_rows, (unsigned)a->x->rows, threads, 0, cuda_rows_of(a->x),
                       cuda_vector_of(a->w), cuda_rows_of(a->y), n, a->eps);
}
