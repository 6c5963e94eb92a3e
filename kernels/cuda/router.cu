/* router.cu - which experts a token goes to, and their weights (SPEC 4.6 steps 1 to 3)
 *
 * A block a row, a thread an expert.  The topk-th best of the warps' best scores is a lower limit for what is chosen:
 * the few experts that reach it are put in order by counting those that are better.  All fp32. */
#include "kernels/cuda/rows.h"

enum { MOST = 1024, WARPS = MOST / 32 };

/* Orders as the scores do, and an expert before those of the same score that follow it. */
__device__ static uint64_t rank_key(float score, int expert)
{
    uint32_t bits = __float_as_uint(score + 0.0f); /* -0 is 0 */

    bits ^= bits >> 31 ? 0xffffffffu : 0x80000000u;
    return (uint64_t)bits << 32 | (uint32_t)(MOST - 1 - expert);
}

__device__ static int expert_of(uint64_t key)
{
    return MOST - 1 - (int)(uint32_t)key;
}

__device__ static uint64_t warp_max(uint64_t key)
{
    for (int d = 16; d > 0; d >>= 1) {
        uint64_t other = __shfl_xor_sync(0xffffffffu, key, d);
        key = other > key ? other : key;
    }
    return key;
}

/* How many of the warp's lanes hold a larger key. */
__device__ static int warp_rank(uint64_t key)
{
    int rank = 0;

    for (int lane = 0; lane < 32; lane++)
        rank += __shfl_sync(0xffffffffu, key, lane) > key;
    return rank;
}

/* Whether the expert's group is among the topk_group best: a group's score is the sum of its two best. */
__device__ static bool group_kept(float biased, int experts, int groups, int topk_group, float *score, float *group)
{
    int size = experts / groups, e = (int)threadIdx.x, better = 0;

    if (e < experts)
        score[e] = biased;
    __syncthreads();
    for (int g = e; g < groups; g += (int)blockDim.x) {
        float first = -INFINITY, second = -INFINITY;
        for (int i = g * size; i < (g + 1) * size; i++) {
            second = fmaxf(second, fminf(first, score[i]));
            first = fmaxf(first, score[i]);
        }
        group[g] = size > 1 ? first + second : first;
    }
    __syncthreads();
    if (e >= experts)
        return false;
    for (int g = 0, mine = e / size; g < groups; g++)
        better += group[g] > group[mine] || (group[g] == group[mine] && g < mine);
    return better < topk_group;
}

__global__ static void __launch_bounds__(MOST)
    choose(struct cuda_rows logits, const float *bias, int32_t *id, float *weight, int experts, int topk, int groups,
           int topk_group, int renormalize, float scaling)
{
    __shared__ float score[MOST], group[MOST], picked[K3_MAX_TOPK];
    __shared__ uint64_t best[WARPS], candidate[MOST];
    __shared__ int candidates;
    int e = (int)threadIdx.x, warps = (int)blockDim.x / 32;
    uint64_t key = 0, limit = 0;
    float b = e < experts ? bias[e] : 0;

    cuda_wait();
    cuda_next();
    id += (int64_t)blockIdx.x * topk;
    weight += (int64_t)blockIdx.x * topk;
    float logit = e < experts ? logits[blockIdx.x][e] : 0, s = cuda_sigmoid(logit);
    if (e == 0)
        candidates = 0;
    if (__syncthreads_or(!isfinite(logit))) {
        if (e < topk) {
            id[e] = e;
            weight[e] = NAN;
        }
        return;
    }
    if (groups > 1 ? group_kept(s + b, experts, groups, topk_group, score, group) : e < experts)
        key = rank_key(s + b, e);
    uint64_t most = warp_max(key);
    if (e % 32 == 0)
        best[e / 32] = most;
    __syncthreads(); /* also: group_kept() has read the scores */
    if (e < experts)
        score[e] = s;
    if (warps >= topk) {
        uint64_t mine = e % 32 < warps ? best[e % 32] : 0;
        limit = warp_max(warp_rank(mine) == topk - 1 ? mine : 0);
    }
    if (key != 0 && key >= limit)
        candidate[atomicAdd(&candidates, 1)] = key; /* in any order: they are counted */
    __syncthreads();
    if (e < candidates) {
        uint64_t mine = candidate[e];
        int rank = 0;
        for (int i = 0; i < candidates; i++)
            rank += candidate[i] > mine;
        if (rank < topk) {
            id[rank] = expert_of(mine);
            picked[rank] = score[expert_of(mine)];
        }
    }
    __syncthreads();
    if (e < topk) {
        float sum = 0;
        for (int j = 0; j < topk; j++)
            sum += picked[j];
        weight[e] = picked[e] / (renormalize ? sum + 1e-20f : 1) * scaling;
    }
}

extern "C" int cuda_router(const struct router_args *a, struct k3_stream *s)
{
    int experts = (int)a->logits->cols;

    if (a->logits->cols > MOST) {
        errno = EINVAL;
        return -1;
    }
    return cuda_launch(s, "router", choose, (unsigned)a->logits->rows, (experts + 31) / 32 * 32, 0,
                       cuda_rows_of(a->logits), (const float *)a->bias->data, a->id, a->weight, experts, a->topk,
                       a->groups, a->topk_group, a->renormalize, a->scaling);
}
