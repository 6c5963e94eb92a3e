/* kda_chunks.cu - the gated delta rule, ROWS tokens at a time (SPEC 5.3)
 *
 *   G_i = g_0 + ... + g_i
 *   A_ij = (k_i e^G_i) . (k_j e^-G_j), i > j;   P_ij = (q_i e^G_i) . (k_j e^-G_j), i >= j
 *   T = (I + diag(beta) A)^-1 diag(beta)                                  forward substitution
 *   E = T (V - (K e^G) S);   O = (Q e^G) S + P E
 *   S <- diag(e^G_last) S + (K e^(G_last - G))^T E
 *
 * A chunk is as long as a sub-block there, and its reference is the state before it: with g >= -5 no factor exceeds
 * e^80, which fp32 holds.  Chunks are counted from a step's first row, which lies at a multiple of K3_PREFILL_BLOCK:
 * how a prompt was cut leaves no trace.  What knows nothing of the state is prepared for all chunks at once, in fp32;
 * then each (sequence, head) goes through its chunks on tensor cores, a warp for 16 rows of the transposed state
 * [v][k], which stay in its registers in fp32: as they come out of one product they are a factor of the next.  Every
 * factor is the sum of two BF16 numbers, and of the products only that of the two small ones is left out, so that their
 * error is 2^-16. */
#include "kernels/cuda/kda.h"
#include "kernels/cuda/mma.h"

enum {
    D = K3_HEAD_DIM,
    ROWS = 16,
    STEPS = D / 16, /* of a tensor core's product along k */
    /* Right factors [16, 8] of a chunk, ready for the lanes of a warp: */
    AT_K = 0,                   /* K e^G, [2 of 8 tokens][STEPS] */
    AT_Q = AT_K + 2 * STEPS,    /* Q e^G */
    AT_KEPT = AT_Q + 2 * STEPS, /* K e^(G_last - G), [D / 8] */
    AT_T = AT_KEPT + D / 8,     /* T, [2 of 8 tokens] */
    AT_P = AT_T + 2,            /* P */
    FACTORS = AT_P + 2,
};
static_assert(K3_PREFILL_BLOCK % ROWS == 0, "a step begins with a chunk");

/* What a lane holds of a right factor: rows 2 (l % 4) and the next, then those 8 further on, of column l / 4. */
struct factor {
    uint32_t large[2], small[2];
};
struct chunk {
    struct factor right[FACTORS][32];
    float decay[D]; /* e^G_last */
};

__device__ static void split(float a, float b, uint32_t *large, uint32_t *small)
{
    __nv_bfloat162 l = __floats2bfloat162_rn(a, b);

    *large = *(uint32_t *)&l;
    *small = cuda_bf16x2(a - __low2float(l), b - __high2float(l));
}

/* A step's chunks have numbers; sequence i begins at this one. */
__device__ static int first_chunk(const struct kern_batch &b, int i)
{
    return b.begin[i] / ROWS + i;
}

static int most_chunks(const struct kern_batch *b)
{
    return b->rows / ROWS + b->seqs;
}

/* --- prepare -------------------------------------------------------------------------------------------------------
 */

enum { THREADS = D, WIDE = D + 4 };

struct prepared {
    float k[ROWS][WIDE], q[ROWS][WIDE], back[ROWS][WIDE], kept[ROWS][WIDE];
    float A[ROWS][ROWS + 1], P[ROWS][ROWS + 1], T[ROWS][ROWS + 1];
    float k_scale[ROWS], q_scale[ROWS], beta[ROWS];
};

/* Rows of q and k as they are, zeros from n on, and their norms. */
__device__ static void load_rows(const struct kda_delta &a, int t0, int n, int head, struct prepared *p)
{
    int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32, c = head * D + lane * 4;

    for (int i = warp; i < ROWS; i += THREADS / 32) {
        float4 q = make_float4(0, 0, 0, 0), k = q;
        if (i < n) {
            q = cuda_load4(a.q[t0 + i], c, c + 4);
            k = cuda_load4(a.k[t0 + i], c, c + 4);
        }
        *(float4 *)&p->q[i][lane * 4] = q;
        *(float4 *)&p->k[i][lane * 4] = k;
        float qq = cuda_warp_sum(cuda_dot4(q, q)), kk = cuda_warp_sum(cuda_dot4(k, k));
        if (lane == 0) {
            p->q_scale[i] = kda_scale(qq, kda_q_factor);
            p->k_scale[i] = kda_scale(kk, 1);
            p->beta[i] = i < n ? kda_beta(a, a.beta[t0 + i][head]) : 0;
        }
    }
}

