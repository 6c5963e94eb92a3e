/* kda.cu - the gated delta rule, one token after the other (SPEC 4.4 step 3, 5.1), alone or with all that surrounds it
 *
 *   S <- diag(e^g) S;  e = beta (v - S^T k);  S <- S + k e^T;  o = S^T q
 *
 * The state lies transposed, [v][k], so both products are dots along its rows.  SPLIT blocks share a sequence and head;
 * a warp keeps ROWS rows of the state in registers, four values a lane.  In the fused form the last block to arrive,
 * when all have read the convolution's state of q and k, moves that on and norms o.  A prompt's sequences take the
 * chunked form of kda_chunks.cu, and the fused one's other parts one after the other.  All fp32. */
#include "kernels/cuda/kda.h"

enum { D = K3_HEAD_DIM, SPLIT = 4, WARPS = 8, ROWS = D / SPLIT / WARPS, THREADS = WARPS * 32, KEPT = K3_TAPS - 1 };
static_assert(THREADS == 2 * D, "half of the threads are q's channels, half k's");

/* What the fused form takes beside. */
struct fused {
    struct cuda_rows q_taps, k_taps, v_taps;
    float *q_kept, *k_kept, *v_kept;
    struct cuda_rows gate, y;
    const float *norm;
    float eps;
    unsigned *arrived; /* [seqs * heads], 0 */
};

/* One channel's convolution. */
struct filter {
    float4 w;
    float last[KEPT];

    __device__ void load_taps(const struct cuda_rows &taps, int c)
    {
        w = cuda_load4(taps[c], 0, K3_TAPS);
    }
    __device__ void load(const float *kept, int64_t channels, int c, bool fresh)
    {
        for (int j = 0; j < KEPT; j++)
            last[j] = fresh ? 0 : kept[j * channels + c];
    }
    __device__ float next(float x)
    {
        float z = w.x * last[0] + w.y * last[1] + w.z * last[2] + w.w * x;
        last[0] = last[1], last[1] = last[2], last[2] = x;
        return z * cuda_sigmoid(z);
    }
    __device__ void store(float *kept, int64_t channels, int c) const
    {
        for (int j = 0; j < KEPT; j++)
            kept[j * channels + c] = last[j];
    }
};

/* A token as the warps take it; two, for the next is made while the slowest warp is still at the last. */
struct token {
    float q[D], k[D], decay[D], v[D / SPLIT];
};

/* One token for a warp's rows of the state; what comes back is o of row lane % ROWS. */
__device__ static float take(const struct token *x, float beta, int row, float4 *S)
{
    int lane = (int)threadIdx.x % 32;
    float4 q = *(const float4 *)&x->q[lane * 4], k = *(const float4 *)&x->k[lane * 4];
    float4 decay = *(const float4 *)&x->decay[lane * 4];
    float qq = cuda_dot4(q, q), kk = cuda_dot4(k, k), qk = cuda_dot4(q, k), mine = 0, kept[ROWS], seen[ROWS];

#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        S[r] = make_float4(S[r].x * decay.x, S[r].y * decay.y, S[r].z * decay.z, S[r].w * decay.w);
        kept[r] = cuda_dot4(S[r], k);
        seen[r] = cuda_dot4(S[r], q);
    }
#pragma unroll
    for (int d = 16; d > 0; d >>= 1) {
        qq += __shfl_xor_sync(0xffffffffu, qq, d);
        kk += __shfl_xor_sync(0xffffffffu, kk, d);
        qk += __shfl_xor_sync(0xffffffffu, qk, d);
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            kept[r] += __shfl_xor_sync(0xffffffffu, kept[r], d);
            seen[r] += __shfl_xor_sync(0xffffffffu, seen[r], d);
        }
    }
    float q_scale = kda_scale(qq, kda_q_factor), k_scale = kda_scale(kk, 1);
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        float e = beta * (x->v[row + r] - k_scale * kept[r]), ek = e * k_scale;
        S[r] = make_float4(S[r].x + k.x * ek, S[r].y + k.y * ek, S[r].z + k.z * ek, S[r].w + k.w * ek);
        if (lane % ROWS == r)
            mine = q_scale * (seen[r] + ek * qk);
    }
    return mine;
}

