/* kda_gate.cu - log decays and betas of Kimi Delta Attention (SPEC 4.4 steps 4 and 5)
 *
 * A thread a value; a head's beta goes with its first channel.  All fp32. */
#include "kernels/cuda/rows.h"

__global__ static void __launch_bounds__(K3_HEAD_DIM)
    gates(struct cuda_rows r, const float *a_log, const float *dt_bias, struct cuda_rows b, struct cuda_rows g,
          struct cuda_rows beta, float lower_bound)
{
    int head = (int)blockIdx.x, c = head * K3_HEAD_DIM + (int)threadIdx.x;
    float rate = expf(a_log[head]), bias = dt_bias[c];

    cuda_wait();
    cuda_next();
    g[blockIdx.y][c] = lower_bound * cuda_sigmoid(rate * (r[blockIdx.y][c] + bias));
    if (threadIdx.x == 0)
        beta[blockIdx.y][head] = cuda_sigmoid(b[blockIdx.y][head]);
}

extern "C" int cuda_kda_gate(const struct kda_gate_args *a, struct k3_stream *s)
{
    return cuda_launch(s, "kda_gate", gates, dim3((unsigned)a->b->cols, (unsigned)a->r->rows), K3_HEAD_DIM, 0,
                       cuda_rows_of(a->r), (const float *)a->a_log->data, (const float *)a->dt_bias->data,
                       cuda_rows_of(a->b), cuda_rows_of(a->g), cuda_rows_of(a->beta), a->lower_bound);
}
