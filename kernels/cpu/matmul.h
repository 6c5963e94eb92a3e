/* matmul.h - rows times a weight matrix on one worker: what linear, experts and mla_attend are made of
 *
 * y[t][o] += scale[t] * sum_i w[o,i] x[t][i] for t < n <= CPU_TILE_ROWS and o in [o0, o1); scale NULL is 1 for all.
 *
 * The one order of the sum, whatever n, the worker and the path: columns in blocks of MATMUL_BLOCK; in a block, LANES
 * lanes of multiply-adds over the columns in the order of simd_reorder(), then vec_sum(); the blocks one after the
 * other into y. */
#ifndef K3_KERNELS_CPU_MATMUL_H
#define K3_KERNELS_CPU_MATMUL_H

#include "kernels/cpu/cpu.h"

enum { MATMUL_BLOCK = 1024 };

void CPU(matmul)(struct cpu_worker *worker, int n, const float *const *x, const struct k3_tensor *w, int64_t o0,
                 int64_t o1, float *const *y, const float *scale);

/* One register tile: rows of x and of w whose products are summed at a time. */
#ifdef __AVX512F__
enum { DOT_ROWS = 4, DOT_OUTS = 6 };
#else
enum { DOT_ROWS = 4, DOT_OUTS = 3 };
#endif

/* sum[r * stride + o] = w[o] . x[r] over k columns, k a multiple of LANES; R in 1 ... DOT_ROWS, O in 1 ... DOT_OUTS. */
void CPU(dot)(int R, int O, int64_t k, const float *const *x, const float *const *w, float *sum, int64_t stride);

#endif
