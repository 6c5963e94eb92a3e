/* kda.cu - the gated delta rule, one token after the other (SPEC 4.4 step 3, 5.1), alone or with all that surrounds it
 *
 *   S <- diag(e^g) S;  e = beta (v - S^T k);  S <- S + k e^T;  o = S^T q
 *
 * The state lies transposed, [v][k], so both products are dots along its rows.  SPLIT blocks share a sequence and head;
 * a warp keeps ROWS rows of the state in registers, four values a lane, and every warp makes q, k and decays for
 * itself: nobody waits for anybody.  In the fused form the last block to arrive, when all have read the convolution's
 * state of q and k, moves that on and norms o.  All fp32. */
#include "kernels/cuda/rows.h"

enum { D = K3_HEAD_DIM, SPLIT = 4, WARPS = 8, ROWS = D / SPLIT / WARPS, THREADS = WARPS * 32, KEPT = K3_TAPS - 1 };

/* Inputs of a step: after the convolution, or in the fused form before it. */
struct delta {
    struct cuda_rows q, k, v, g, beta, o;
    float *state;
    int heads;
    struct kern_batch batch;
};

struct fused {
    struct cuda_rows q_taps, k_taps, v_taps;
    float *q_kept, *k_kept, *v_kept;
    const float *a_log, *dt_bias;
    float lower_bound;
    struct cuda_rows gate, y;
    const float *norm;
    float eps;
    unsigned *arrived; /* [seqs * heads], 0 */
};

__device__ static float4 scaled(float4 v, float f)
{
    return make_float4(v.x * f, v.y * f, v.z * f, v.w * f);
}

__device__ static float4 added(float4 a, float4 b, float f)
{
    return make_float4(a.x + b.x * f, a.y + b.y * f, a.z + b.z * f, a.w + b.w * f);
}

__device__ static float silu(float x)
{
    return x * cuda_sigmoid(x);
}

__device__ static float tapped(float4 w, float a, float b, float c, float now)
{
    return silu(w.x * a + w.y * b + w.z * c + w.w * now);
}

/* The convolution of four channels. */
struct filter4 {
    float4 w[4], last[KEPT];

    __device__ void load(const struct cuda_rows &taps, const float *kept, int64_t channels, int c, bool fresh)
    {
        for (int j = 0; j < 4; j++)
            w[j] = cuda_load4(taps[c + j], 0, K3_TAPS);
        for (int j = 0; j < KEPT; j++)
            last[j] = fresh ? make_float4(0, 0, 0, 0) : cuda_load4(kept + j * channels, c, channels);
    }
    __device__ float4 next(float4 x)
    {
        float4 y = make_float4(
            tapped(w[0], last[0].x, last[1].x, last[2].x, x.x), tapped(w[1], last[0].y, last[1].y, last[2].y, x.y),
            tapped(w[2], last[0].z, last[1].z, last[2].z, x.z), tapped(w[3], last[0].w, last[1].w, last[2].w, x.w));
        last[0] = last[1], last[1] = last[2], last[2] = x;
        return y;
    }
    __device__ void store(float *kept, int64_t channels, int c) const
    {
        for (int j = 0; j < KEPT; j++)
            cuda_store4(kept + j * channels, c, channels, last[j]);
    }
};

/* The convolution of one channel. */
struct filter1 {
    float4 w;
    float last[KEPT];

    __device__ void load(const struct cuda_rows &taps, const float *kept, int64_t channels, int c, bool fresh)
    {
        w = cuda_load4(taps[c], 0, K3_TAPS);
        for (int j = 0; j < KEPT; j++)
            last[j] = fresh ? 0 : kept[j * channels + c];
    }
    __device__ float next(float x)
    {
        float y = tapped(w, last[0], last[1], last[2], x);
        last[0] = last[1], last[1] = last[2], last[2] = x;
        return y;
    }
    __device__ void store(float *kept, int64_t channels, int c) const
    {
        for (int j = 0; j < KEPT; j++)
            kept[j * channels + c] = last[j];
    }
};

__device__ static float log_decay(float r, float bias, float rate, float lower_bound)
{
    return lower_bound * cuda_sigmoid(rate * (r + bias));
}

/* One token for a warp's rows of the state; what comes back is o of row lane % ROWS. */
__device__ static float token(float4 q, float4 k, float4 g, float v, float beta, float4 *S)
{
    float qq = cuda_dot4(q, q), kk = cuda_dot4(k, k), qk = cuda_dot4(q, k), mine = 0;
    float kept[ROWS], seen[ROWS];
    float4 decay = make_float4(expf(g.x), expf(g.y), expf(g.z), expf(g.w));

    qq = cuda_warp_sum(qq), kk = cuda_warp_sum(kk), qk = cuda_warp_sum(qk);
    float q_scale = 1.0f / sqrtf(qq + 1e-6f) * 0.08838834764831845f, k_scale = 1.0f / sqrtf(kk + 1e-6f);
    q = scaled(q, q_scale);
    k = scaled(k, k_scale);
    qk *= q_scale * k_scale;
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        S[r] = make_float4(S[r].x * decay.x, S[r].y * decay.y, S[r].z * decay.z, S[r].w * decay.w);
        kept[r] = cuda_dot4(S[r], k);
        seen[r] = cuda_dot4(S[r], q);
    }
