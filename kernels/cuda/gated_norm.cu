/* gated_norm.cu - RMS norm a head, then the output gate (SPEC 4.4 step 7)
 *
 * A warp a row and head, four values a lane.  All fp32. */
#include "kernels/cuda/rows.h"

enum { WARPS = 4 };

__global__ static void __launch_bounds__(WARPS * 32)
    norm_heads(struct cuda_rows o, struct cuda_rows gate, const float *w, struct cuda_rows y, int heads, float eps)
{
    int head = (int)blockIdx.x * WARPS + (int)threadIdx.x / 32;
    int64_t n = (int64_t)heads * K3_HEAD_DIM, i = (int64_t)head * K3_HEAD_DIM + threadIdx.x % 32 * 4;

    cuda_wait();
    cuda_next();
    if (head >= heads)
        return;
    float4 v = cuda_load4(o[blockIdx.y], i, n), g = cuda_load4(gate[blockIdx.y], i, n);
    float4 u = cuda_load4(w, i % K3_HEAD_DIM, K3_HEAD_DIM);
    float r = 1.0f / sqrtf(cuda_warp_sum(cuda_dot4(v, v)) / K3_HEAD_DIM + eps);
    cuda_store4(y[blockIdx.y], i, n,
                make_float4(v.x * r * u.x * cuda_sigmoid(g.x), v.y * r * u.y * cuda_sigmoid(g.y),
                            v.z * r * u.z * cuda_sigmoid(g.z), v.w * r * u.w * cuda_sigmoid(g.w)));
}

extern "C" int cuda_gated_norm(const struct gated_norm_args *a, struct k3_stream *s)
{
    int heads = (int)(a->o->cols / K3_HEAD_DIM);

    return cuda_launch(s, "gated_norm", norm_heads, dim3((unsigned)(heads + WARPS - 1) / WARPS, (unsigned)a->o->rows),
                       WARPS * 32, 0, cuda_rows_of(a->o), cuda_rows_of(a->gate), (const float *)a->w->data,
                       cuda_rows_of(a->y), heads, a->eps);
}