/* o of a row and head becomes y, by a warp. */
__device__ static void norm_row(const struct kda_delta &a, const struct fused &f, int64_t t, int head)
{
    int lane = (int)threadIdx.x % 32;
    int64_t n = (int64_t)a.heads * D, c = (int64_t)head * D + lane * 4;
    const float *o = a.o[t] + c;
    float4 v = make_float4(__ldcg(o), __ldcg(o + 1), __ldcg(o + 2), __ldcg(o + 3)); /* past the first-level cache */
    float4 g = cuda_load4(f.gate[t], c, n), w = cuda_load4(f.norm, lane * 4, D);
    float r = 1.0f / sqrtf(cuda_warp_sum(cuda_dot4(v, v)) / D + f.eps);

    cuda_store4(f.y[t], c, n,
                make_float4(v.x * r * w.x * cuda_sigmoid(g.x), v.y * r * w.y * cuda_sigmoid(g.y),
                            v.z * r * w.z * cuda_sigmoid(g.z), v.w * r * w.w * cuda_sigmoid(g.w)));
}

/* Whether this block is the last of its sequence and head. */
__device__ static bool last_to_arrive(unsigned *arrived)
{
    __shared__ bool last;

    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        last = atomicAdd(arrived, 1) == SPLIT - 1;
        if (last)
            *arrived = 0;
        __threadfence();
    }
    __syncthreads();
    return last;
}

template <bool FUSED>
__global__ static void __launch_bounds__(THREADS, 3)
    step(const __grid_constant__ struct kda_delta a, const __grid_constant__ struct fused f)
{
    __shared__ __align__(16) struct token tokens[2];
    int i = (int)blockIdx.z, head = (int)blockIdx.y, warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    int row0 = warp * ROWS, v0 = (int)blockIdx.x * (D / SPLIT), d = (int)threadIdx.x % D;
    int c = head * D + d,
        cv = head * D + v0 + d; /* this thread's channels of q or k, and of v where d is one of them */
    bool is_q = threadIdx.x < D, has_v = !is_q && d < D / SPLIT;
    int64_t n = (int64_t)a.heads * D;
    struct filter filter, v_filter;
    float4 S[ROWS];

    if (FUSED) {
        filter.load_taps(is_q ? f.q_taps : f.k_taps, c);
        if (has_v)
            v_filter.load_taps(f.v_taps, cv);
    }
    cuda_wait();
    cuda_next();
    int begin = a.batch.begin[i], end = a.batch.begin[i + 1];
    if (begin == end || (a.batch.prefill && a.batch.prefill[i] != 0))
        return;
    int64_t slot = a.batch.slot[i], kept = slot * KEPT * n;
    bool fresh = a.batch.pos[i] == 0;
    float *state = a.state + ((slot * a.heads + head) * D + v0 + row0) * D + lane * 4;
#pragma unroll
    for (int r = 0; r < ROWS; r++)
        S[r] = fresh ? make_float4(0, 0, 0, 0) : *(const float4 *)(state + r * D);
    if (FUSED) {
        filter.load((is_q ? f.q_kept : f.k_kept) + kept, n, c, fresh);
        if (has_v)
            v_filter.load(f.v_kept + kept, n, cv, fresh);
    }
    for (int t = begin; t < end; t++) {
        struct token *x = &tokens[(t - begin) % 2];
        float mine = (is_q ? a.q : a.k)[t][c], beta = kda_beta(a, a.beta[t][head]);
        (is_q ? x->q : x->k)[d] = FUSED ? filter.next(mine) : mine;
        if (is_q)
            x->decay[d] = expf(kda_log_decay(a, a.g[t][c], head, c));
        if (has_v)
            x->v[d] = FUSED ? v_filter.next(a.v[t][cv]) : a.v[t][cv];
        __syncthreads();
        float o = take(x, beta, row0, S);
        if (lane < ROWS)
            a.o[t][head * D + v0 + row0 + lane] = o;
    }
#pragma unroll
    for (int r = 0; r < ROWS; r++)
        *(float4 *)(state + r * D) = S[r];
    if (!FUSED)
        return;
    if (has_v)
        v_filter.store(f.v_kept + kept, n, cv);
    if (!last_to_arrive(f.arrived + i * a.heads + head))
        return;
    filter.store((is_q ? f.q_kept : f.k_kept) + kept, n, c);
    for (int t = begin + warp; t < end; t += WARPS)
        norm_row(a, f, t, head);
}