#pragma unroll
    for (int d = 16; d > 0; d >>= 1) {
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            kept[r] += __shfl_xor_sync(0xffffffffu, kept[r], d);
            seen[r] += __shfl_xor_sync(0xffffffffu, seen[r], d);
        }
    }
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        float e = beta * (__shfl_sync(0xffffffffu, v, r) - kept[r]);
        S[r] = added(S[r], k, e);
        if ((int)threadIdx.x % ROWS == r)
            mine = seen[r] + e * qk;
    }
    return mine;
}

/* o of a row is normed by a warp. */
__device__ static void norm_row(const struct delta &a, const struct fused &f, int64_t t, int head)
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
__global__ static void __launch_bounds__(THREADS)
    step(const __grid_constant__ struct delta a, const __grid_constant__ struct fused f)
{
    int i = (int)blockIdx.z, head = (int)blockIdx.y, warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    int row0 = ((int)blockIdx.x * WARPS + warp) * ROWS, c = head * D + lane * 4, cv = head * D + row0 + lane % ROWS;
    int64_t n = (int64_t)a.heads * D;
    struct filter4 fq, fk;
    struct filter1 fv;
    float4 S[ROWS], bias;
    float rate;

    cuda_wait();
    cuda_next();
    int begin = a.batch.begin[i], end = a.batch.begin[i + 1];
    if (begin == end)
        return;
    int64_t slot = a.batch.slot[i];
    bool fresh = a.batch.pos[i] == 0;
    float *state = a.state + ((slot * a.heads + head) * D + row0) * D + lane * 4;
#pragma unroll
    for (int r = 0; r < ROWS; r++)
        S[r] = fresh ? make_float4(0, 0, 0, 0) : *(const float4 *)(state + r * D);
    if (FUSED) {
        fq.load(f.q_taps, f.q_kept + slot * KEPT * n, n, c, fresh);
        fk.load(f.k_taps, f.k_kept + slot * KEPT * n, n, c, fresh);
        fv.load(f.v_taps, f.v_kept + slot * KEPT * n, n, cv, fresh);
        bias = cuda_load4(f.dt_bias, c, n);
        rate = expf(f.a_log[head]);
    }
    for (int t = begin; t < end; t++) {
        float4 q = cuda_load4(a.q[t], c, n), k = cuda_load4(a.k[t], c, n), g = cuda_load4(a.g[t], c, n);
        float v = a.v[t][cv], beta = a.beta[t][head];
        if (FUSED) {
            q = fq.next(q), k = fk.next(k), v = fv.next(v), beta = cuda_sigmoid(beta);
            g = make_float4(log_decay(g.x, bias.x, rate, f.lower_bound), log_decay(g.y, bias.y, rate, f.lower_bound),
                            log_decay(g.z, bias.z, rate, f.lower_bound), log_decay(g.w, bias.w, rate, f.lower_bound));
        }
        float o = token(q, k, g, v, beta, S);
        if (lane < ROWS)
            a.o[t][cv] = o;
    }
#pragma unroll
    for (int r = 0; r < ROWS; r++)
        *(float4 *)(state + r * D) = S[r];
    if (!FUSED)
        return;
    if (lane < ROWS)
        fv.store(f.v_kept + slot * KEPT * n, n, cv);
    if (!last_to_arrive(f.arrived + i * a.heads + head))
        return;
    if (warp == 0)
        fq.store(f.q_kept + slot * KEPT * n, n, c);
    if (warp == 1)
        fk.store(f.k_kept + slot * KEPT * n, n, c);
    for (int t = begin + warp; t < end; t += WARPS)
        norm_row(a, f, t, head);
}

static struct delta delta_of(const struct kda_args *a, const struct k3_tensor *q, const struct k3_tensor *k,
                             const struct k3_tensor *v, const struct k3_tensor *g, const struct k3_tensor *beta)
{
    return (struct delta){cuda_rows_of(q),    cuda_rows_of(k),   cuda_rows_of(v), cuda_rows_of(g), cuda_rows_of(beta),
                          cuda_rows_of(a->o), (float *)a->state, a->heads,        *a->batch};
}

extern "C" int cuda_kda(const struct kda_args *a, struct k3_stream *s)
{
    return cuda_launch(s, "kda", step<false>, dim3(SPLIT, (unsigned)a->heads, (unsigned)a->batch->seqs), THREADS, 0,
                       delta_of(a, a->q, a->k, a->v, a->g, a->beta), (struct fused){});
}

extern "C" int cuda_kda_block(const struct kda_block_args *a, struct k3_stream *s)
{
    struct fused f = {
        cuda_rows_of(a->q.w),
        cuda_rows_of(a->k.w),
        cuda_rows_of(a->v.w),
        (float *)a->q.state,
        (float *)a->k.state,
        (float *)a->v.state,
        (const float *)a->gate.a_log->data,
        (const float *)a->gate.dt_bias->data,
        a->gate.lower_bound,
        cuda_rows_of(a->norm.gate),
        cuda_rows_of(a->norm.y),
        (const float *)a->norm.w->data,
        a->norm.eps,
        cuda_of(s)->counters,
    };
    const struct kda_args *d = &a->delta;

    if ((int64_t)d->batch->seqs * d->heads > CUDA_COUNTERS) {
        errno = EINVAL;
        return -1;
    }
    return cuda_launch(s, "kda_block", step<true>, dim3(SPLIT, (unsigned)d->heads, (unsigned)d->batch->seqs), THREADS,
                       0, delta_of(d, a->q.x, a->k.x, a->v.x, a->gate.r, a->gate.b), f);
}
