/* rows.h - rows of F32 and the sequences they belong to, on the device */
#ifndef K3_KERNELS_CUDA_ROWS_H
#define K3_KERNELS_CUDA_ROWS_H

#include "kernels/cuda/cuda.h"

/* An F32 matrix of activations. */
struct cuda_rows {
    float *data;
    int64_t stride;
    __device__ float *operator[](int64_t row) const
    {
        return data + row * stride;
    }
};

static inline struct cuda_rows cuda_rows_of(const struct k3_tensor *t)
{
    return (struct cuda_rows){(float *)t->data, t->stride};
}

#ifdef __CUDACC__

/* x[i ... i + 3], zeros from n on; at once where the address allows it. */
__device__ static inline float4 cuda_load4(const float *x, int64_t i, int64_t n)
{
    if (i + 4 <= n && ((uintptr_t)(x + i) & 15) == 0)
        return *(const float4 *)(x + i);
    return make_float4(i < n ? x[i] : 0, i + 1 < n ? x[i + 1] : 0, i + 2 < n ? x[i + 2] : 0, i + 3 < n ? x[i + 3] : 0);
}

__device__ static inline float4 cuda_load4(const struct cuda_vector &x, int64_t i, int64_t n)
{
    if (!x.bf16)
        return cuda_load4((const float *)x.data, i, n);
    const __nv_bfloat16 *b = (const __nv_bfloat16 *)x.data + i;
    if (i + 4 <= n && ((uintptr_t)b & 7) == 0) {
        uint2 bits = *(const uint2 *)b;
        return make_float4(__uint_as_float(bits.x << 16), __uint_as_float(bits.x & 0xffff0000u),
                           __uint_as_float(bits.y << 16), __uint_as_float(bits.y & 0xffff0000u));
    }
    return make_float4(i < n ? x[i] : 0, i + 1 < n ? x[i + 1] : 0, i + 2 < n ? x[i + 2] : 0, i + 3 < n ? x[i + 3] : 0);
}

/* What of v lies before n goes to x[i ... i + 3]. */
__device__ static inline void cuda_store4(float *x, int64_t i, int64_t n, float4 v)
{
    if (i + 4 <= n && ((uintptr_t)(x + i) & 15) == 0) {
        *(float4 *)(x + i) = v;
        return;
    }
    if (i < n)
        x[i] = v.x;
    if (i + 1 < n)
        x[i + 1] = v.y;
    if (i + 2 < n)
        x[i + 2] = v.z;
    if (i + 3 < n)
        x[i + 3] = v.w;
}

__device__ static inline float cuda_dot4(float4 a, float4 b)
{
    return a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w;
}

/* The sequence that owns a row, for a whole block: `found` is shared, and free to be written. */
__device__ static inline int cuda_sequence_of(const struct kern_batch &b, int row, int *found)
{
    for (int i = (int)threadIdx.x; i < b.seqs; i += (int)blockDim.x)
        if (b.begin[i] <= row && row < b.begin[i + 1])
            *found = i;
    __syncthreads();
    return *found;
}

/* How many rows there are to come of the cache's positions: row number of position pos of sequence i. */
__device__ static inline int64_t cuda_latent_row(const struct kern_batch &b, int page_tokens, int i, int64_t pos)
{
    int64_t page = b.pages[(int64_t)i * b.page_stride + pos / page_tokens];
    return page * page_tokens + pos % page_tokens;
}

#endif

#endif