/* The rows of prompts, a warp a head. */
__global__ static void __launch_bounds__(THREADS)
    norm_prompts(const __grid_constant__ struct kda_delta a, const __grid_constant__ struct fused f)
{
    __shared__ int found;
    int row = (int)blockIdx.y, head = (int)blockIdx.x * WARPS + (int)threadIdx.x / 32;

    cuda_wait();
    cuda_next();
    int i = cuda_sequence_of(a.batch, row, &found);
    if (head < a.heads && a.batch.prefill[i] != 0)
        norm_row(a, f, row, head);
}

static struct kda_delta delta_of(const struct kda_args *a)
{
    struct kda_delta d = {};

    d.q = cuda_rows_of(a->q), d.k = cuda_rows_of(a->k), d.v = cuda_rows_of(a->v);
    d.g = cuda_rows_of(a->g), d.beta = cuda_rows_of(a->beta), d.o = cuda_rows_of(a->o);
    d.state = (float *)a->state;
    d.heads = a->heads;
    d.batch = *a->batch;
    return d;
}

extern "C" int cuda_kda(const struct kda_args *a, struct k3_stream *s)
{
    struct kda_delta d = delta_of(a);

    if (cuda_launch(s, "kda", step<false>, dim3(SPLIT, (unsigned)a->heads, (unsigned)a->batch->seqs), THREADS, 0, d,
                    (struct fused){}) < 0)
        return -1;
    return a->batch->prefill ? cuda_kda_chunks(&d, s) : 0;
}

/* The chunked form needs q, k and v of all rows. */
static int prompts(const struct kda_block_args *a, struct kda_delta d, const struct fused *f, struct k3_stream *s)
{
    d.q = cuda_rows_of(a->q.y), d.k = cuda_rows_of(a->k.y), d.v = cuda_rows_of(a->v.y);
    if (cuda_conv_prompts(&a->q, s) < 0 || cuda_conv_prompts(&a->k, s) < 0 || cuda_conv_prompts(&a->v, s) < 0 ||
        cuda_kda_chunks(&d, s) < 0)
        return -1;
    return cuda_launch(s, "kda_block", norm_prompts,
                       dim3((unsigned)(d.heads + WARPS - 1) / WARPS, (unsigned)d.batch.rows), THREADS, 0, d, *f);
}

extern "C" int cuda_kda_block(const struct kda_block_args *a, struct k3_stream *s)
{
    struct kda_delta d = delta_of(&a->delta);
    struct fused f = {};

    if ((int64_t)d.batch.seqs * d.heads > CUDA_COUNTERS) {
        errno = EINVAL;
        return -1;
    }
    if (cuda_linear(&a->decay, s) < 0)
        return -1;
    d.q = cuda_rows_of(a->q.x), d.k = cuda_rows_of(a->k.x), d.v = cuda_rows_of(a->v.x);
    d.g = cuda_rows_of(a->gate.r), d.beta = cuda_rows_of(a->gate.b);
    d.a_log = (const float *)a->gate.a_log->data;
    d.dt_bias = (const float *)a->gate.dt_bias->data;
    d.lower_bound = a->gate.lower_bound;
    f.q_taps = cuda_rows_of(a->q.w), f.k_taps = cuda_rows_of(a->k.w), f.v_taps = cuda_rows_of(a->v.w);
    f.q_kept = (float *)a->q.state, f.k_kept = (float *)a->k.state, f.v_kept = (float *)a->v.state;
    f.gate = cuda_rows_of(a->norm.gate), f.y = cuda_rows_of(a->norm.y);
    f.norm = (const float *)a->norm.w->data;
    f.eps = a->norm.eps;
    f.arrived = cuda_of(s)->counters;
    if (cuda_launch(s, "kda_block", step<true>, dim3(SPLIT, (unsigned)d.heads, (unsigned)d.batch.seqs), THREADS, 0, d,
                    f) < 0)
        return -1;
    return d.batch.prefill ? prompts(a, d, &f, s) : 0;
}
