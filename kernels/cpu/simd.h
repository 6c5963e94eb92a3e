/* simd.h - LANES fp32 lanes, sixteen with AVX-512 and else eight, and how weights become lanes
 *
 * Written once over the compilers' vector extension, so that it builds for SSE2, AVX2, AVX-512 and NEON; where an
 * instruction set has something better than what the compiler finds, it stands here behind #ifdef and nowhere else.
 * Multiply-add is vec_fma() and only that: the build turns contraction off, so two paths that call the same vec
 * functions in the same order agree bit for bit. */
#ifndef K3_KERNELS_CPU_SIMD_H
#define K3_KERNELS_CPU_SIMD_H

#include <stdint.h>
#include <string.h>

#ifdef __AVX2__
#include <immintrin.h>
#endif

#include "kernels/kernels.h"

#ifdef __AVX512F__
enum { LANES = 16 };
#else
enum { LANES = 8 };
#endif

typedef float vec __attribute__((vector_size(LANES * 4)));
typedef int32_t veci __attribute__((vector_size(LANES * 4)));
typedef uint32_t vecu __attribute__((vector_size(LANES * 4)));

#define SIMD_INLINE static inline __attribute__((always_inline))
#ifdef __clang__
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

SIMD_INLINE vec vec_set(float x)
{
#ifdef __AVX512F__
    return (vec)_mm512_set1_ps(x);
#else
    return (vec){x, x, x, x, x, x, x, x};
#endif
}

SIMD_INLINE vec vec_load(const float *p)
{
    vec v;
    memcpy(&v, p, sizeof v);
    return v;
}

SIMD_INLINE void vec_store(float *p, vec v)
{
    memcpy(p, &v, sizeof v);
}

/* The first n < LANES lanes; the others are 0. */
SIMD_INLINE vec vec_load_n(const float *p, int64_t n)
{
    float lane[LANES] = {0};
    memcpy(lane, p, (size_t)n * sizeof *p);
    return vec_load(lane);
}

SIMD_INLINE void vec_store_n(float *p, vec v, int64_t n)
{
    float lane[LANES];
    vec_store(lane, v);
    memcpy(p, lane, (size_t)n * sizeof *p);
}

/* a * b + c */
SIMD_INLINE vec vec_fma(vec a, vec b, vec c)
{
#ifdef __AVX512F__
    return (vec)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(__FMA__)
    return (vec)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#else
    return a * b + c;
#endif
}

/* mask lanes are all ones or all zeros */
SIMD_INLINE vec vec_select(veci mask, vec a, vec b)
{
    return (vec)((mask & (veci)a) | (~mask & (veci)b));
}

/* A NaN in x stays. */
SIMD_INLINE vec vec_clamp(vec x, float low, float high)
{
    x = vec_select(x < vec_set(low), vec_set(low), x);
    return vec_select(x > vec_set(high), vec_set(high), x);
}

/* Sum of the lanes, always by the same tree. */
SIMD_INLINE float vec_sum(vec v)
{
#ifdef __AVX512F__
    __m256 v256 = _mm256_add_ps(_mm512_castps512_ps256((__m512)v), _mm512_extractf32x8_ps((__m512)v, 1));
#elif defined(__AVX2__)
    __m256 v256 = (__m256)v;
#endif
#ifdef __AVX2__
    __m128 h = _mm_add_ps(_mm256_castps256_ps128(v256), _mm256_extractf128_ps(v256, 1));
    h = _mm_add_ps(h, _mm_movehl_ps(h, h));
    return _mm_cvtss_f32(_mm_add_ss(h, _mm_movehdup_ps(h)));
#else
    return ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7]));
#endif
}

