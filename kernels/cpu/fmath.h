/* fmath.h - exp, tanh, sigmoid and SiTU on lanes
 *
 * Errors against libm in fp64 are held by test/fmath_test.c: exp 2 ulp, tanh and sigmoid 4 ulp. */
#ifndef K3_KERNELS_CPU_FMATH_H
#define K3_KERNELS_CPU_FMATH_H

#include "kernels/cpu/simd.h"

/* 2^n for whole n in -126 ... 127 */
SIMD_INLINE vec vec_pow2(veci n)
{
    return (vec)((n + 127) << 23);
}

/* e^x = 2^n e^r, r in [-ln 2 / 2, ln 2 / 2], e^r = 1 + r + r^2 P(r) with P interpolated at the Chebyshev nodes. */
SIMD_INLINE vec vec_exp(vec x)
{
    const float round = 12582912.0f;  /* 1.5 * 2^23: adding it leaves the nearest whole number in the low bits */
    x = vec_clamp(x, -110.0f, 90.0f); /* e^-110 is 0, e^90 is infinite */
    vec shifted = vec_fma(x, vec_set(0x1.715476p+0f), vec_set(round));
    vec n = shifted - vec_set(round);
    veci whole = (veci)shifted - (veci)vec_set(round);
    vec r =
        vec_fma(n, vec_set(-0x1.62e4p-1f), x); /* ln 2 in two parts, the first short enough to make n times it exact */
    r = vec_fma(n, vec_set(-0x1.7f7d1cp-20f), r);
    vec p = vec_fma(vec_set(0.00139265507f), r, vec_set(0.0083634723f));
    p = vec_fma(p, r, vec_set(0.0416665524f));
    p = vec_fma(p, r, vec_set(0.166665748f));
    p = vec_fma(p, r, vec_set(0.5f));
    p = vec_fma(p, r * r, r) + vec_set(1.0f);
    /* In two steps, because 2^n itself may be out of range where the result is not. */
    return p * vec_pow2(whole >> 1) * vec_pow2(whole - (whole >> 1));
}

SIMD_INLINE vec vec_abs(vec x)
{
    return (vec)((veci)x & 0x7fffffff);
}

/* 1 / (1 + e^-x), from e^-|x| so that nothing overflows and small results keep their digits. */
SIMD_INLINE vec vec_sigmoid(vec x)
{
    vec e = vec_exp(-vec_abs(x));
    return vec_select(x < vec_set(0.0f), e, vec_set(1.0f)) / (vec_set(1.0f) + e);
}

/* x + x^3 P(x^2) near zero, 1 - 2 / (e^2|x| + 1) elsewhere. */
SIMD_INLINE vec vec_tanh(vec x)
{
    vec z = x * x, a = vec_abs(x);
    vec p = vec_fma(vec_set(-0.00604516501f), z, vec_set(0.0209613293f));
    p = vec_fma(p, z, vec_set(-0.0538432635f));
    p = vec_fma(p, z, vec_set(0.133327186f));
    p = vec_fma(p, z, vec_set(-0.333333284f));
    vec near = vec_fma(p * z, x, x);
    vec far = vec_set(1.0f) - vec_set(2.0f) / (vec_exp(a + a) + vec_set(1.0f));
    far = (vec)((veci)far | ((veci)x & INT32_MIN));
    return vec_select(a < vec_set(0.625f), near, far);
}

SIMD_INLINE vec vec_situ(vec gate, vec up, float beta, float linear_beta)
{
    vec g = vec_set(beta) * vec_tanh(gate / vec_set(beta)) * vec_sigmoid(gate);
    return g * (vec_set(linear_beta) * vec_tanh(up / vec_set(linear_beta)));
}

#endif
