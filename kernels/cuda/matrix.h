/* matrix.h - elements of weight matrices on the device, for linear.cu and experts.cu */
#ifndef K3_KERNELS_CUDA_MATRIX_H
#define K3_KERNELS_CUDA_MATRIX_H

#include "kernels/cuda/cuda.h"

/* e2m1 code times 2^(scale - 127); 255 is NaN (SPEC 3.3). */
__device__ static inline float cuda_mxfp4(unsigned code, unsigned scale)
{
    unsigned e = code >> 1 & 3, m = code & 1;
    float magnitude = e == 0 ? 0.5f * (float)m : (float)((2 + m) << e) * 0.25f;

    if (scale == 255)
        return __int_as_float(0x7fffffff);
    return ldexpf(code & 8 ? -magnitude : magnitude, (int)scale - 127);
}

/* What a kernel needs of a k3_tensor of weights. */
struct cuda_matrix {
    const void *data;
    const uint8_t *scale;
    int dtype;
    int64_t rows, cols, stride;

    __device__ float at(int64_t row, int64_t col) const
    {
        int64_t i = row * stride + col;
        if (dtype == K3_F32)
            return ((const float *)data)[i];
        if (dtype == K3_BF16)
            return __bfloat162float(((const __nv_bfloat16 *)data)[i]);
        return cuda_mxfp4(((const uint8_t *)data)[i / 2] >> (i % 2 * 4) & 15, scale[i / K3_MX_BLOCK]);
    }
};

static inline struct cuda_matrix cuda_matrix_of(const struct k3_tensor *t)
{
    return (struct cuda_matrix){t->data, (const uint8_t *)t->scale, t->dtype, t->rows, t->cols, t->stride};
}

#endif
