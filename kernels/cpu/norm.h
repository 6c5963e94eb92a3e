/* norm.h - the RMS of a row, shared by the operations that normalise */
#ifndef K3_KERNELS_CPU_NORM_H
#define K3_KERNELS_CPU_NORM_H

#include <math.h>

#include "kernels/cpu/cpu.h"

/* sum_d x[d] y[d] in fp32: on four vectors, then one tree. */
SIMD_INLINE float norm_dot(const float *x, const float *y, int64_t n)
{
    vec acc[4] = {vec_set(0), vec_set(0), vec_set(0), vec_set(0)};
    int64_t d = 0;
    for (; d + 4 * LANES <= n; d += 4 * LANES) {
        UNROLL
        for (int j = 0; j < 4; j++)
            acc[j] = vec_fma(vec_load(x + d + j * LANES), vec_load(y + d + j * LANES), acc[j]);
    }
    for (; d + LANES <= n; d += LANES)
        acc[0] = vec_fma(vec_load(x + d), vec_load(y + d), acc[0]);
    if (d < n)
        acc[1] = vec_fma(vec_load_n(x + d, n - d), vec_load_n(y + d, n - d), acc[1]);
    return vec_sum((acc[0] + acc[1]) + (acc[2] + acc[3]));
}

/* 1 / sqrt(mean_d x[d]^2 + eps) */
SIMD_INLINE float norm_factor(const float *x, int64_t n, float eps)
{
    return 1 / sqrtf(norm_dot(x, x, n) / (float)n + eps);
}

/* y[d] = x[d] r w[d] */
SIMD_INLINE void norm_scale(const float *x, int64_t n, float r, const struct k3_tensor *w, float *y)
{
    int64_t d = 0;
    for (; d + LANES <= n; d += LANES)
        vec_store(y + d, vec_load(x + d) * vec_set(r) * cpu_weights(w, d, LANES));
    if (d < n)
        vec_store_n(y + d, vec_load_n(x + d, n - d) * vec_set(r) * cpu_weights(w, d, n - d), n - d);
}

#endif
