/* attnres.cu - the mixture of the block snapshots and the running residual (SPEC 4.3, "mix"), and the norm behind it
 *
 * A row is cut into PARTS.  Where rows are few, a team of as many blocks shares a row: each reads its part of every
 * candidate once, keeps it in registers, and hears from the others twice, for the scores and for the norm.  Else a
 * block takes a whole row, a warp a part, and reads it twice.  The order of every sum is the same: a lane's columns 128
 * apart, then the lanes, then the parts.  All fp32. */
#include "kernels/cuda/rows.h"

enum {
    PARTS = 8,
    WARPS = 7, /* of a team's block: a thread's four columns are all that it has of a part */
    THREADS = WARPS * 32,
    MOST = K3_MAX_SNAPSHOTS + 1,
    FEW = 9,         /* candidates at most in K3, for which kernels need fewer registers */
    SUMS = 2 * MOST, /* of a part: v . (norm * proj) and v . v for each candidate */
};

/* A sum on its way to the other blocks of a team.  It has come when its tag is the row's number of this launch, which
 * is one more than that of the launch before. */
struct __align__(8) letter
{ /* goes at once */
    float sum;
    unsigned tag;
};
struct team {
    struct letter of[PARTS][SUMS + 1];
    unsigned launches;
};

struct mixture {
    struct cuda_rows v[MOST]; /* the candidates */
    int count;
    struct cuda_vector norm, proj, out;
    struct cuda_rows y, branch; /* branch.data NULL: none */
    int n, part; /* columns of a row and of a part: a multiple of 4 */
    float eps;
    struct team *team; /* [rows] */
};

__device__ static float4 times(float4 a, float4 b)
{
    return make_float4(a.x * b.x, a.y * b.y, a.z * b.z, a.w * b.w);
}

__device__ static float4 scaled(float4 a, float f)
{
    return make_float4(a.x * f, a.y * f, a.z * f, a.w * f);
}

/* Columns d ... d + 3 of every candidate.  add: the last one's are the sum with the branch, and are written so. */
template <int LIMIT>
__device__ static void load_candidates(const struct mixture &m, int64_t t, int d, int end, bool add, float4 *v)
{
#pragma unroll
    for (int i = 0; i < LIMIT; i++)
        if (i < m.count) {
            v[i] = cuda_load4(m.v[i][t], d, end);
            if (add && i + 1 == m.count && m.branch.data) {
                float4 b = cuda_load4(m.branch[t], d, end);
                v[i] = make_float4(v[i].x + b.x, v[i].y + b.y, v[i].z + b.z, v[i].w + b.w);
                cuda_store4(m.v[i][t], d, end, v[i]);
            }
        }
}

/* Lane i's weight of candidate i, from the sums of all parts. */
__device__ static float weight_of(const struct mixture &m, const float (*sums)[SUMS + 1])
{
    int i = (int)threadIdx.x % 32;
    float dot = 0, square = 0;

    for (int part = 0; i < m.count && part < PARTS; part++)
        dot += sums[part][2 * i], square += sums[part][2 * i + 1];
    float score = i < m.count ? dot / sqrtf(square / (float)m.n + m.eps) : -INFINITY;
    float w = expf(score - cuda_warp_max(score));
    return w / cuda_warp_sum(w);
}

/* weight: as of weight_of(). */
template <int LIMIT> __device__ static float4 mixed(const struct mixture &m, const float4 *v, float weight)
{
    float4 y = make_float4(0, 0, 0, 0);

    if (m.count == 1)
        return v[0];
#pragma unroll
    for (int i = 0; i < LIMIT; i++)
        if (i < m.count) {
            float w = __shfl_sync(0xffffffffu, weight, i);
            y = make_float4(y.x + w * v[i].x, y.y + w * v[i].y, y.z + w * v[i].z, y.w + w * v[i].w);
        }
    return y;
}

/* One over the root mean square of the mixture, from its parts' sums of squares. */
__device__ static float scale_of(const struct mixture &m, const float (*sums)[SUMS + 1])
{
    float sum = 0;

    for (int part = 0; part < PARTS; part++)
        sum += sums[part][SUMS];
    return 1.0f / sqrtf(sum / (float)m.n + m.eps);
}

/* --- a team a row --------------------------------------------------------------------------------------------------
 */

__device__ static void post(struct letter *to, float sum, unsigned tag)
{
    *(volatile unsigned long long *)to = (unsigned long long)tag << 32 | __float_as_uint(sum);
}

__device__ static float receive(const struct letter *from, unsigned tag)
{
    unsigned long long bits;

    for (;;) {
        bits = *(const volatile unsigned long long *)from;
        if ((unsigned)(bits >> 32) == tag)
            break;
        CUDA_SPIN();
    }
    return __uint_as_float((unsigned)bits);
}

template <int LIMIT> struct shared {
    float of_warp[WARPS][2 * LIMIT][32]; /* a thread's own sums */
    float sums[PARTS][SUMS + 1];
};

/* Sum number k of the part, for a whole warp. */
template <int LIMIT> __device__ static float part_sum(const struct shared<LIMIT> *sh, int k)
{
    float sum = 0;

#pragma unroll
    for (int w = 0; w < WARPS; w++)
        sum += sh->of_warp[w][k][threadIdx.x % 32];
    return cuda_warp_sum(sum);
}