/* sum[i] = vec_sum(v[i]), i < 4. */
SIMD_INLINE void vec_sum4(const vec v[4], float sum[4])
{
#ifdef __AVX512F__
    __m512 a = (__m512)v[0], b = (__m512)v[1], c = (__m512)v[2], d = (__m512)v[3];
    __m512 ab = _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xee));
    __m512 cd = _mm512_add_ps(_mm512_shuffle_f32x4(c, d, 0x44), _mm512_shuffle_f32x4(c, d, 0xee));
    __m512 h = _mm512_add_ps(_mm512_shuffle_f32x4(ab, cd, 0x88), _mm512_shuffle_f32x4(ab, cd, 0xdd));
    h = _mm512_add_ps(h, _mm512_permute_ps(h, 0x4e));
    h = _mm512_add_ps(h, _mm512_permute_ps(h, 0xb1));
    h = _mm512_permutexvar_ps(_mm512_setr_epi32(0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12), h);
    _mm_storeu_ps(sum, _mm512_castps512_ps128(h));
#elif defined(__AVX2__)
    __m256 a = (__m256)v[0], b = (__m256)v[1], c = (__m256)v[2], d = (__m256)v[3];
    __m256 ab = _mm256_add_ps(_mm256_permute2f128_ps(a, b, 0x20), _mm256_permute2f128_ps(a, b, 0x31));
    __m256 cd = _mm256_add_ps(_mm256_permute2f128_ps(c, d, 0x20), _mm256_permute2f128_ps(c, d, 0x31));
    __m256 h = _mm256_add_ps(_mm256_shuffle_ps(ab, cd, 0x44), _mm256_shuffle_ps(ab, cd, 0xee));
    h = _mm256_add_ps(_mm256_shuffle_ps(h, h, 0x88), _mm256_shuffle_ps(h, h, 0xdd)); /* a c a c, b d b d */
    _mm_storeu_ps(sum, _mm_unpacklo_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1)));
#else
    for (int i = 0; i < 4; i++)
        sum[i] = vec_sum(v[i]);
#endif
}

SIMD_INLINE float vec_max(vec v)
{
    float m = v[0];
    for (int i = 1; i < LANES; i++)
        m = v[i] > m ? v[i] : m;
    return m;
}

/* --- weights ----------------------------------------------------------------------------------------------------- */

/* Columns that are decoded at a time, into UNIT_VECS vectors.  A decoder is free to hand them out in an order of its
 * own; simd_reorder() lays out the other factor of the product likewise. */
enum { UNIT = 32, UNIT_VECS = UNIT / LANES };

/* bf16 pairs: the low halves of 2 LANES are lanes 0 2 4 ..., the high halves 1 3 5 ... */
SIMD_INLINE void bf16_lanes(const void *p, vec *even, vec *odd)
{
    vecu pair;
    memcpy(&pair, p, sizeof pair);
    *even = (vec)(pair << 16);
    *odd = (vec)(pair & 0xffff0000u);
}

/* The even or the odd one of those vectors by itself. */
SIMD_INLINE vec bf16_half(const void *p, const int odd)
{
    vecu pair;
    memcpy(&pair, p, sizeof pair);
    return (vec)(odd ? pair >> 16 << 16 : pair << 16); /* a mask would need a register */
}

/* LANES bf16 in their order. */
SIMD_INLINE vec bf16_load(const uint16_t *p)
{
    typedef uint16_t halves __attribute__((vector_size(LANES * 2)));
    halves h;
    memcpy(&h, p, sizeof h);
    return (vec)(__builtin_convertvector(h, vecu) << 16);
}

/* What the 16 codes stand for under one scale byte.  Every product of a code and a scale is a bf16 number: AVX2 looks
 * its two bytes up in tables of bytes, AVX-512 the whole value. */
struct mxfp4_table {
#ifdef __AVX512F__
    float value[16];
#else
    uint8_t high[16], low[16];
#endif
} __attribute__((aligned(32)));

SIMD_INLINE void mxfp4_set(struct mxfp4_table *t, int code, float value)
{
#ifdef __AVX512F__
    t->value[code] = value;
#else
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    t->high[code] = (uint8_t)(bits >> 24);
    t->low[code] = (uint8_t)(bits >> 16);
#endif
}

SIMD_INLINE void mxfp4_lanes(const uint8_t *codes, const struct mxfp4_table *t, vec d[UNIT_VECS])
{
#ifdef __AVX512F__ /* the look-up reads the low four bits of a lane and no others */
    __m512i pair = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)codes));
    __m512 table = _mm512_load_ps(t->value);
    d[0] = (vec)_mm512_permutexvar_ps(pair, table);
    d[1] = (vec)_mm512_permutexvar_ps(_mm512_srli_epi32(pair, 4), table);
