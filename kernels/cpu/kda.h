/* kda.h - what the two forms of the gated delta rule share */
#ifndef K3_KERNELS_CPU_KDA_H
#define K3_KERNELS_CPU_KDA_H

#include <math.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/norm.h"

enum { D = K3_HEAD_DIM };

/* What a head's q and k are multiplied by: their L2 norms become 128^-1/2 and 1. */
static inline float kda_q_scale(const float *q)
{
    return 0.08838834764831845f / sqrtf(norm_dot(q, q, D) + 1e-6f);
}

static inline float kda_k_scale(const float *k)
{
    return 1 / sqrtf(norm_dot(k, k, D) + 1e-6f);
}

/* Head h of the rows of sequence i in the chunked form; `state` is [v][k], as in struct kda_args. */
void CPU(kda_chunks)(struct cpu_worker *w, const struct kda_args *a, int i, int h, float *state);

#endif
