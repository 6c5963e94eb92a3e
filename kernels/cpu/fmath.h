/* fmath.h - exp, tanh, sigmoid and SiTU on eight lanes
 *
 * Errors against libm in fp64 are held by test/fmath_test.c: exp 2 ulp, tanh and sigmoid 4 ulp. */
#ifndef K3_KERNELS_CPU_FMATH_H
#define K3_KERNELS_CPU_FMATH_H

#include "kernels/cpu/simd.h"

/* 2^n for whole n in -126 ... 127 */
SIMD_INLINE v8 v8_pow2(v8i n)
{
    return (v8)((n + 127) << 23);
}

/* e^x = 2^n e^r, r in [-ln 2 / 2, ln 2 / 2], e^r = 1 + r + r^2 P(r) with P interpolated at the Chebyshev nodes. */
SIMD_INLINE v8 v8_exp(v8 x)
{
    const float round = 12582912.0f; /* 1.5 * 2^23: adding it leaves the nearest whole number in the low bits */
    x = v8_clamp(x, -110.0f, 90.0f); /* e^-110 is 0, e^90 is infinite */
    v8 shifted = v8_fma(x, v8_set(0x1.715476p+0f), v8_set(round));
    v8 n = shifted - v8_set(round);
    v8i whole = (v8i)shifted - (v8i)v8_set(round);
    v8 r = v8_fma(n, v8_set(-0x1.62e4p-1f), x); /* ln 2 in two parts, the first short enough to make n times it exact */
    r = v8_fma(n, v8_set(-0x1.7f7d1cp-20f), r);
    v8 p = v8_fma(v8_set(0.00139265507f), r, v8_set(0.0083634723f));
    p = v8_fma(p, r, v8_set(0.0416665524f));
    p = v8_fma(p, r, v8_set(0.166665748f));
    p = v8_fma(p, r, v8_set(0.5f));
    p = v8_fma(p, r * r, r) + v8_set(1.0f);
    /* In two steps, because 2^n itself may be out of range where the result is not. */
    return p * v8_pow2(whole >> 1) * v8_pow2(whole - (whole >> 1));
}

SIMD_INLINE v8 v8_abs(v8 x)
{
    return (v8)((v8i)x & 0x7fffffff);
}

/* 1 / (1 + e^-x), from e^-|x| so that nothing overflows and small results keep their digits. */
SIMD_INLINE v8 v8_sigmoid(v8 x)
{
    v8 e = v8_exp(-v8_abs(x));
    return v8_select(x < v8_set(0.0f), e, v8_set(1.0f)) / (v8_set(1.0f) + e);
}

/* x + x^3 P(x^2) near zero, 1 - 2 / (e^2|x| + 1) elsewhere. */
SIMD_INLINE v8 v8_tanh(v8 x)
{
    v8 z = x * x, a = v8_abs(x);
    v8 p = v8_fma(v8_set(-0.00604516501f), z, v8_set(0.0209613293f));
    p = v8_fma(p, z, v8_set(-0.0538432635f));
    p = v8_fma(p, z, v8_set(0.133327186f));
    p = v8_fma(p, z, v8_set(-0.333333284f));
    v8 near = v8_fma(p * z, x, x);
    v8 far = v8_set(1.0f) - v8_set(2.0f) / (v8_exp(a + a) + v8_set(1.0f));
    far = (v8)((v8i)far | ((v8i)x & INT32_MIN));
    return v8_select(a < v8_set(0.625f), near, far);
}

SIMD_INLINE v8 v8_situ(v8 gate, v8 up, float beta, float linear_beta)
{
    v8 g = v8_set(beta) * v8_tanh(gate / v8_set(beta)) * v8_sigmoid(gate);
    return g * (v8_set(linear_beta) * v8_tanh(up / v8_set(linear_beta)));
}

#endif