#elif defined(__AVX2__)
    __m256i both = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)codes));
    __m256i code =
        _mm256_and_si256(_mm256_srlv_epi32(both, _mm256_setr_epi32(0, 0, 0, 0, 4, 4, 4, 4)), _mm256_set1_epi8(15));
    __m256i high = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)t->high));
    __m256i low = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)t->low));
    high = _mm256_shuffle_epi8(high, code);
    low = _mm256_shuffle_epi8(low, code);
    vecu a = (vecu)_mm256_unpacklo_epi8(low, high), b = (vecu)_mm256_unpackhi_epi8(low, high);
    d[0] = (vec)(a << 16);
    d[1] = (vec)(a & 0xffff0000u);
    d[2] = (vec)(b << 16);
    d[3] = (vec)(b & 0xffff0000u);
#else
    for (int half = 0; half < 2; half++, codes += LANES) {
        vecu even, odd;
        for (int i = 0; i < LANES; i++) {
            even[i] = (uint32_t)t->high[codes[i] & 15] << 24 | (uint32_t)t->low[codes[i] & 15] << 16;
            odd[i] = (uint32_t)t->high[codes[i] >> 4] << 24 | (uint32_t)t->low[codes[i] >> 4] << 16;
        }
        d[2 * half] = (vec)even;
        d[2 * half + 1] = (vec)odd;
    }
#endif
}

/* A 256th of 32 e4m3 codes, with AVX-512 in their order, else as bf16_lanes() has them.  Between a sign and three
 * mantissa bits lie four bits of exponent: with one more, clear, they are an fp16 number, subnormal ones included; that
 * bit is set where a carry tells a NaN. */
SIMD_INLINE void e4m3_lanes(const uint8_t *codes, vec d[UNIT_VECS])
{
#ifdef __AVX512F__
    __m512i half = _mm512_cvtepi8_epi16(_mm256_loadu_si256((const __m256i *)codes));
    half = _mm512_and_si512(_mm512_slli_epi16(half, 7), _mm512_set1_epi16((int16_t)0xbf80));
    __m512i carry = _mm512_add_epi16(half, _mm512_set1_epi16(0x80));
    half = _mm512_or_si512(half, _mm512_and_si512(carry, _mm512_set1_epi16(0x4000)));
    d[0] = (vec)_mm512_cvtph_ps(_mm512_castsi512_si256(half));
    d[1] = (vec)_mm512_cvtph_ps(_mm512_extracti64x4_epi64(half, 1));
#elif defined(__AVX2__)
    __m256i pair = _mm256_loadu_si256((const __m256i *)codes), half[2]; /* of even and odd codes */
    half[0] = _mm256_srai_epi16(_mm256_slli_epi16(pair, 8), 1);
    half[1] = _mm256_srai_epi16(pair, 1);
    UNROLL
    for (int i = 0; i < 2; i++) {
        half[i] = _mm256_and_si256(half[i], _mm256_set1_epi16((int16_t)0xbf80));
        __m256i carry = _mm256_add_epi16(half[i], _mm256_set1_epi16(0x80));
        half[i] = _mm256_or_si256(half[i], _mm256_and_si256(carry, _mm256_set1_epi16(0x4000)));
        d[i] = (vec)_mm256_cvtph_ps(_mm256_castsi256_si128(half[i]));
        d[i + 2] = (vec)_mm256_cvtph_ps(_mm256_extracti128_si256(half[i], 1));
    }
#else
    for (int i = 0; i < UNIT_VECS; i++) { /* likewise, an fp32 number 2^120 times too small */
        vecu code;
        for (int j = 0; j < LANES; j++)
            code[j] = codes[i / 2 * 2 * LANES + 2 * j + i % 2];
        vecu magnitude = code & 0x7f, nan = ((magnitude + 1) & 0x80) * 0xff0000u;
        d[i] = (vec)((code & 0x80) << 24 | magnitude << 20 | nan) * vec_set(0x1p112f);
    }
#endif
}

