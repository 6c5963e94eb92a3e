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

/* Columns: eight rows of x are to leave room in the first-level cache (32 KiB where AVX2 is the best there is), 256 of
 * them in the second-level one.  A register tile of many rows has PANEL_ROWS of x and PANEL_VECS vectors of outputs. */
#ifdef __AVX512F__
enum { MATMUL_BLOCK = 1024, PANEL_ROWS = 12, PANEL_VECS = 2 };
#elif defined(__AVX2__)
enum { MATMUL_BLOCK = 512, PANEL_ROWS = 6, PANEL_VECS = 2 };
#else
enum { MATMUL_BLOCK = 512, PANEL_ROWS = 4, PANEL_VECS = 1 };
#endif

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
