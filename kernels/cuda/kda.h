/* kda.h - what the recurrent and the chunked form of the delta rule share */
#ifndef K3_KERNELS_CUDA_KDA_H
#define K3_KERNELS_CUDA_KDA_H

#include "kernels/cuda/rows.h"

/* The inputs of a step and where o goes.  Where `a_log` is set, g and beta are what kda_gate.cu makes gates of. */
struct kda_delta {
    struct cuda_rows q, k, v, g, beta, o;
    float *state;
    int heads;
    struct kern_batch batch;
    const float *a_log, *dt_bias;
    float lower_bound;
};

/* The sequences of the step that are a prompt's; the others are left alone. */
int cuda_kda_chunks(const struct kda_delta *d, struct k3_stream *s);
/* conv.cu, of the prompts' sequences alone. */
int cuda_conv_prompts(const struct conv_args *a, struct k3_stream *s);

#ifdef __CUDACC__

/* 1 / |x| times a factor, as q and k are normalised. */
__device__ static inline float kda_scale(float sum_of_squares, float factor)
{
    return factor / sqrtf(sum_of_squares + 1e-6f);
}

__device__ static inline float kda_log_decay(const struct kda_delta &a, float g, int head, int channel)
{
    if (!a.a_log)
        return g;
    return a.lower_bound * cuda_sigmoid(expf(a.a_log[head]) * (g + a.dt_bias[channel]));
}

__device__ static inline float kda_beta(const struct kda_delta &a, float beta)
{
    return a.a_log ? cuda_sigmoid(beta) : beta;
}

static constexpr float kda_q_factor = 0.08838834764831845f; /* 128^-1/2 */

#endif

#endif
