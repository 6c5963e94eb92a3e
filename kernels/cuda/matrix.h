/* matrix.h - weights on their way into the tensor cores, for linear.cu and experts.cu
 *
 * All products are mma.sync m16n8k16 with 16 rows of x (BF16) as one operand and 8 weight rows as the other, fp32 sums;
 * for few rows of x they may change places.
 * A lane reads 16 bytes of one weight row at a time, a piece; the four lanes of a row make a chunk of 64 bytes.  The
 * columns that one mma adds up are therefore not neighbours: lane l brings columns 8 u ... 8 u + 7 of its piece (a
 * unit), two mma's worth.  x is arranged to match.  An element's sum thus depends on the columns alone: chunks in order
 * within a segment, units in order within a chunk; cuda_segments() says where segments begin, and their sums are added
 * in order.  Kernels for few and for many rows keep to it and give the same bits. */
#ifndef K3_KERNELS_CUDA_MATRIX_H
#define K3_KERNELS_CUDA_MATRIX_H

#include "kernels/cuda/mma.h"

/* Segments of a sum over so many chunks, at most `most`: a power of two. */
__host__ __device__ static inline int cuda_segments(int chunks, int most)
{
    int n = chunks >= 96 ? 16 : chunks >= 24 ? 8 : chunks >= 12 ? 4 : chunks >= 6 ? 2 : 1;

    return n < most ? n : most;
}

#ifdef __CUDACC__

/* c += x w over a unit: 8 columns of rows l / 4 and l / 4 + 8 of x, `lo` and `hi`, and of weight row l / 4. */
__device__ static inline void cuda_mma_unit(float (&c)[4], const uint4 &lo, const uint4 &hi, const uint4 &w)
{
    uint32_t first[4] = {lo.x, hi.x, lo.y, hi.y}, second[4] = {lo.z, hi.z, lo.w, hi.w};
    cuda_mma(c, first, w.x, w.y);
    cuda_mma(c, second, w.z, w.w);
}

/* The same with 16 weight rows, l / 4 and l / 4 + 8, as the first operand, and row l / 4 of 8 rows of x as the second:
 * c is [weight row][row of x]. */
__device__ static inline void cuda_mma_few(float (&c)[4], const uint4 &low, const uint4 &high, const uint4 &x)
{
    uint32_t first[4] = {low.x, high.x, low.y, high.y}, second[4] = {low.z, high.z, low.w, high.w};
    cuda_mma(c, first, x.x, x.y);
    cuda_mma(c, second, x.z, x.w);
}

/* Until no more than so many of this thread's groups of copies are under way. */
__device__ static inline void cuda_copies_wait_for(int left)
{
    if (left >= 15)
        cuda_copies_wait<15>();
    else if (left >= 11)
        cuda_copies_wait<11>();
    else if (left >= 7)
        cuda_copies_wait<7>();
    else if (left >= 5)
        cuda_copies_wait<5>();
    else if (left >= 3)
        cuda_copies_wait<3>();
    else if (left == 2)
        cuda_copies_wait<2>();
    else
        cuda_copies_wait<1>();
}

/* One weight row. */
struct cuda_weights {
    const uint8_t *data, *scale;
};

/* Eight BF16 numbers times a factor, which is in both of its halves. */
__device__ static inline uint4 cuda_times(const uint4 &v, uint32_t factor)
{
    return make_uint4(cuda_multiply2(v.x, factor), cuda_multiply2(v.y, factor), cuda_multiply2(v.z, factor),
                      cuda_multiply2(v.w, factor));
}

/* Formats: CHUNK columns make a chunk, UNITS units a piece; SCALED pieces have a scale each, ROW_SCALED rows one that
 * multiplies their sums. */

/* BF16: pieces of 8 columns, in the order of memory. */
struct cuda_bf16 {
    enum { CHUNK = 32, UNITS = 1, SCALED = 0, ROW_SCALED = 0 };

    __device__ static struct cuda_weights row(const void *data, const void *, int64_t stride, int64_t r)
    {
        return (struct cuda_weights){(const uint8_t *)data + r * stride * 2, NULL};
    }

    __device__ static uint4 load(const struct cuda_weights &w, int k, int n)
    {
        const uint16_t *from = (const uint16_t *)w.data + k;
        uint32_t e[8];
        for (int i = 0; i < 8; i++)
            e[i] = k + i < n ? from[i] : 0;
        return make_uint4(e[0] | e[1] << 16, e[2] | e[3] << 16, e[4] | e[5] << 16, e[6] | e[7] << 16);
    }

