/* mma.h - stand-in: the functions of kernels/cuda/mma.h
 *
 * Products of BF16 are exact in fp32; an element's sixteen are added in order, then to the sum before.  Real tensor
 * cores add in an order of their own and cut off what is small, so bits may differ. */
#ifndef K3_KERNELS_EMU_MMA_H
#define K3_KERNELS_EMU_MMA_H

#include <cuda_bf16.h>
#include <time.h>

struct emu_mma {
    uint32_t a[4], b[2];
};

static inline float emu_half(uint32_t pair, int i)
{
    return __uint_as_float(i ? pair & 0xffff0000u : pair << 16);
}

emu_operation emu_mma_all, emu_matrices_all, emu_transposed_all;

static inline void cuda_mma(float d[4], const uint32_t a[4], uint32_t b0, uint32_t b1)
{
    struct emu_mma m = {{a[0], a[1], a[2], a[3]}, {b0, b1}};
    float sum[4];

    emu_warp("mma.sync", emu_mma_all, &m, sizeof m, sum, sizeof sum);
    for (int i = 0; i < 4; i++)
        d[i] += sum[i];
}

static inline void cuda_matrices(uint32_t m[4], const void *row)
{
    emu_aligned(row, 16);
    emu_warp("ldmatrix", emu_matrices_all, &row, sizeof row, m, 16);
}

static inline void cuda_matrices_transposed(uint32_t m[4], const void *row)
{
    emu_aligned(row, 16);
    emu_warp("ldmatrix.trans", emu_transposed_all, &row, sizeof row, m, 16);
}

static inline void cuda_copy16(void *to, const void *from, bool there)
{
    emu_copy16(to, from, there);
}

static inline void cuda_copies_end(void)
{
    emu_copies_end();
}

template <int LEFT> static inline void cuda_copies_wait(void)
{
    emu_copies_wait(LEFT);
}

static inline uint32_t cuda_multiply2(uint32_t a, uint32_t b)
{
    return (uint32_t)__float2bfloat16(emu_half(a, 0) * emu_half(b, 0)).bits |
           (uint32_t)__float2bfloat16(emu_half(a, 1) * emu_half(b, 1)).bits << 16;
}

static inline uint64_t cuda_now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

#endif
