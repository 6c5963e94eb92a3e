/* attnres.cu - the mixture of the block snapshots and the running residual (SPEC 4.3, "mix"), and the norm behind it
 *
 * A row is cut into SPLITS parts.  Where rows are few, a team of as many blocks shares a row: each reads its part of
 * every candidate once, keeps it in registers, and meets the others twice, for the scores and for the norm.  Else a
 * block does the parts of a row one after the other and reads them twice.  The order of every sum is the same: over the
 * lanes and warps of a part, then over the parts.  All fp32. */
#include "kernels/cuda/rows.h"

enum { SPLITS = 8, THREADS = 224, WARPS = THREADS / 32, MOST = K3_MAX_SNAPSHOTS + 1, SUMS = 2 * MOST };

struct mixture {
    struct cuda_rows v[MOST]; /* the candidates */
    int count;
    struct cuda_vector norm, proj, out;
    struct cuda_rows y;
    int64_t n;
    int part; /* columns of a part: a multiple of 4 */
    float eps;
    float *sums;       /* teams: [rows, SPLITS, SUMS + 1] */
    unsigned *meeting; /* teams: [rows], 0 */
};

__device__ static float4 times(float4 a, float4 b)
{
    return make_float4(a.x * b.x, a.y * b.y, a.z * b.z, a.w * b.w);
}

/* A part's sums over the block, two a candidate: v . (norm * proj) and v . v.  They go to `to`, in any memory. */
__device__ static void add_up(const float *dot, const float *square, int count, float (*room)[SUMS], float *to)
{
    int warp = (int)threadIdx.x / 32;

#pragma unroll
    for (int i = 0; i < MOST; i++)
        if (i < count) {
            float d = cuda_warp_sum(dot[i]), s = cuda_warp_sum(square[i]);
            if (threadIdx.x % 32 == 0)
                room[warp][2 * i] = d, room[warp][2 * i + 1] = s;
        }
    __syncthreads();
    if (threadIdx.x < 2 * count) {
        float sum = 0;
        for (int w = 0; w < WARPS; w++)
            sum += room[w][threadIdx.x];
        to[threadIdx.x] = sum;
    }
}

/* What a block knows of its row. */
struct shared {
    float room[WARPS][SUMS], sums[SPLITS][SUMS], square[SPLITS], total[SUMS], weight[MOST];
};

/* The candidates' weights from the parts' sums, for every thread. */
__device__ static void weigh(const struct mixture &m, struct shared *sh)
{
    __syncthreads();
    if (threadIdx.x < 2 * m.count) {
        float sum = 0;
        for (int s = 0; s < SPLITS; s++)
            sum += sh->sums[s][threadIdx.x];
        sh->total[threadIdx.x] = sum;
    }
    __syncthreads();
    if (threadIdx.x < 32) {
        int i = (int)threadIdx.x;
        float score = i < m.count ? sh->total[2 * i] / sqrtf(sh->total[2 * i + 1] / (float)m.n + m.eps) : -INFINITY;
        float w = expf(score - cuda_warp_max(score)), all = cuda_warp_sum(w);
        if (i < m.count)
            sh->weight[i] = w / all;
    }
    __syncthreads();
}

__device__ static float4 mixed(const struct mixture &m, const float4 *v, const float *weight)
{
    float4 y = make_float4(0, 0, 0, 0);

    if (m.count == 1)
        return v[0];
#pragma unroll
    for (int i = 0; i < MOST; i++)
        if (i < m.count)
            y = make_float4(y.x + weight[i] * v[i].x, y.y + weight[i] * v[i].y, y.z + weight[i] * v[i].z,
                            y.w + weight[i] * v[i].w);
    return y;
}

/* One over the root mean square of the mixture, from its parts' sums of squares. */
__device__ static float scale_of(const struct mixture &m, const struct shared *sh)
{
    float sum = 0;

    __syncthreads();
    for (int s = 0; s < SPLITS; s++)
        sum += sh->square[s];
    return 1.0f / sqrtf(sum / (float)m.n + m.eps);
}

/* --- a team a row --------------------------------------------------------------------------------------------------
 */

/* Until all blocks of the team have come for the n-th time.  What they wrote before can be read. */
__device__ static void meet(unsigned *meeting, unsigned n)
{
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        atomicAdd(meeting, 1);
        while (*(volatile unsigned *)meeting < n * SPLITS)
            ;
        __threadfence();
    }
    __syncthreads();
}

/* The last to leave clears the counter. */
__device__ static void leave(unsigned *meeting, unsigned n)
{
    if (threadIdx.x == 0 && atomicAdd(meeting, 1) == (n + 1) * SPLITS - 1)
        *meeting = 0;
}