/* A thread a channel; what comes back is e^G_last. */
__device__ static float decay_rows(const struct kda_delta &a, int t0, int n, int head, struct prepared *p)
{
    int d = (int)threadIdx.x, c = head * D + d;
    float G[ROWS], sum = 0;

#pragma unroll
    for (int i = 0; i < ROWS; i++)
        G[i] = i < n ? a.g[t0 + i][c] : 0;
#pragma unroll
    for (int i = 0; i < ROWS; i++) {
        sum += i < n ? kda_log_decay(a, G[i], head, c) : 0;
        G[i] = sum;
    }
#pragma unroll
    for (int i = 0; i < ROWS; i++) {
        float decay = expf(G[i]), k = p->k[i][d] * p->k_scale[i];
        p->q[i][d] *= p->q_scale[i] * decay;
        p->k[i][d] = k * decay;
        p->back[i][d] = k * expf(-G[i]);
        p->kept[i][d] = k * expf(sum - G[i]);
    }
    return expf(sum);
}

/* A and P, two of their elements a thread. */
__device__ static void multiply_rows(struct prepared *p)
{
    for (int at = (int)threadIdx.x; at < ROWS * ROWS; at += THREADS) {
        int i = at / ROWS, j = at % ROWS;
        float ka = 0, qa = 0;
        for (int d = 0; d < D && j <= i; d += 4) {
            float4 b = *(const float4 *)&p->back[j][d];
            ka += cuda_dot4(*(const float4 *)&p->k[i][d], b);
            qa += cuda_dot4(*(const float4 *)&p->q[i][d], b);
        }
        p->A[i][j] = ka;
        p->P[i][j] = qa;
    }
}

/* A thread a column of T. */
__device__ static void invert(struct prepared *p)
{
    int j = (int)threadIdx.x;
    float T[ROWS];

    if (j >= ROWS)
        return;
#pragma unroll
    for (int i = 0; i < ROWS; i++) {
        float sum = i == j ? 1 : 0;
#pragma unroll
        for (int l = 0; l < i; l++)
            sum -= p->A[i][l] * T[l];
        T[i] = i < j ? 0 : p->beta[i] * sum;
        p->T[i][j] = T[i];
    }
}

/* The factor whose element [row][column] is x[column * step + row]. */
__device__ static void put_factor(struct factor *to, const float *x, int step)
{
    int lane = (int)threadIdx.x % 32;
    const float *from = x + lane / 4 * step + lane % 4 * 2;
    struct factor f;

    split(from[0], from[1], &f.large[0], &f.small[0]);
    split(from[8], from[9], &f.large[1], &f.small[1]);
    to[lane] = f;
}

/* The same where it is x[row * step + column]. */
__device__ static void put_transposed(struct factor *to, const float *x, int step)
{
    int lane = (int)threadIdx.x % 32;
    const float *from = x + lane % 4 * 2 * step + lane / 4;
    struct factor f;

    split(from[0], from[step], &f.large[0], &f.small[0]);
    split(from[8 * step], from[9 * step], &f.large[1], &f.small[1]);
    to[lane] = f;
}

__global__ static void __launch_bounds__(THREADS)
    prepare(const __grid_constant__ struct kda_delta a, int head0, struct chunk *chunks)
{
    __shared__ __align__(16) struct prepared p;
    __shared__ int found;
    const struct kern_batch &b = a.batch;
    int number = (int)blockIdx.x, head = head0 + (int)blockIdx.y, warp = (int)threadIdx.x / 32;
    struct chunk *to = chunks + (int64_t)blockIdx.y * gridDim.x + number;

    cuda_wait();
    cuda_next();
    for (int i = (int)threadIdx.x; i < b.seqs; i += THREADS)
        if (first_chunk(b, i) <= number && number < first_chunk(b, i + 1))
            found = i;
    __syncthreads();
    int i = found, first = (number - first_chunk(b, i)) * ROWS, n = b.begin[i + 1] - b.begin[i] - first;
    if (n <= 0 || b.prefill[i] == 0)
        return;
    load_rows(a, b.begin[i] + first, n, head, &p);
    __syncthreads();
    to->decay[threadIdx.x] = decay_rows(a, b.begin[i] + first, n, head, &p);
    __syncthreads();
    multiply_rows(&p);
    __syncthreads();
    invert(&p);
    for (int j = warp; j < 2 * STEPS; j += THREADS / 32) {
        put_factor(to->right[AT_K + j], &p.k[j / STEPS * 8][j % STEPS * 16], WIDE);
        put_factor(to->right[AT_Q + j], &p.q[j / STEPS * 8][j % STEPS * 16], WIDE);
    }
    for (int j = warp; j < D / 8; j += THREADS / 32)
        put_transposed(to->right[AT_KEPT + j], &p.kept[0][j * 8], WIDE);
    __syncthreads();
    if (warp < 2) {
        put_factor(to->right[AT_T + warp], &p.T[warp * 8][0], ROWS + 1);
        put_factor(to->right[AT_P + warp], &p.P[warp * 8][0], ROWS + 1);
    }
}

