/* experts.cu - y[t] = sum_j weight[t,j] w2_e SiTU(w1_e z[t], w3_e z[t]), e = id[t,j]
 *
 * One warp an inner activation of a (row, choice) pair; then one warp an output, which adds up the choices in order. */
#include "kernels/cuda/matrix.h"
#include "kernels/cuda/situ.h"

enum { WARPS = 8 };

struct expert_matrix {
    struct cuda_matrix first;
    int64_t data_step, scale_step;

    __device__ struct cuda_matrix of(int64_t e) const
    {
        struct cuda_matrix m = first;
        m.data = (const char *)m.data + e * data_step;
        m.scale += e * scale_step;
        return m;
    }
};

static struct expert_matrix matrix_of(const struct kern_expert_matrix *m)
{
    return (struct expert_matrix){cuda_matrix_of(&m->first), m->data_step, m->scale_step};
}

__device__ static float dot(const struct cuda_matrix &w, int64_t o, const float *x)
{
    float sum = 0;
    for (int64_t i = threadIdx.x % 32; i < w.cols; i += 32)
        sum += w.at(o, i) * x[i];
    return cuda_warp_sum(sum);
}

static __global__ void inner_part(const float *z, int64_t z_stride, const int32_t *id, int topk,
                                  struct expert_matrix w1, struct expert_matrix w3, float *h, float beta,
                                  float linear_beta)
{
    int64_t groups = (w1.first.rows + WARPS - 1) / WARPS, p = blockIdx.x / groups;
    int64_t i = blockIdx.x % groups * WARPS + threadIdx.x / 32;

    cuda_next();
    cuda_wait();
    if (i >= w1.first.rows)
        return;
    const float *x = z + p / topk * z_stride;
    float gate = dot(w1.of(id[p]), i, x), up = dot(w3.of(id[p]), i, x);
    if (threadIdx.x % 32 == 0)
        h[p * w1.first.rows + i] = cuda_situ_of(gate, up, beta, linear_beta);
}

static __global__ void outer_part(const float *h, const int32_t *id, const float *weight, int topk,
                                  struct expert_matrix w2, float *y, int64_t y_stride)
{
    int64_t groups = (w2.first.rows + WARPS - 1) / WARPS, t = blockIdx.x / groups;
    int64_t l = blockIdx.x % groups * WARPS + threadIdx.x / 32;
    float sum = 0;

    cuda_next();
    cuda_wait();
    if (l >= w2.first.rows)
        return;
    for (int64_t p = t * topk; p < (t + 1) * topk; p++)
        sum += weight[p] * dot(w2.of(id[p]), l, h + p * w2.first.cols);
    if (threadIdx.x % 32 == 0)
        y[t * y_stride + l] = sum;
}

static int run_rows(const struct experts_args *a, struct k3_stream *s, int64_t t0, int64_t rows)
{
    int64_t inner = a->w1->first.rows, width = a->z->cols;
    float *h = (float *)cuda_of(s)->workspace;
    unsigned inner_grid = (unsigned)(rows * a->topk * ((inner + WARPS - 1) / WARPS));
    unsigned outer_grid = (unsigned)(rows * ((width + WARPS - 1) / WARPS));

    if (cuda_launch(s, "experts", inner_part, inner_grid, WARPS * 32, 0, (const float *)a->z->data + t0 * a->z->stride,
                    a->z->stride, a->id + t0 * a->topk, a->topk, matrix_of(a->w1), matrix_of(a->w3), h, a->beta,
                    a->linear_beta) < 0)
        return -1;
    return cuda_launch(s, "experts", outer_part, outer_grid, WARPS * 32, 0, h, a->id + t0 * a->topk,
                       a->weight + t0 * a->topk, a->topk, matrix_of(a->w2), (float *)a->y->data + t0 * a->y->stride,
                       a->y->stride);
}

extern "C" int cuda_experts(const struct experts_args *a, struct k3_stream *s)
{
    int64_t bytes = a->topk * (a->w1->first.rows + 1) * (int64_t)sizeof(float);
    int64_t room = (int64_t)cuda_of(s)->workspace_bytes / bytes, rows = a->z->rows;

    if (room == 0) {
        errno = EINVAL;
        return -1;
    }
    for (int64_t t = 0; t < rows; t += room)
        if (run_rows(a, s, t, rows - t < room ? rows - t : room) < 0)
            return -1;
    return 0;
}
