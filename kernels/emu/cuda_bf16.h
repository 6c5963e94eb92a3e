/* cuda_bf16.h - stand-in: BF16 as far as the kernels use it, rounded to nearest even */
#ifndef K3_KERNELS_EMU_CUDA_BF16_H
#define K3_KERNELS_EMU_CUDA_BF16_H

#include "kernels/emu/cuda_runtime.h"

struct __nv_bfloat16 {
    uint16_t bits;
};
struct alignas(4) __nv_bfloat162 {
    struct __nv_bfloat16 x, y;
};

static inline float __bfloat162float(struct __nv_bfloat16 b)
{
    return __uint_as_float((uint32_t)b.bits << 16);
}

static inline struct __nv_bfloat16 __float2bfloat16(float f)
{
    uint32_t bits = __float_as_uint(f);

    if (f != f)
        return {0x7fff};
    return {(uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16)};
}

static inline struct __nv_bfloat162 __floats2bfloat162_rn(float a, float b)
{
    return {__float2bfloat16(a), __float2bfloat16(b)};
}

static inline float __low2float(struct __nv_bfloat162 p)
{
    return __bfloat162float(p.x);
}

static inline float __high2float(struct __nv_bfloat162 p)
{
    return __bfloat162float(p.y);
}

static inline struct float2 __bfloat1622float2(struct __nv_bfloat162 p)
{
    return {__low2float(p), __high2float(p)};
}

#endif