/* --- walk ----------------------------------------------------------------------------------------------------------
 */

enum { WALKERS = 2, LOADERS = 2 /* warps of a block */, SPLIT = D / 16 / WALKERS, STAGES = 3 };

/* Left factor [16, 16] from two neighbouring products. */
struct left {
    uint32_t large[4], small[4];
};

__device__ static struct left left_of(const float x[4], const float y[4])
{
    struct left f;

    split(x[0], x[1], &f.large[0], &f.small[0]);
    split(x[2], x[3], &f.large[1], &f.small[1]);
    split(y[0], y[1], &f.large[2], &f.small[2]);
    split(y[2], y[3], &f.large[3], &f.small[3]);
    return f;
}

/* d[i] += a b[i]; rest[i] takes what the small parts add.  One product after the other that does not wait for it. */
template <int N>
__device__ static void multiply(float d[N][4], float rest[N][4], const struct left &a, const struct factor b[N])
{
#pragma unroll
    for (int i = 0; i < N; i++)
        cuda_mma(d[i], a.large, b[i].large[0], b[i].large[1]);
#pragma unroll
    for (int i = 0; i < N; i++)
        cuda_mma(rest[i], a.small, b[i].large[0], b[i].large[1]);
#pragma unroll
    for (int i = 0; i < N; i++)
        cuda_mma(rest[i], a.large, b[i].small[0], b[i].small[1]);
}

/* A loader's share of the copy of a chunk. */
__device__ static void fetch(struct chunk *to, const struct chunk *from)
{
    for (int at = (int)threadIdx.x - WALKERS * 32; at < (int)sizeof *to / 16; at += LOADERS * 32)
        cuda_copy16((char *)to + at * 16, (const char *)from + at * 16, true);
    cuda_copies_end();
}

/* One chunk for 16 rows of the state, of which S[j] are columns 8 j ... 8 j + 7.  v, o: the value that the lane's first
 * row has at the chunk's first token. */
__device__ static void walk_chunk(const struct chunk *c, float S[D / 8][4], const float *v, int64_t v_step, float *o,
                                  int64_t o_step, int n)
{
    int lane = (int)threadIdx.x % 32, i0 = lane % 4 * 2;
    float x[2][4], sum[4][4] = {}, rest[4][4] = {}, e[2][4] = {},
                   e_rest[2][4] = {}; /* sum: of K's tokens, then of Q's */

#pragma unroll
    for (int h = 0; h < 2; h++)
#pragma unroll
        for (int j = 0; j < 4; j++) {
            int i = h * 8 + i0 + j % 2;
            x[h][j] = i < n ? v[i * v_step + j / 2 * 8] : 0;
        }
#pragma unroll
    for (int s = 0; s < STEPS; s++) {
        struct left f = left_of(S[2 * s], S[2 * s + 1]);
        struct factor b[4] = {c->right[AT_K + s][lane], c->right[AT_K + STEPS + s][lane], c->right[AT_Q + s][lane],
                              c->right[AT_Q + STEPS + s][lane]};
        multiply<4>(sum, rest, f, b);
    }
#pragma unroll
    for (int h = 0; h < 2; h++)
#pragma unroll
        for (int j = 0; j < 4; j++)
            x[h][j] -= sum[h][j] + rest[h][j];
    struct left f = left_of(x[0], x[1]);
    struct factor t[2] = {c->right[AT_T][lane], c->right[AT_T + 1][lane]};
    multiply<2>(e, e_rest, f, t);
#pragma unroll
    for (int h = 0; h < 2; h++)
#pragma unroll
        for (int j = 0; j < 4; j++)
            e[h][j] += e_rest[h][j];
    f = left_of(e[0], e[1]);
#pragma unroll
    for (int j = 0; j < D / 8; j += 4) {
        float add[4][4] = {};
        struct factor b[4];
#pragma unroll
        for (int k = 0; k < 4; k++) {
            float2 decay = *(const float2 *)&c->decay[(j + k) * 8 + i0];
            b[k] = c->right[AT_KEPT + j + k][lane];
            S[j + k][0] *= decay.x, S[j + k][1] *= decay.y, S[j + k][2] *= decay.x, S[j + k][3] *= decay.y;
        }
        multiply<4>(&S[j], add, f, b);
#pragma unroll
        for (int k = 0; k < 4; k++)
#pragma unroll
            for (int r = 0; r < 4; r++)
                S[j + k][r] += add[k][r];
    }
    struct factor p[2] = {c->right[AT_P][lane], c->right[AT_P + 1][lane]};
    multiply<2>(&sum[2], &rest[2], f, p);
#pragma unroll
    for (int h = 0; h < 2; h++)
#pragma unroll
        for (int j = 0; j < 4; j++) {
            int i = h * 8 + i0 + j % 2;
            if (i < n)
                o[i * o_step + j / 2 * 8] = sum[2 + h][j] + rest[2 + h][j];
        }
}

