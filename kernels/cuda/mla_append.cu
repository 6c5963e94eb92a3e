/* mla_append.cu - a token's normalised latents and raw shared key go into its page (SPEC 4.5 step 2, 6)
 *
 * A block a row, four latents a thread; fp32, rounded to BF16 as it is written. */
#include "kernels/cuda/rows.h"

enum { THREADS = K3_LATENT_DIM / 4 };

__global__ static void __launch_bounds__(THREADS)
    append(struct cuda_rows kv, struct cuda_vector w, __nv_bfloat16 *cache, int page_tokens, struct kern_batch b,
           float eps)
{
    __shared__ float room[THREADS / 32];
    __shared__ int found;
    int row = (int)blockIdx.x, d = (int)threadIdx.x * 4;
    float4 weight = cuda_load4(w, d, K3_LATENT_DIM);

    cuda_wait();
    cuda_next();
    float4 v = cuda_load4(kv[row], d, K3_LATENT_DIM);
    float r = 1.0f / sqrtf(cuda_block_sum(cuda_dot4(v, v), room) / K3_LATENT_DIM + eps);
    int i = cuda_sequence_of(b, row, &found);
    __nv_bfloat16 *to = cache + cuda_latent_row(b, page_tokens, i, b.pos[i] + row - b.begin[i]) * K3_CACHE_DIM;
    __nv_bfloat162 *pair = (__nv_bfloat162 *)(to + d);
    pair[0] = __floats2bfloat162_rn(v.x * r * weight.x, v.y * r * weight.y);
    pair[1] = __floats2bfloat162_rn(v.z * r * weight.z, v.w * r * weight.w);
    if (threadIdx.x < K3_ROPE_DIM)
        to[K3_LATENT_DIM + threadIdx.x] = __float2bfloat16(kv[row][K3_LATENT_DIM + threadIdx.x]);
}

extern "C" int cuda_mla_append(const struct mla_append_args *a, struct k3_stream *s)
{
    return cuda_launch(s, "mla_append", append, (unsigned)a->kv->rows, THREADS, 0, cuda_rows_of(a->kv),
                       cuda_vector_of(a->w), (__nv_bfloat16 *)a->cache->data, a->cache->page_tokens, *a->batch, a->eps);
}
