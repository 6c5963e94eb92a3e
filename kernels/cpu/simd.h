/* simd.h - eight fp32 lanes, and how weights become lanes
 *
 * Written once over the compilers' vector extension, so that it builds for SSE2, AVX2 and NEON; where an instruction
 * set has something better than what the compiler finds, it stands here behind #ifdef and nowhere else.  Multiply-add
 * is v8_fma() and only that: the build turns contraction off, so two paths that call the same v8 functions in the same
 * order agree bit for bit. */
#ifndef K3_KERNELS_CPU_SIMD_H
#define K3_KERNELS_CPU_SIMD_H

#include <stdint.h>
#include <string.h>

#ifdef __AVX2__
#include <immintrin.h>
#endif

#include "kernels/kernels.h"

typedef float v8 __attribute__((vector_size(32)));
typedef int32_t v8i __attribute__((vector_size(32)));
typedef uint32_t v8u __attribute__((vector_size(32)));

#define SIMD_INLINE static inline __attribute__((always_inline))
#ifdef __clang__
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

enum { LANES = 8 };

SIMD_INLINE v8 v8_set(float x)
{
    return (v8){x, x, x, x, x, x, x, x};
}

SIMD_INLINE v8 v8_load(const float *p)
{
    v8 v;
    memcpy(&v, p, sizeof v);
    return v;
}

SIMD_INLINE void v8_store(float *p, v8 v)
{
    memcpy(p, &v, sizeof v);
}

/* The first n < LANES lanes; the others are 0. */
SIMD_INLINE v8 v8_load_n(const float *p, int64_t n)
{
    float lane[LANES] = {0};
    memcpy(lane, p, (size_t)n * sizeof *p);
    return v8_load(lane);
}

SIMD_INLINE void v8_store_n(float *p, v8 v, int64_t n)
{
    float lane[LANES];
    v8_store(lane, v);
    memcpy(p, lane, (size_t)n * sizeof *p);
}

/* a * b + c */
SIMD_INLINE v8 v8_fma(v8 a, v8 b, v8 c)
{
#ifdef __FMA__
    return (v8)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#else
    return a * b + c;
#endif
}

/* mask lanes are all ones or all zeros */
SIMD_INLINE v8 v8_select(v8i mask, v8 a, v8 b)
{
    return (v8)((mask & (v8i)a) | (~mask & (v8i)b));
}

/* A NaN in x stays. */
SIMD_INLINE v8 v8_clamp(v8 x, float low, float high)
{
    x = v8_select(x < v8_set(low), v8_set(low), x);
    return v8_select(x > v8_set(high), v8_set(high), x);
}

/* Sum of the lanes, always by the same tree. */
SIMD_INLINE float v8_sum(v8 v)
{
#ifdef __AVX2__
    __m128 h = _mm_add_ps(_mm256_castps256_ps128((__m256)v), _mm256_extractf128_ps((__m256)v, 1));
    h = _mm_add_ps(h, _mm_movehl_ps(h, h));
    return _mm_cvtss_f32(_mm_add_ss(h, _mm_movehdup_ps(h)));
#else
    return ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7]));
#endif
}

SIMD_INLINE float v8_max(v8 v)
{
    float m = v[0];
    for (int i = 1; i < LANES; i++)
        m = v[i] > m ? v[i] : m;
    return m;
}

/* --- weights ----------------------------------------------------------------------------------------------------- */

/* Columns that are decoded at a time.  A decoder is free to hand them out in an order of its own, simd_order(), in
 * which the other factor of the product is laid out beforehand. */
enum { UNIT = 32 };

/* bf16 pairs: the low halves of sixteen are lanes 0 2 4 ..., the high halves 1 3 5 ... */
SIMD_INLINE void bf16_lanes(const void *p, v8 *even, v8 *odd)
{
    v8u pair;
    memcpy(&pair, p, sizeof pair);
    *even = (v8)(pair << 16);
    *odd = (v8)(pair & 0xffff0000u);
}

/* The bf16 values of the 16 codes under every scale byte, as a table of high and one of low bytes. Every product of a
 * code and a scale is a bf16 number. */
struct mxfp4_table {
    uint8_t high[16], low[16];
};

SIMD_INLINE void mxfp4_lanes(const uint8_t *codes, const struct mxfp4_table *t, v8 d[4])
{
#ifdef __AVX2__
    __m256i both = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)codes));
    __m256i code =
        _mm256_and_si256(_mm256_srlv_epi32(both, _mm256_setr_epi32(0, 0, 0, 0, 4, 4, 4, 4)), _mm256_set1_epi8(15));
    __m256i high = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)t->high));
    __m256i low = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)t->low));
    high = _mm256_shuffle_epi8(high, code);
    low = _mm256_shuffle_epi8(low, code);
    v8u a = (v8u)_mm256_unpacklo_epi8(low, high), b = (v8u)_mm256_unpackhi_epi8(low, high);
    d[0] = (v8)(a << 16);
    d[1] = (v8)(a & 0xffff0000u);
    d[2] = (v8)(b << 16);
    d[3] = (v8)(b & 0xffff0000u);
#else
    uint32_t lane[UNIT];
    for (int i = 0; i < UNIT; i++) {
        int c = codes[i / 2] >> (i % 2 * 4) & 15;
        lane[i] = (uint32_t)t->high[c] << 24 | (uint32_t)t->low[c] << 16;
    }
    memcpy(d, lane, sizeof lane);
#endif
}

/* Column of the unit that decoded lane i holds. */
SIMD_INLINE int simd_order(enum k3_dtype dtype, int i)
{
    switch (dtype) {
    case K3_BF16:
        return i / 16 * 16 + i % LANES * 2 + i / LANES % 2;
#ifdef __AVX2__
    case K3_MXFP4: /* the even columns lie in the low half of the register, the odd ones in the high half */
        return i / 16 * 16 + i % 4 * 4 + i / LANES % 2 * 2 + i / 4 % 2;
#endif
    default:
        return i;
    }
}

#endif
