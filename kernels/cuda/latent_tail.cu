/* latent_tail.cu - the norm of the latent sum beside SiTU of the shared experts, then both projections
 *
 * Norm and SiTU do not wait for each other: one launch, of two blocks a row.  All fp32. */
#include "kernels/cuda/rows.h"
#include "kernels/cuda/situ.h"

enum { THREADS = 512 };

struct tail {
    struct cuda_rows sum, gate, up;
    struct cuda_vector w; /* data NULL: no norm */
    int latent, shared;
    float eps, beta, linear_beta;
};

__device__ static void norm(float *x, const struct tail &p, float *room)
{
    float square = 0;

    for (int i = (int)threadIdx.x * 4; i < p.latent; i += THREADS * 4) {
        float4 v = cuda_load4(x, i, p.latent);
        square += cuda_dot4(v, v);
    }
    float r = 1.0f / sqrtf(cuda_block_sum(square, room) / (float)p.latent + p.eps);
    for (int i = (int)threadIdx.x * 4; i < p.latent; i += THREADS * 4) {
        float4 v = cuda_load4(x, i, p.latent), u = cuda_load4(p.w, i, p.latent);
        cuda_store4(x, i, p.latent, make_float4(v.x * r * u.x, v.y * r * u.y, v.z * r * u.z, v.w * r * u.w));
    }
}

__global__ static void __launch_bounds__(THREADS) prepare(const __grid_constant__ struct tail p)
{
    __shared__ float room[THREADS / 32];
    int64_t t = blockIdx.x;

    cuda_wait();
    cuda_next();
    if (blockIdx.y == 1)
        norm(p.sum[t], p, room);
    else
        for (int i = (int)threadIdx.x; i < p.shared; i += THREADS)
            p.gate[t][i] = cuda_situ_of(p.gate[t][i], p.up[t][i], p.beta, p.linear_beta);
}

extern "C" int cuda_latent_tail(const struct latent_tail_args *a, struct k3_stream *s)
{
    struct tail p = {cuda_rows_of(a->norm.x), cuda_rows_of(a->situ.gate), cuda_rows_of(a->situ.up), {NULL, 0},
                     (int)a->norm.x->cols, (int)a->situ.gate->cols, a->norm.eps, a->situ.beta, a->situ.linear_beta};

    if (a->situ.y->data != a->situ.gate->data || a->norm.x->cols > INT32_MAX || a->situ.gate->cols > INT32_MAX) {
        errno = EINVAL;
        return -1;
    }
    if (a->norm.w)
        p.w = cuda_vector_of(a->norm.w);
    if (cuda_launch(s, "latent_tail", prepare, dim3((unsigned)a->up.x->rows, a->norm.w ? 2 : 1), THREADS, 0, p) < 0)
        return -1;
    return cuda_linear(&a->up, s) < 0 ? -1 : cuda_linear(&a->down, s);
}