template <int LIMIT>
__global__ static void __launch_bounds__(THREADS) mix_in_teams(const __grid_constant__ struct mixture m)
{
    __shared__ struct shared<LIMIT> sh;
    int64_t t = blockIdx.y;
    int part = (int)blockIdx.x, warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    int d = part * m.part + (int)threadIdx.x * 4, end = min(m.n, (part + 1) * m.part);
    struct team *team = m.team + t;
    float4 v[LIMIT], w = make_float4(0, 0, 0, 0), out = w;
    float weight = 1;

    if (m.count > 1)
        w = times(cuda_load4(m.norm, d, end), cuda_load4(m.proj, d, end));
    if (m.out.data)
        out = cuda_load4(m.out, d, end);
    cuda_wait();
    cuda_next();
    unsigned tag = *(volatile unsigned *)&team->launches + 1;
    load_candidates<LIMIT>(m, t, d, end, true, v);
    if (m.count > 1) {
#pragma unroll
        for (int i = 0; i < LIMIT; i++)
            if (i < m.count) {
                sh.of_warp[warp][2 * i][lane] = cuda_dot4(v[i], w);
                sh.of_warp[warp][2 * i + 1][lane] = cuda_dot4(v[i], v[i]);
            }
        __syncthreads();
        for (int k = warp; k < 2 * m.count; k += WARPS) {
            float sum = part_sum(&sh, k);
            if (lane == 0)
                post(&team->of[part][k], sum, tag);
        }
        for (int j = (int)threadIdx.x; j < PARTS * 2 * m.count; j += THREADS)
            sh.sums[j / (2 * m.count)][j % (2 * m.count)] =
                receive(&team->of[j / (2 * m.count)][j % (2 * m.count)], tag);
        __syncthreads();
        weight = weight_of(m, sh.sums);
    }
    float4 y = mixed<LIMIT>(m, v, weight);
    if (m.out.data) {
        sh.of_warp[warp][0][lane] = cuda_dot4(y, y);
        __syncthreads();
        if (warp == 0) {
            float sum = part_sum(&sh, 0);
            if (lane == 0)
                post(&team->of[part][SUMS], sum, tag);
            if (lane < PARTS)
                sh.sums[lane][SUMS] = receive(&team->of[lane][SUMS], tag);
        }
        __syncthreads();
        y = times(scaled(y, scale_of(m, sh.sums)), out);
    }
    cuda_store4(m.y[t], d, end, y);
    if (part == 0 && threadIdx.x == 0 && (m.count > 1 || m.out.data)) /* all have read it who have written */
        team->launches = tag;
}

/* --- a block a row -------------------------------------------------------------------------------------------------
 */

template <int LIMIT>
__global__ static void __launch_bounds__(PARTS * 32) mix_in_blocks(const __grid_constant__ struct mixture m)
{
    __shared__ float sums[PARTS][SUMS + 1];
    int64_t t = blockIdx.x;
    int part = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    int begin = part * m.part + lane * 4, end = min(m.n, (part + 1) * m.part);
    float weight = 1, all = 0;
    float4 v[LIMIT];

    cuda_wait();
    cuda_next();
    if (m.count > 1) {
        float dot[LIMIT] = {}, square[LIMIT] = {};
        for (int d = begin; d < end; d += 128) {
            float4 w = times(cuda_load4(m.norm, d, end), cuda_load4(m.proj, d, end));
            load_candidates<LIMIT>(m, t, d, end, true, v);
#pragma unroll
            for (int i = 0; i < LIMIT; i++)
                if (i < m.count)
                    dot[i] += cuda_dot4(v[i], w), square[i] += cuda_dot4(v[i], v[i]);
        }
#pragma unroll
        for (int i = 0; i < LIMIT; i++)
            if (i < m.count) {
                float a = cuda_warp_sum(dot[i]), b = cuda_warp_sum(square[i]);
                if (lane == 0)
                    sums[part][2 * i] = a, sums[part][2 * i + 1] = b;
            }
        __syncthreads();
        weight = weight_of(m, sums);
    }
    for (int d = part * m.part; d < end; d += 128) { /* whole warps: mixed() passes weights from lane to lane */
        load_candidates<LIMIT>(m, t, d + lane * 4, end, m.count == 1, v);
        float4 y = mixed<LIMIT>(m, v, weight);
        cuda_store4(m.y[t], d + lane * 4, end, y);
        all += cuda_dot4(y, y);
    }
    if (!m.out.data)
        return;
    all = cuda_warp_sum(all);
    if (lane == 0)
        sums[part][SUMS] = all;
    __syncthreads();
    float r = scale_of(m, sums);
    for (int d = begin; d < end; d += 128) /* what this lane wrote */
        cuda_store4(m.y[t], d, end, times(scaled(cuda_load4(m.y[t], d, end), r), cuda_load4(m.out, d, end)));
}

/* -------------------------------------------------------------------------------------------------------------------
 */

extern "C" int cuda_attnres(const struct attnres_args *a, struct k3_stream *s)
{
    struct cuda_stream *c = cuda_of(s);
    struct mixture m = {};
    int64_t rows = a->p->rows;
    if (a->p->cols > INT32_MAX / 2) {
        errno = EINVAL;
        return -1;
    }
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
    if (a->branch)
        m.branch = cuda_rows_of(a->branch);
    m.n = (int)a->p->cols;
    m.part = (m.n + 4 * PARTS - 1) / (4 * PARTS) * 4;
    m.eps = a->eps;
    m.team = (struct team *)c->letters;
    /* Teams wait for their own, so all blocks must fit the GPU together: two of them fit an SM. */
    if (m.part <= THREADS * 4 && rows * PARTS <= 2 * c->sms && rows * (int64_t)sizeof *m.team <= CUDA_LETTERS)
        return cuda_launch(s, "attnres", m.count <= FEW ? mix_in_teams<FEW> : mix_in_teams<MOST>,
                           dim3(PARTS, (unsigned)rows), THREADS, 0, m);
    return cuda_launch(s, "attnres", m.count <= FEW ? mix_in_blocks<FEW> : mix_in_blocks<MOST>, (unsigned)rows,
                       PARTS * 32, 0, m);
}