/* 2 LANES floats apart into even and odd ones. */
SIMD_INLINE void deinterleave(const float *from, vec *even, vec *odd)
{
    vec a = vec_load(from), b = vec_load(from + LANES);
#ifdef __AVX512F__
    __m512i step = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    *even = (vec)_mm512_permutex2var_ps((__m512)a, step, (__m512)b);
    *odd = (vec)_mm512_permutex2var_ps((__m512)a, _mm512_add_epi32(step, _mm512_set1_epi32(1)), (__m512)b);
#elif defined(__clang__)
    *even = __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14);
    *odd = __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15);
#else
    *even = __builtin_shuffle(a, b, (veci){0, 2, 4, 6, 8, 10, 12, 14});
    *odd = __builtin_shuffle(a, b, (veci){1, 3, 5, 7, 9, 11, 13, 15});
#endif
}

/* One unit of the other factor in the order in which the weights of that type are decoded, vectors `apart` floats
 * apart. */
SIMD_INLINE void simd_reorder(enum k3_dtype dtype, const float *from, float *to, int64_t apart)
{
#ifdef __AVX512F__
    if (dtype == K3_FP8_E4M3 || dtype == K3_MXFP8)
        dtype = K3_F32;
#endif
    for (int i = 0; i < UNIT; i += 2 * LANES, to += 2 * apart) {
        vec even = vec_load(from + i), odd = vec_load(from + i + LANES);
        if (dtype != K3_F32)
            deinterleave(from + i, &even, &odd);
#if defined(__AVX2__) && !defined(__AVX512F__)
        if (dtype == K3_MXFP4) { /* and once more: the even columns lie in a register's low half, the odd in its high */
            __m256 e = (__m256)even, o = (__m256)odd;
            __m256 low = _mm256_permute2f128_ps(e, o, 0x20);  /* 0 2 4 6 1 3 5 7 */
            __m256 high = _mm256_permute2f128_ps(e, o, 0x31); /* 8 10 12 14 9 11 13 15 */
            even = (vec)_mm256_shuffle_ps(low, high, 0x88);   /* 0 4 8 12 1 5 9 13 */
            odd = (vec)_mm256_shuffle_ps(low, high, 0xdd);    /* 2 6 10 14 3 7 11 15 */
        }
#endif
        vec_store(to, even);
        vec_store(to + apart, odd);
    }
}

/* to[j * to_apart + i] = from[i * from_apart + j] for i, j < 8 */
SIMD_INLINE void transpose8(const float *from, int64_t from_apart, float *to, int64_t to_apart)
{
#ifdef __AVX2__
    __m256 a[8], b[8];
    UNROLL
    for (int i = 0; i < 8; i++)
        a[i] = _mm256_loadu_ps(from + i * from_apart);
    UNROLL
    for (int i = 0; i < 8; i += 2) { /* of rows i and i + 1: columns 0 1 4 5, 2 3 6 7 */
        b[i] = _mm256_unpacklo_ps(a[i], a[i + 1]);
        b[i + 1] = _mm256_unpackhi_ps(a[i], a[i + 1]);
    }
    UNROLL
    for (int i = 0; i < 8; i += 4) /* of rows i to i + 3: columns j and j + 4 */
        for (int j = 0; j < 2; j++) {
            a[i + 2 * j] = _mm256_shuffle_ps(b[i + j], b[i + 2 + j], 0x44);
            a[i + 2 * j + 1] = _mm256_shuffle_ps(b[i + j], b[i + 2 + j], 0xee);
        }
    UNROLL
    for (int j = 0; j < 4; j++) {
        _mm256_storeu_ps(to + j * to_apart, _mm256_permute2f128_ps(a[j], a[j + 4], 0x20));
        _mm256_storeu_ps(to + (j + 4) * to_apart, _mm256_permute2f128_ps(a[j], a[j + 4], 0x31));
    }
#else
    for (int i = 0; i < 8; i++)
        for (int j = 0; j < 8; j++)
            to[j * to_apart + i] = from[i * from_apart + j];
#endif
}

#endif