    /* Columns k ... of a row of n, zeros behind them, into shared memory: there when this thread's group of copies is.
     * FAST: rows begin at multiples of 16 bytes. */
    template <bool FAST> __device__ static void copy(uint4 *to, const struct cuda_weights &w, int k, int n)
    {
        if (FAST && k < n)
            cuda_copy16(to, w.data + (int64_t)k * 2, true);
        else
            *to = load(w, k, n);
    }

    template <bool FAST> __device__ static uint4 fetch(const struct cuda_weights &w, int k, int n)
    {
        return FAST ? __ldcs((const uint4 *)(w.data + (int64_t)k * 2)) : load(w, k, n);
    }

    __device__ static uint32_t scale(const struct cuda_weights &, int, int)
    {
        return 0;
    }

    __device__ static bool is_plain(uint32_t)
    {
        return true;
    }

    template <bool PLAIN = true> __device__ static uint4 unit(const uint4 &piece, uint32_t, int)
    {
        return piece;
    }

    /* Where column i of a unit lies in it. */
    __device__ static int place(int i)
    {
        return i;
    }

    /* Eight columns of x as a unit of w has them. */
    __device__ static uint4 pack(const float4 &a, const float4 &b)
    {
        return make_uint4(cuda_bf16x2(a.x, a.y), cuda_bf16x2(a.z, a.w), cuda_bf16x2(b.x, b.y), cuda_bf16x2(b.z, b.w));
    }
};

/* MXFP4: a piece is one block of 32 columns under one scale; columns i and i + 4 of a unit lie together.
 *
 * An e2m1 code, its three low bits at the top of a BF16's mantissa and the bottom of its exponent, is the BF16 number
 * 2^-126 times the code's value, subnormal ones included; one multiplication by 2^126 times the scale makes it right.
 */
struct cuda_mxfp4 {
    enum { CHUNK = 128, UNITS = 4, SCALED = 1, ROW_SCALED = 0 };

    __device__ static struct cuda_weights row(const void *data, const void *scale, int64_t stride, int64_t r)
    {
        return (struct cuda_weights){(const uint8_t *)data + r * stride / 2,
                                     (const uint8_t *)scale + r * stride / K3_MX_BLOCK};
    }

    __device__ static uint4 load(const struct cuda_weights &w, int k, int n)
    {
        uint32_t e[4] = {};
        for (int i = 0; i < 16 && k < n; i++)
            e[i / 4] |= (uint32_t)w.data[k / 2 + i] << i % 4 * 8;
        return make_uint4(e[0], e[1], e[2], e[3]);
    }

    template <bool FAST> __device__ static void copy(uint4 *to, const struct cuda_weights &w, int k, int n)
    {
        if (FAST && k < n)
            cuda_copy16(to, w.data + k / 2, true);
        else
            *to = load(w, k, n);
    }

    template <bool FAST> __device__ static uint4 fetch(const struct cuda_weights &w, int k, int n)
    {
        return FAST ? __ldcs((const uint4 *)(w.data + k / 2)) : load(w, k, n);
    }

    __device__ static uint32_t scale(const struct cuda_weights &w, int k, int n)
    {
        return k < n ? __ldg(w.scale + k / K3_MX_BLOCK) : 0;
    }

    /* Whether one BF16 factor can say the scale: those of real weights, and no NaN. */
    __device__ static bool is_plain(uint32_t scale)
    {
        return scale <= 128;
    }

    template <bool PLAIN = false> __device__ static uint4 unit(const uint4 &piece, uint32_t scale, int u)
    {
        uint32_t v = u == 0 ? piece.x : u == 1 ? piece.y : u == 2 ? piece.z : piece.w;
        uint32_t factor = (PLAIN ? scale + 126 : min(scale + 126, 254u)) * 0x800080u;
        uint4 r = make_uint4(
            (v << 12 & 0x80008000u) | (v << 6 & 0x01c001c0u), (v << 8 & 0x80008000u) | (v << 2 & 0x01c001c0u),
            (v << 4 & 0x80008000u) | (v >> 2 & 0x01c001c0u), (v & 0x80008000u) | (v >> 6 & 0x01c001c0u));
        r = cuda_times(r, factor);
        if (!PLAIN && scale > 128) { /* 255 is NaN */
            factor = scale == 255 ? 0x7fc07fc0u : (scale - 1) * 0x800080u;
            r = cuda_times(r, factor);
        }
        return r;
    }

    __device__ static int place(int i)
    {
        return i % 4 * 2 + i / 4;
    }

    __device__ static uint4 pack(const float4 &a, const float4 &b)
    {
        return make_uint4(cuda_bf16x2(a.x, b.x), cuda_bf16x2(a.y, b.y), cuda_bf16x2(a.z, b.z), cuda_bf16x2(a.w, b.w));
    }
};

