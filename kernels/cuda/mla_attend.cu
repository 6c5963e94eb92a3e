/* mla_attend.cu - attention over the latents, keys and values absorbed (SPEC 6)
 *
 *   qa = UK^T qn;  score_s = scale (qa . c_s + qp . kp_s);  p = softmax(score);  cbar = sum_s p_s c_s;  o = UV cbar
 *
 * A block a row and head, TILE positions at a time.  All fp32 but the cache and the weights. */
#include "kernels/cuda/rows.h"

enum { THREADS = 256, WARPS = THREADS / 32, TILE = 32, HEAD_ROWS = K3_NOPE_DIM + K3_V_DIM };

__global__ static void __launch_bounds__(THREADS)
    attend(struct cuda_rows q, const __nv_bfloat16 *kv_b, int64_t stride, struct cuda_rows o,
           const __nv_bfloat16 *cache, int page_tokens, struct kern_batch b, float scale)
{
    __shared__ float qa[K3_CACHE_DIM], p[TILE], cbar[K3_LATENT_DIM], qn[K3_NOPE_DIM];
    __shared__ const __nv_bfloat16 *latent[TILE];
    __shared__ int found;
    int row = (int)blockIdx.y, head = (int)blockIdx.x, warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    int d = (int)threadIdx.x * 2;
    const __nv_bfloat16 *uk = kv_b + (int64_t)head * HEAD_ROWS * stride, *uv = uk + K3_NOPE_DIM * stride;
    const float *from = q[row] + head * K3_QK_DIM;
    float max = -INFINITY, sum = 0, acc[2] = {0, 0}, absorbed[2] = {0, 0};

    cuda_wait();
    cuda_next();
    int i = cuda_sequence_of(b, row, &found);
    int64_t positions = b.pos[i] + row - b.begin[i] + 1;
    if (threadIdx.x < K3_NOPE_DIM)
        qn[threadIdx.x] = from[threadIdx.x];
    if (threadIdx.x < K3_ROPE_DIM)
        qa[K3_LATENT_DIM + threadIdx.x] = from[K3_NOPE_DIM + threadIdx.x];
    __syncthreads();
    for (int n = 0; n < K3_NOPE_DIM; n++)
        for (int j = 0; j < 2; j++)
            absorbed[j] += qn[n] * __bfloat162float(uk[n * stride + d + j]);
    qa[d] = absorbed[0], qa[d + 1] = absorbed[1];
    for (int64_t first = 0; first < positions; first += TILE) {
        int count = positions - first < TILE ? (int)(positions - first) : TILE;
        if (threadIdx.x < count)
            latent[threadIdx.x] = cache + cuda_latent_row(b, page_tokens, i, first + threadIdx.x) * K3_CACHE_DIM;
        __syncthreads();
        for (int s = warp; s < count; s += WARPS) {
            float dot = 0;
            for (int k = lane; k < K3_CACHE_DIM; k += 32)
                dot += qa[k] * __bfloat162float(latent[s][k]);
            dot = cuda_warp_sum(dot);
            if (lane == 0)
                p[s] = dot * scale;
        }
        __syncthreads();
        float before = max;
        for (int s = 0; s < count; s++)
            max = fmaxf(max, p[s]);
        float factor = expf(before - max);
        sum *= factor, acc[0] *= factor, acc[1] *= factor;
        for (int s = 0; s < count; s++) {
            float w = expf(p[s] - max);
            sum += w;
            acc[0] += w * __bfloat162float(latent[s][d]);
            acc[1] += w * __bfloat162float(latent[s][d + 1]);
        }
        __syncthreads();
    }
    cbar[d] = acc[0] / sum, cbar[d + 1] = acc[1] / sum;
    __syncthreads();
    for (int v = warp; v < K3_V_DIM; v += WARPS) {
        float dot = 0;
        for (int k = lane; k < K3_LATENT_DIM; k += 32)
            dot += cbar[k] * __bfloat162float(uv[v * stride + k]);
        dot = cuda_warp_sum(dot);
        if (lane == 0)
            o[row][head * K3_V_DIM + v] = dot;
    }
}

extern "C" int cuda_mla_attend(const struct mla_attend_args *a, struct k3_stream *s)
{
    return cuda_launch(s, "mla_attend", attend, dim3((unsigned)a->heads, (unsigned)a->q->rows), THREADS, 0,
                       cuda_rows_of(a->q), (const __nv_bfloat16 *)a->kv_b->data, a->kv_b->stride, cuda_rows_of(a->o),
                       (const __nv_bfloat16 *)a->cache->data, a->cache->page_tokens, *a->batch, a->scale);
}
