/* mla.h - what the two forms of attention over the latents share */
#ifndef K3_KERNELS_CUDA_MLA_H
#define K3_KERNELS_CUDA_MLA_H

#include "kernels/cuda/mma.h"
#include "kernels/cuda/rows.h"

enum {
    MLA_HEAD_ROWS = K3_NOPE_DIM + K3_V_DIM, /* of kv_b: a head's UK, then its UV */
    MLA_TILE = 32,                          /* positions that are in shared memory at a time, and as many under way */
    MLA_WIDE = K3_CACHE_DIM + 8,            /* of a latent row in shared memory: rows 8 apart meet other banks */
};

/* The rows that kern_expanded_rows() counts. */
int cuda_mla_prompts(const struct mla_attend_args *a, struct k3_stream *s);

#ifdef __CUDACC__

/* kern_expanded_rows() of a batch that has prompts. */
__device__ static inline int mla_expanded_rows(const struct kern_batch &b, int i)
{
    int64_t rows = b.begin[i + 1] - b.begin[i];
    int64_t expanded = (int64_t)b.prefill[i] / K3_EXPAND_BLOCK * K3_EXPAND_BLOCK - b.pos[i];

    return (int)max((int64_t)0, min(expanded, rows));
}

/* Row of the cache of a sequence's position; -1 from `end` on. */
__device__ static inline int mla_row(const struct kern_batch &b, int page_tokens, int i, int pos, int end)
{
    if (pos >= end)
        return -1;
    return b.pages[(int64_t)i * b.page_stride + pos / page_tokens] * page_tokens + pos % page_tokens;
}

/* Start to copy this thread's part of a tile, of which EACH threads share a position: threadIdx.x / EACH.  row: that
 * position's in the cache, -1 for none. */
template <int EACH>
__device__ static inline void mla_fetch(__nv_bfloat16 (*tile)[MLA_WIDE], const __nv_bfloat16 *cache, int row)
{
    int position = (int)threadIdx.x / EACH;

#pragma unroll
    for (int piece = (int)threadIdx.x % EACH; piece < K3_CACHE_DIM / 8; piece += EACH)
        cuda_copy16(&tile[position][piece * 8], cache + (int64_t)max(row, 0) * K3_CACHE_DIM + piece * 8, row >= 0);
    cuda_copies_end();
}
#endif

#endif
