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

/* Columns that are decoded at a time.  A decoder is free to hand them out in an order of its own; simd_reorder() lays
 * out the other factor of the product likewise. */
enum { UNIT = 32 };

/* bf16 pairs: the low halves of sixteen are lanes 0 2 4 ..., the high halves 1 3 5 ... */
SIMD_INLINE void bf16_lanes(const void *p, v8 *even, v8 *odd)
{
    v8u pair;
    memcpy(&pair, p, sizeof pair);
    *even = (v8)(pair << 16);
    *odd = (v8)(pair & 0xffff0000u);
}

/* Eight bf16 in their order. */
SIMD_INLINE v8 bf16_load(const uint16_t *p)
{
    typedef uint16_t half8 __attribute__((vector_size(16)));
    half8 h;
    memcpy(&h, p, sizeof h);
    return (v8)(__builtin_convertvector(h, v8u) << 16);
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
    for (int half = 0; half < 2; half++, codes += LANES) {
        v8u even, odd;
        for (int i = 0; i < LANES; i++) {
            even[i] = (uint32_t)t->high[codes[i] & 15] << 24 | (uint32_t)t->low[codes[i] & 15] << 16;
            odd[i] = (uint32_t)t->high[codes[i] >> 4] << 24 | (uint32_t)t->low[codes[i] >> 4] << 16;
        }
        d[2 * half] = (v8)even;
        d[2 * half + 1] = (v8)odd;
    }
#endif
}

/* Sixteen floats apart into even and odd ones. */
SIMD_INLINE void deinterleave(const float *from, v8 *even, v8 *odd)
{
    v8 a = v8_load(from), b = v8_load(from + LANES);
#ifdef __clang__
    *even = __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14);
    *odd = __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15);
#else
    *even = __builtin_shuffle(a, b, (v8i){0, 2, 4, 6, 8, 10, 12, 14});
    *odd = __builtin_shuffle(a, b, (v8i){1, 3, 5, 7, 9, 11, 13, 15});
#endif
}

/* One unit of the other factor, laid out as the weights of that type are decoded. */
SIMD_INLINE void simd_reorder(enum k3_dtype dtype, const float *from, float *to)
{
    if (dtype == K3_F32) {
        memcpy(to, from, UNIT * sizeof *to);
        return;
    }
    for (int i = 0; i < UNIT; i += 2 * LANES) {
        v8 even, odd;
        deinterleave(from + i, &even, &odd);
#ifdef __AVX2__
        if (dtype == K3_MXFP4) { /* and once more: the even columns lie in a register's low half, the odd in its high */
            __m256 e = (__m256)even, o = (__m256)odd;
            __m256 low = _mm256_permute2f128_ps(e, o, 0x20);  /* 0 2 4 6 1 3 5 7 */
            __m256 high = _mm256_permute2f128_ps(e, o, 0x31); /* 8 10 12 14 9 11 13 15 */
            even = (v8)_mm256_shuffle_ps(low, high, 0x88);    /* 0 4 8 12 1 5 9 13 */
            odd = (v8)_mm256_shuffle_ps(low, high, 0xdd);     /* 2 6 10 14 3 7 11 15 */
        }
#endif
        v8_store(to + i, even);
        v8_store(to + i + LANES, odd);
    }
}

#endif
