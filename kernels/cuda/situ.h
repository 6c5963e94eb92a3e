/* situ.h - SiTU of one pair (SPEC 4.1), for situ.cu and experts.cu */
#ifndef K3_KERNELS_CUDA_SITU_H
#define K3_KERNELS_CUDA_SITU_H

#include "kernels/cuda/cuda.h"

__device__ static inline float cuda_situ_of(float gate, float up, float beta, float linear_beta)
{
    return linear_beta * tanhf(up / linear_beta) * (beta * tanhf(gate / beta)) * cuda_sigmoid(gate);
}

#endif
