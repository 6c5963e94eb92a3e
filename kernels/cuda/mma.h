/* mma.h - tensor core products of warps, copies that fill shared memory while they run, and what else only PTX says
 *
 * mma.sync, ldmatrix, cp.async and mul.bf16x2 as in "PTX ISA", for every GPU from sm_90 on. */
#ifndef K3_KERNELS_CUDA_MMA_H
#define K3_KERNELS_CUDA_MMA_H

#include "kernels/cuda/cuda.h"

#ifdef CUDA_EMULATED
#include "kernels/emu/mma.h"
#elif defined __CUDACC__

/* d += a b, BF16 factors and fp32 sums.  a [16 rows, 16], b [16, 8 columns], d [16, 8]: lane l holds of d the columns
 * 2 (l % 4) and the next, of rows l / 4 (d[0], d[1]) and l / 4 + 8 (d[2], d[3]). */
__device__ static inline void cuda_mma(float d[4], const uint32_t a[4], uint32_t b0, uint32_t b1)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* Four 8 x 8 matrices of BF16; lanes 8 i ... 8 i + 7 name the rows of the i-th, 16 bytes each, in shared memory. */
__device__ static inline void cuda_matrices(uint32_t m[4], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
                 : "r"((uint32_t)__cvta_generic_to_shared(row))
                 : "memory");
}

/* The same, each of them transposed. */
__device__ static inline void cuda_matrices_transposed(uint32_t m[4], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
                 : "r"((uint32_t)__cvta_generic_to_shared(row))
                 : "memory");
}

/* Start to copy 16 bytes into shared memory, zeros instead unless `there`; both addresses are multiples of 16. */
__device__ static inline void cuda_copy16(void *to, const void *from, bool there)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :
                 : "r"((uint32_t)__cvta_generic_to_shared(to)), "l"(from), "r"(there ? 16 : 0)
                 : "memory");
}

/* The copies that this thread started since the last call are one group. */
__device__ static inline void cuda_copies_end(void)
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

/* Until no more than LEFT of this thread's groups are under way. */
template <int LEFT> __device__ static inline void cuda_copies_wait(void)
{
    asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
}

/* Two BF16 numbers times two. */
__device__ static inline uint32_t cuda_multiply2(uint32_t a, uint32_t b)
{
    uint32_t r;
    asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
    return r;
}

/* A clock of all SMs. */
__device__ static inline uint64_t cuda_now_ns(void)
{
    uint64_t ns;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(ns));
    return ns;
}

#endif

#ifdef __CUDACC__

__device__ static inline uint32_t cuda_bf16x2(float low, float high)
{
    __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    return *(uint32_t *)&pair;
}

#endif

#endif