/* e4m3: pieces of 16 columns; columns i and i + 2 of each four of a unit lie together.
 *
 * A code without its sign, at the top of a BF16's mantissa and the bottom of its exponent, is the BF16 number 2^-120
 * times the code's value, subnormal ones included; one multiplication makes it right. */
struct cuda_e4m3 {
    enum { CHUNK = 64, UNITS = 2 };

    __device__ static uint4 load(const struct cuda_weights &w, int k, int n)
    {
        uint32_t e[4] = {};
        for (int i = 0; i < 16; i++)
            e[i / 4] |= (k + i < n ? (uint32_t)w.data[k + i] : 0) << i % 4 * 8;
        return make_uint4(e[0], e[1], e[2], e[3]);
    }

    template <bool FAST> __device__ static void copy(uint4 *to, const struct cuda_weights &w, int k, int n)
    {
        if (FAST && k < n)
            cuda_copy16(to, w.data + k, true);
        else
            *to = load(w, k, n);
    }

    template <bool FAST> __device__ static uint4 fetch(const struct cuda_weights &w, int k, int n)
    {
        return FAST ? __ldcs((const uint4 *)(w.data + k)) : load(w, k, n);
    }

    /* A half of v that holds the code of NaN becomes a NaN of BF16. */
    __device__ static uint32_t with_nan(uint32_t v)
    {
        return v | (((v & 0x07f007f0u) + 0x00100010u) & 0x08000800u) * 15;
    }

    /* 2^-120 times the values of a unit. */
    __device__ static uint4 small(const uint4 &piece, int u)
    {
        uint32_t a = u == 0 ? piece.x : piece.z, b = u == 0 ? piece.y : piece.w;
        uint4 r =
            make_uint4((a << 8 & 0x80008000u) | (a << 4 & 0x07f007f0u), (a & 0x80008000u) | (a >> 4 & 0x07f007f0u),
                       (b << 8 & 0x80008000u) | (b << 4 & 0x07f007f0u), (b & 0x80008000u) | (b >> 4 & 0x07f007f0u));
        if ((((a & 0x7f7f7f7fu) + 0x01010101u) | ((b & 0x7f7f7f7fu) + 0x01010101u)) & 0x80808080u)
            r = make_uint4(with_nan(r.x), with_nan(r.y), with_nan(r.z), with_nan(r.w));
        return r;
    }

    __device__ static uint4 pack(const float4 &a, const float4 &b)
    {
        return make_uint4(cuda_bf16x2(a.x, a.z), cuda_bf16x2(a.y, a.w), cuda_bf16x2(b.x, b.z), cuda_bf16x2(b.y, b.w));
    }
};

/* e4m3 under a scale a row. */
struct cuda_fp8 : cuda_e4m3 {
    enum { SCALED = 0, ROW_SCALED = 1 };

    __device__ static struct cuda_weights row(const void *data, const void *, int64_t stride, int64_t r)
    {
        return (struct cuda_weights){(const uint8_t *)data + r * stride, NULL};
    }

    __device__ static uint32_t scale(const struct cuda_weights &, int, int)
    {
        return 0;
    }

    __device__ static uint4 unit(const uint4 &piece, uint32_t, int u)
    {
        return cuda_times(small(piece, u), 247 * 0x800080u); /* 2^120 */
    }
};

/* e4m3 under a scale a block of 32 columns: two pieces.  What lies below BF16's least subnormal number, 2^-133, is
 * rounded to it. */
struct cuda_mxfp8 : cuda_e4m3 {
    enum { SCALED = 1, ROW_SCALED = 0 };

    __device__ static struct cuda_weights row(const void *data, const void *scale, int64_t stride, int64_t r)
    {
        return (struct cuda_weights){(const uint8_t *)data + r * stride,
                                     (const uint8_t *)scale + r * stride / K3_MX_BLOCK};
    }

    __device__ static uint32_t scale(const struct cuda_weights &w, int k, int n)
    {
        return k < n ? __ldg(w.scale + k / K3_MX_BLOCK) : 0;
    }

    __device__ static uint4 unit(const uint4 &piece, uint32_t scale, int u)
    {
        uint4 r = cuda_times(small(piece, u), min(scale + 120, 254u) * 0x800080u);
        if (scale > 134) /* what one BF16 factor cannot say; 255 is NaN */
            r = cuda_times(r, scale == 255 ? 0x7fc07fc0u : (scale - 7) * 0x800080u);
        return r;
    }
};

#endif

#endif
