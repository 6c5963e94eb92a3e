/* attnres.cu - the mixture of the block snapshots and the running residual (SPEC 4.3, "mix"), and the norm behind it
 *
 * A block a row.  All fp32. */
#include "kernels/cuda/rows.h"

enum { THREADS = 512, WARPS = THREADS / 32, MOST = K3_MAX_SNAPSHOTS + 1 };

struct candidates {
    struct cuda_rows v[MOST];
    int count;
};

__global__ static void __launch_bounds__(THREADS)
    mix_rows(const __grid_constant__ struct candidates c, struct cuda_vector norm, struct cuda_vector proj,
             struct cuda_rows y, struct cuda_vector out, int64_t n, float eps)
{
    __shared__ float room[WARPS], weight[MOST];
    int64_t t = blockIdx.x;
    float sum = 0;

    cuda_wait();
    cuda_next();
    for (int i = 0; c.count > 1 && i < c.count; i++) {
        float dot = 0, square = 0;
        for (int64_t d = threadIdx.x * 4; d < n; d += THREADS * 4) {
            float4 v = cuda_load4(c.v[i][t], d, n), a = cuda_load4(norm, d, n), b = cuda_load4(proj, d, n);
            dot += cuda_dot4(v, make_float4(a.x * b.x, a.y * b.y, a.z * b.z, a.w * b.w));
            square += cuda_dot4(v, v);
        }
        dot = cuda_block_sum(dot, room);
        square = cuda_block_sum(square, room);
        if (threadIdx.x == 0)
            weight[i] = dot / sqrtf(square / (float)n + eps);
    }
    __syncthreads();
    float max = -INFINITY, all = 0;
    for (int i = 0; c.count > 1 && i < c.count; i++)
        max = fmaxf(max, weight[i]);
    for (int i = 0; c.count > 1 && i < c.count; i++)
        all += expf(weight[i] - max);
    for (int64_t d = threadIdx.x * 4; d < n; d += THREADS * 4) {
        float4 mix = cuda_load4(c.v[0][t], d, n);
        if (c.count > 1)
            mix = make_float4(0, 0, 0, 0);
        for (int i = 0; c.count > 1 && i < c.count; i++) {
            float4 v = cuda_load4(c.v[i][t], d, n);
            float a = expf(weight[i] - max) / all;
            mix = make_float4(mix.x + a * v.x, mix.y + a * v.y, mix.z + a * v.z, mix.w + a * v.w);
        }
        sum += cuda_dot4(mix, mix);
        cuda_store4(y[t], d, n, mix);
    }
    if (!out.data)
        return;
    float r = 1.0f / sqrtf(cuda_block_sum(sum, room) / (float)n + eps);
    for (int64_t d = threadIdx.x * 4; d < n; d += THREADS * 4) {
        float4 v = cuda_load4(y[t], d, n), u = cuda_load4(out, d, n);
        cuda_store4(y[t], d, n, make_float4(v.x * r * u.x, v.y * r * u.y, v.z * r * u.z, v.w * r * u.w));
    }
}

extern "C" int cuda_attnres(const struct attnres_args *a, struct k3_stream *s)
{
    struct candidates c = {};
    struct cuda_vector none = {};

    for (int i = 0; i <= a->snapshots; i++)
        c.v[i] = cuda_rows_of(i < a->snapshots ? &a->snapshot[i] : a->p);
    c.count = a->snapshots + 1;
    return cuda_launch(s, "attnres", mix_rows, (unsigned)a->p->rows, THREADS, 0, c,
                       a->snapshots > 0 ? cuda_vector_of(a->norm) : none,
                       a->snapshots > 0 ? cuda_vector_of(a->proj) : none, cuda_rows_of(a->y),
                       a->out ? cuda_vector_of(a->out) : none, a->p->cols, a->eps);
}