__global__ static void __launch_bounds__(THREADS) mix_in_teams(const __grid_constant__ struct mixture m)
{
    __shared__ struct shared sh;
    int64_t t = blockIdx.y, d = (int64_t)blockIdx.x * m.part + threadIdx.x * 4;
    int64_t end = min(m.n, (int64_t)(blockIdx.x + 1) * m.part);
    float *sums = m.sums + t * SPLITS * (SUMS + 1);
    float4 v[MOST], w = make_float4(0, 0, 0, 0), out = w;
    float dot[MOST], square[MOST];
    unsigned met = 0;

    if (m.count > 1)
        w = times(cuda_load4(m.norm, d, end), cuda_load4(m.proj, d, end));
    if (m.out.data)
        out = cuda_load4(m.out, d, end);
    cuda_wait();
    cuda_next();
#pragma unroll
    for (int i = 0; i < MOST; i++)
        if (i < m.count)
            v[i] = cuda_load4(m.v[i][t], d, end);
    if (m.count > 1) {
#pragma unroll
        for (int i = 0; i < MOST; i++)
            if (i < m.count)
                dot[i] = cuda_dot4(v[i], w), square[i] = cuda_dot4(v[i], v[i]);
        add_up(dot, square, m.count, sh.room, sums + blockIdx.x * (SUMS + 1));
        meet(m.meeting + t, ++met);
        for (int j = (int)threadIdx.x; j < SPLITS * 2 * m.count; j += THREADS) {
            int s = j / (2 * m.count), k = j % (2 * m.count);
            sh.sums[s][k] = __ldcg(sums + s * (SUMS + 1) + k); /* others wrote it: past the first-level cache */
        }
        weigh(m, &sh);
    }
    float4 y = mixed(m, v, sh.weight);
    if (m.out.data) {
        float sum = cuda_block_sum(cuda_dot4(y, y), sh.room[0]);
        if (threadIdx.x == 0)
            sums[blockIdx.x * (SUMS + 1) + SUMS] = sum;
        meet(m.meeting + t, ++met);
        if (threadIdx.x < SPLITS)
            sh.square[threadIdx.x] = __ldcg(sums + threadIdx.x * (SUMS + 1) + SUMS);
        float r = scale_of(m, &sh);
        y = make_float4(y.x * r * out.x, y.y * r * out.y, y.z * r * out.z, y.w * r * out.w);
    }
    cuda_store4(m.y[t], d, end, y);
    leave(m.meeting + t, met);
}

/* --- a block a row -------------------------------------------------------------------------------------------------
 */

/* The sums of one part. */
__device__ static void score_part(const struct mixture &m, int64_t t, int part, struct shared *sh)
{
    int64_t begin = (int64_t)part * m.part, end = min(m.n, begin + m.part);
    float dot[MOST] = {}, square[MOST] = {};

    for (int64_t d = begin + threadIdx.x * 4; d < end; d += THREADS * 4) {
        float4 w = times(cuda_load4(m.norm, d, end), cuda_load4(m.proj, d, end));
#pragma unroll
        for (int i = 0; i < MOST; i++)
            if (i < m.count) {
                float4 v = cuda_load4(m.v[i][t], d, end);
                dot[i] += cuda_dot4(v, w), square[i] += cuda_dot4(v, v);
            }
    }
    __syncthreads(); /* room was read */
    add_up(dot, square, m.count, sh->room, sh->sums[part]);
}

/* The mixture of one part, and the sum of its squares. */
__device__ static void mix_part(const struct mixture &m, int64_t t, int part, struct shared *sh)
{
    int64_t begin = (int64_t)part * m.part, end = min(m.n, begin + m.part);
    float sum = 0;

    for (int64_t d = begin + threadIdx.x * 4; d < end; d += THREADS * 4) {
        float4 v[MOST];
#pragma unroll
        for (int i = 0; i < MOST; i++)
            if (i < m.count)
                v[i] = cuda_load4(m.v[i][t], d, end);
        float4 y = mixed(m, v, sh->weight);
        cuda_store4(m.y[t], d, end, y);
        sum += cuda_dot4(y, y);
    }
    sum = cuda_block_sum(sum, sh->room[0]);
    if (threadIdx.x == 0)
        sh->square[part] = sum;
}

__global__ static void __launch_bounds__(THREADS) mix_in_blocks(const __grid_constant__ struct mixture m)
{
    __shared__ struct shared sh;
    int64_t t = blockIdx.x;

    cuda_wait();
    cuda_next();
    if (m.count > 1) {
        for (int part = 0; part < SPLITS; part++)
            score_part(m, t, part, &sh);
        weigh(m, &sh);
    }
    for (int part = 0; part < SPLITS; part++)
        mix_part(m, t, part, &sh);
    if (!m.out.data)
        return;
    float r = scale_of(m, &sh);
    for (int part = 0; part < SPLITS; part++) {
        int64_t begin = (int64_t)part * m.part, end = min(m.n, begin + m.part);
        for (int64_t d = begin + threadIdx.x * 4; d < end; d += THREADS * 4) { /* what this thread wrote */
            float4 y = cuda_load4(m.y[t], d, end), out = cuda_load4(m.out, d, end);
            cuda_store4(m.y[t], d, end,
                        make_float4(y.x * r * out.x, y.y * r * out.y, y.z * r * out.z, y.w * r * out.w));
        }
    }
}

/* -------------------------------------------------------------------------------------------------------------------
 */

extern "C" int cuda_attnres(const struct attnres_args *a, struct k3_stream *s)
{
    struct cuda_stream *c = cuda_of(s);
    struct mixture m = {};
    int64_t rows = a->p->rows;

    for (int i = 0; i <= a->snapshots; i++)
        m.v[i] = cuda_rows_of(i < a->snapshots ? &a->snapshot[i] : a->p);
    m.count = a->snapshots + 1;
    if (a->snapshots > 0) {
        m.norm = cuda_vector_of(a->norm);
        m.proj = cuda_vector_of(a->proj);
    }
    if (a->out)
        m.out = cuda_vector_of(a->out);
    m.y = cuda_rows_of(a->y);
    m.n = a->p->cols;
    m.part = (int)((m.n + 4 * SPLITS - 1) / (4 * SPLITS)) * 4;
    m.eps = a->eps;
    m.sums = (float *)c->workspace;
    m.meeting = c->counters;
    /* Teams wait for their own, so all blocks must fit the GPU together: two of them fit an SM. */
    if (m.part <= THREADS * 4 && rows * SPLITS <= 2 * c->sms)
        return cuda_launch(s, "attnres", mix_in_teams, dim3(SPLITS, (unsigned)rows), THREADS, 0, m);
    return cuda_launch(s, "attnres", mix_in_blocks, (unsigned)rows, THREADS, 0, m);
}