__global__ static void __launch_bounds__((WALKERS + LOADERS) * 32)
    walk(const __grid_constant__ struct kda_delta a, int head0, const struct chunk *chunks, int count)
{
    CUDA_SHARED(uint4, memory);
    struct chunk *stage = (struct chunk *)memory;
    const struct kern_batch &b = a.batch;
    int i = (int)blockIdx.z, head = head0 + (int)blockIdx.y, warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    int v = ((int)blockIdx.x * WALKERS + warp) * 16 + lane / 4;
    float S[D / 8][4];

    cuda_wait();
    cuda_next();
    int begin = b.begin[i], rows = b.begin[i + 1] - begin;
    if (rows == 0 || b.prefill[i] == 0)
        return;
    const struct chunk *from = chunks + (int64_t)blockIdx.y * count + first_chunk(b, i);
    if (warp >= WALKERS) {
        int end = (rows + ROWS - 1) / ROWS;
        for (int n = 1 - STAGES; n < end; n++) {
            int ahead = n + STAGES - 1;
            if (ahead < end)
                fetch(&stage[ahead % STAGES], from + ahead);
            else
                cuda_copies_end();
            if (n < 0)
                continue;
            cuda_copies_wait<STAGES - 1>();
            __syncthreads(); /* chunk n is there */
            __syncthreads(); /* and done with */
        }
        return;
    }
    float *state = a.state + (((int64_t)b.slot[i] * a.heads + head) * D + v) * D + lane % 4 * 2;
#pragma unroll
    for (int j = 0; j < D / 8; j++)
#pragma unroll
        for (int r = 0; r < 4; r++)
            S[j][r] = b.pos[i] == 0 ? 0 : state[r / 2 * 8 * D + j * 8 + r % 2];
    for (int at = 0; at < rows; at += ROWS) {
        int64_t t = begin + at;
        __syncthreads();
        walk_chunk(&stage[at / ROWS % STAGES], S, a.v[t] + head * D + v, a.v.stride, a.o[t] + head * D + v, a.o.stride,
                   rows - at);
        __syncthreads();
    }
#pragma unroll
    for (int j = 0; j < D / 8; j++)
#pragma unroll
        for (int r = 0; r < 4; r++)
            state[r / 2 * 8 * D + j * 8 + r % 2] = S[j][r];
}

/* -------------------------------------------------------------------------------------------------------------------
 */

int cuda_kda_chunks(const struct kda_delta *d, struct k3_stream *s)
{
    int count = most_chunks(&d->batch), heads;
    struct chunk *chunks = (struct chunk *)cuda_of(s)->workspace;
    int64_t together = (int64_t)cuda_of(s)->workspace_bytes / ((int64_t)count * (int64_t)sizeof *chunks);

    if (together == 0) {
        errno = EINVAL;
        return -1;
    }
    for (int head = 0; head < d->heads; head += heads) {
        heads = d->heads - head < together ? d->heads - head : (int)together;
        if (cuda_launch(s, "kda: prepare", prepare, dim3((unsigned)count, (unsigned)heads), THREADS, 0, *d, head,
                        chunks) < 0 ||
            cuda_launch(s, "kda: walk", walk, dim3(SPLIT, (unsigned)heads, (unsigned)d->batch.seqs),
                        (WALKERS + LOADERS) * 32, STAGES * sizeof *chunks, *d, head, chunks, count) < 0)
            return -1;
    }
    return 0;
}
