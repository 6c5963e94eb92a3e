/* matmul.h - rows times a weight matrix on one worker: what linear, experts and mla_attend are made of
 *
 * y[t][o] += scale[t] * sum_i w[o,i] x[t][i] for t < n <= CPU_TILE_ROWS and o in [o0, o1); scale NULL is 1 for all.
 *
 * The one order of the sum, whatever n, the worker and the path: columns in blocks of MATMUL_BLOCK; in a block, eight
 * lanes of multiply-adds over the columns in the order of simd_reorder(), then v8_sum(); the blocks one after the other
 * into y. */
#ifndef K3_KERNELS_CPU_MATMUL_H
#define K3_KERNELS_CPU_MATMUL_H

#include "kernels/cpu/cpu.h"

enum { MATMUL_BLOCK = 1024 };

void CPU(matmul)(struct cpu_worker *worker, int n, const float *const *x, const struct k3_tensor *w, int64_t o0,
                 int64_t o1, float *const *y, const float *scale);

/* sum[r][o] = w[o] . x[r] over k columns, k a multiple of LANES. R and O are constants where it is called. */
SIMD_INLINE void dot_tile(const int R, const int O, int64_t k, const float *const *x, const float *const *w, float *sum,
                          int64_t stride)
{
    v8 acc[4][4];
    UNROLL
    for (int r = 0; r < R; r++) {
        UNROLL
        for (int o = 0; o < O; o++)
            acc[r][o] = v8_set(0);
    }
    for (int64_t i = 0; i < k; i += LANES) {
        v8 wv[4];
        UNROLL
        for (int o = 0; o < O; o++)
            wv[o] = v8_load(w[o] + i);
        UNROLL
        for (int r = 0; r < R; r++) {
            v8 xv = v8_load(x[r] + i);
            UNROLL
            for (int o = 0; o < O; o++)
                acc[r][o] = v8_fma(wv[o], xv, acc[r][o]);
        }
    }
    UNROLL
    for (int r = 0; r < R; r++) {
        UNROLL
        for (int o = 0; o < O; o++)
            sum[r * stride + o] = v8_sum(acc[r][o]);
    }
}

/* The same with R in 1 ... 4 and O in 1 ... 3 known only at run time. */
void CPU(dot)(int R, int O, int64_t k, const float *const *x, const float *const *w, float *sum, int64_t stride);

#endif
