/* mla_prompts.cu - attention of a prompt's rows over the latents, on tensor cores all through (SPEC 6)
 *
 * The rows that may be expanded (struct kern_batch) are absorbed here, too, in blocks of QUERIES that begin at
 * multiples of QUERIES: shared memory holds no expanded keys and values beside, and the cache is read once for both.  A
 * block takes one head of such rows through all three products:
 *
 *   qa = UK^T qn;   scores and cbar over the positions from 0 on, with a running maximum and sum;   o = UV cbar
 *
 * Eight warps: 16 queries each, and half of what the product sums up (qa and positions' scores, o) or yields (cbar),
 * from registers to registers.  qn, qa, the weights of positions and cbar are rounded to BF16; sums and softmax are
 * fp32.  What a row adds up depends on its position alone: a tile that it does not see leaves its bits as they are. */
#include "kernels/cuda/mla.h"

enum {
    QUERIES = 64,
    THREADS = 256,
    EACH = THREADS / MLA_TILE, /* threads that copy a position */
    WARPS = THREADS / 32,
    STEPS = K3_CACHE_DIM / 16 / 2,         /* of a warp's half of a latent row */
    ABSORBED = K3_LATENT_DIM - STEPS * 16, /* latents in the second half, before the 64 raw ones */
    HALF = K3_LATENT_DIM / 2,              /* columns of cbar of a warp */
    STAGE = 32,                            /* columns of the weights at a time */
    STAGE_WIDE = STAGE + 8,
    VALUES = K3_V_DIM / 2, /* of o at a time */
};
static_assert(K3_PREFILL_BLOCK % QUERIES == 0 && WARPS == 2 * QUERIES / 16, "blocks begin where steps do");

struct shared {
    union {
        __nv_bfloat16 latent[2][MLA_TILE][MLA_WIDE];
        __nv_bfloat16 weight[2][2][K3_NOPE_DIM][STAGE_WIDE]; /* of a stage, then of the half */
        float o[QUERIES][VALUES];
    };
    float score[2][QUERIES][MLA_TILE + 1]; /* of each half of a latent row */
    __nv_bfloat16 p[QUERIES][MLA_TILE + 8];
    float max[QUERIES], sum[QUERIES], factor[QUERIES];
};

/* One block's rows and head. */
struct work {
    int row0, rows, head, pos0;
};

__device__ static int warp_queries(void)
{
    return (int)threadIdx.x / 32 % (QUERIES / 16) * 16;
}

__device__ static int warp_half(void)
{
    return (int)threadIdx.x / 32 / (QUERIES / 16);
}

/* Start to copy STAGE columns of ROWS rows of weights for each half, from column c0 and c1 on; none where that is -1.
 */
template <int ROWS>
__device__ static void fetch_weights(struct shared *sh, int stage, const __nv_bfloat16 *w, int64_t stride, int c0,
                                     int c1)
{
#pragma unroll
    for (int at = (int)threadIdx.x; at < 2 * ROWS * STAGE / 8; at += THREADS) {
        int half = at / (ROWS * STAGE / 8), row = at / (STAGE / 8) % ROWS, piece = at % (STAGE / 8) * 8;
        int c = half ? c1 : c0;
        cuda_copy16(&sh->weight[stage][half][row][piece], w + row * stride + max(c, 0) + piece, c >= 0);
    }
    cuda_copies_end();
}

/* Left factor of a warp's queries, columns c ... c + 15 of their head in q. */
__device__ static void load_queries(const struct work &t, const struct cuda_rows &q, int c, uint32_t a[4])
{
    int lane = (int)threadIdx.x % 32, r = warp_queries() + lane / 4;

#pragma unroll
    for (int j = 0; j < 4; j++) {
        int row = r + j % 2 * 8;
        const float *from = q[t.row0 + row] + t.head * K3_QK_DIM + c + lane % 4 * 2 + j / 2 * 8;
        a[j] = row < t.rows ? cuda_bf16x2(from[0], from[1]) : 0;
    }
}

/* --- absorb --------------------------------------------------------------------------------------------------------
 */

__device__ static void absorb_stage(const struct shared *sh, int stage, const uint32_t qn[K3_NOPE_DIM / 16][4],
                                    uint32_t qa[2][4])
{
    int lane = (int)threadIdx.x % 32;

#pragma unroll
    for (int k = 0; k < 2; k++) {
        float x[2][4] = {};
#pragma unroll
        for (int s = 0; s < K3_NOPE_DIM / 16; s++) {
            uint32_t b[4];
            cuda_matrices_transposed(b, &sh->weight[stage][warp_half()][s * 16 + lane % 16][k * 16 + lane / 16 * 8]);
            cuda_mma(x[0], qn[s], b[0], b[1]);
            cuda_mma(x[1], qn[s], b[2], b[3]);
        }
        qa[k][0] = cuda_bf16x2(x[0][0], x[0][1]);
        qa[k][1] = cuda_bf16x2(x[0][2], x[0][3]);
        qa[k][2] = cuda_bf16x2(x[1][0], x[1][1]);
        qa[k][3] = cuda_bf16x2(x[1][2], x[1][3]);
    }
}

/* A warp's half of the absorbed queries, as left factors. */
__device__ static void absorb(struct shared *sh, const struct work &t, const struct cuda_rows &q,
                              const __nv_bfloat16 *uk, int64_t stride, uint32_t qa[STEPS][4])
{
    uint32_t qn[K3_NOPE_DIM / 16][4];

    fetch_weights<K3_NOPE_DIM>(sh, 0, uk, stride, 0, STEPS * 16);
#pragma unroll
    for (int s = 0; s < K3_NOPE_DIM / 16; s++)
        load_queries(t, q, s * 16, qn[s]);
#pragma unroll
    for (int st = 0; st < STEPS / 2; st++) {
        if (st + 1 < STEPS / 2) {
            int c = (st + 1) * STAGE;
            fetch_weights<K3_NOPE_DIM>(sh, (st + 1) % 2, uk, stride, c, c < ABSORBED ? STEPS * 16 + c : -1);
            cuda_copies_wait<1>();
        } else
            cuda_copies_wait<0>();
        __syncthreads();
        if (warp_half() == 0 || st * STAGE < ABSORBED)
            absorb_stage(sh, st % 2, qn, &qa[2 * st]);
        else
            for (int k = 0; k < 2; k++)
                load_queries(t, q, K3_NOPE_DIM + st * STAGE - ABSORBED + k * 16, qa[2 * st + k]);
        __syncthreads();
    }
}
static_assert(ABSORBED % STAGE == 0 && STEPS % 2 == 0, "a stage is absorbed or raw");

/* --- attend --------------------------------------------------------------------------------------------------------
 */

__device__ static void score_tile(struct shared *sh, int stage, const uint32_t qa[STEPS][4])
{
    int lane = (int)threadIdx.x % 32, half = warp_half();

#pragma unroll 1
    for (int j = 0; j < MLA_TILE; j += 16) { /* positions */
        const __nv_bfloat16 *from = &sh->latent[stage][j + lane % 8][half * STEPS * 16 + lane / 8 * 8];
        float x[2][4] = {};
#pragma unroll
        for (int s = 0; s < STEPS; s += 2) {
            uint32_t b[2][4];
            cuda_matrices(b[0], from + s * 16);
            cuda_matrices(b[1], from + s * 16 + 8 * MLA_WIDE);
            cuda_mma(x[0], qa[s], b[0][0], b[0][1]);
            cuda_mma(x[1], qa[s], b[1][0], b[1][1]);
            cuda_mma(x[0], qa[s + 1], b[0][2], b[0][3]);
            cuda_mma(x[1], qa[s + 1], b[1][2], b[1][3]);
        }
#pragma unroll
        for (int k = 0; k < 2; k++) {
            float *to = &sh->score[half][warp_queries() + lane / 4][j + k * 8 + lane % 4 * 2];
            to[0] = x[k][0], to[1] = x[k][1];
            to += 8 * (MLA_TILE + 1);
            to[0] = x[k][2], to[1] = x[k][3];
        }
    }
}

/* Four threads a query, which sees `seen` of the tile's positions: their weights relative to its running maximum. */
__device__ static void weigh_tile(struct shared *sh, int seen, float scale)
{
    enum { EACH = MLA_TILE / 4 };
    int query = (int)threadIdx.x / 4, first = (int)threadIdx.x % 4;
    float x[EACH], before = sh->max[query], most = before, all = 0;

#pragma unroll
    for (int j = 0; j < EACH; j++) {
        int pos = first + 4 * j;
        x[j] = pos < seen ? (sh->score[0][query][pos] + sh->score[1][query][pos]) * scale : -INFINITY;
        most = fmaxf(most, x[j]);
    }
    most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 1));
    most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 2));
#pragma unroll
    for (int j = 0; j < EACH; j++) {
        float p = expf(x[j] - most);
        all += p;
        sh->p[query][first + 4 * j] = __float2bfloat16(p);
    }
    all += __shfl_xor_sync(0xffffffffu, all, 1);
    all += __shfl_xor_sync(0xffffffffu, all, 2);
    __syncwarp(); /* the other three have read what is overwritten */
    if (first == 0) {
        float factor = expf(before - most);
        sh->factor[query] = factor;
        sh->sum[query] = sh->sum[query] * factor + all;
        sh->max[query] = most;
    }
}

__device__ static void scale_rows(float cbar[HALF / 8][4], float low, float high)
{
#pragma unroll
    for (int j = 0; j < HALF / 8; j++)
        cbar[j][0] *= low, cbar[j][1] *= low, cbar[j][2] *= high, cbar[j][3] *= high;
}

__device__ static void mix_tile(const struct shared *sh, int stage, float cbar[HALF / 8][4])
{
    int lane = (int)threadIdx.x % 32, first = warp_queries();
    float low = sh->factor[first + lane / 4], high = sh->factor[first + lane / 4 + 8];

    if (__any_sync(0xffffffffu, low != 1 || high != 1))
        scale_rows(cbar, low, high);
#pragma unroll 1
    for (int s = 0; s < MLA_TILE; s += 16) {
        uint32_t a[4];
        cuda_matrices(a, &sh->p[first + lane % 16][s + lane / 16 * 8]);
#pragma unroll
        for (int j = 0; j < HALF / 8; j += 2) {
            uint32_t b[4];
            cuda_matrices_transposed(b, &sh->latent[stage][s + lane % 16][warp_half() * HALF + j * 8 + lane / 16 * 8]);
            cuda_mma(cbar[j], a, b[0], b[1]);
            cuda_mma(cbar[j + 1], a, b[2], b[3]);
        }
    }
}

/* A warp's half of cbar. */
__device__ static void attend(struct shared *sh, const struct work &t, const __nv_bfloat16 *cache, int page_tokens,
                              const struct kern_batch &b, int i, float scale, const uint32_t qa[STEPS][4],
                              float cbar[HALF / 8][4])
{
    int end = t.pos0 + t.rows, lane = (int)threadIdx.x % 32;
    int next = mla_row(b, page_tokens, i, (int)threadIdx.x / EACH, end);

    if (threadIdx.x < QUERIES) {
        sh->max[threadIdx.x] = -INFINITY;
        sh->sum[threadIdx.x] = 0;
    }
    mla_fetch<EACH>(sh->latent[0], cache, next);
    next = mla_row(b, page_tokens, i, MLA_TILE + (int)threadIdx.x / EACH, end);
    for (int pos = 0; pos < end; pos += MLA_TILE) {
        int stage = pos / MLA_TILE % 2;
        if (pos + MLA_TILE < end) {
            mla_fetch<EACH>(sh->latent[stage ^ 1], cache, next);
            next = mla_row(b, page_tokens, i, pos + 2 * MLA_TILE + (int)threadIdx.x / EACH, end);
            cuda_copies_wait<1>();
        } else
            cuda_copies_wait<0>();
        __syncthreads();
        score_tile(sh, stage, qa);
        __syncthreads();
        weigh_tile(sh, t.pos0 + (int)threadIdx.x / 4 + 1 - pos, scale);
        __syncthreads();
        mix_tile(sh, stage, cbar);
        __syncthreads();
    }
    scale_rows(cbar, 1.0f / sh->sum[warp_queries() + lane / 4], 1.0f / sh->sum[warp_queries() + lane / 4 + 8]);
}

/* --- expand --------------------------------------------------------------------------------------------------------
 */

/* VALUES of a head's from v0 on. */
__device__ static void expand(struct shared *sh, const struct work &t, const __nv_bfloat16 *uv, int64_t stride,
                              const float cbar[HALF / 8][4], int v0, const struct cuda_rows &o)
{
    int lane = (int)threadIdx.x % 32, first = warp_queries() + lane / 4;
    float x[VALUES / 8][4] = {};

    fetch_weights<VALUES>(sh, 0, uv, stride, 0, HALF);
#pragma unroll
    for (int st = 0; st < HALF / STAGE; st++) {
        uint32_t a[2][4];
        if (st + 1 < HALF / STAGE) {
            fetch_weights<VALUES>(sh, (st + 1) % 2, uv, stride, (st + 1) * STAGE, HALF + (st + 1) * STAGE);
            cuda_copies_wait<1>();
        } else
            cuda_copies_wait<0>();
        __syncthreads();
#pragma unroll
        for (int k = 0; k < 2; k++) {
            const float *c0 = cbar[st * 4 + k * 2], *c1 = cbar[st * 4 + k * 2 + 1];
            a[k][0] = cuda_bf16x2(c0[0], c0[1]);
            a[k][1] = cuda_bf16x2(c0[2], c0[3]);
            a[k][2] = cuda_bf16x2(c1[0], c1[1]);
            a[k][3] = cuda_bf16x2(c1[2], c1[3]);
        }
#pragma unroll
        for (int j = 0; j < VALUES / 8; j++) {
            uint32_t b[4];
            cuda_matrices(b, &sh->weight[st % 2][warp_half()][j * 8 + lane % 8][lane / 8 * 8]);
            cuda_mma(x[j], a[0], b[0], b[1]);
            cuda_mma(x[j], a[1], b[2], b[3]);
        }
        __syncthreads();
    }
    if (warp_half() == 1)
#pragma unroll
        for (int j = 0; j < VALUES / 8; j++)
#pragma unroll
            for (int r = 0; r < 4; r++)
                sh->o[first + r / 2 * 8][j * 8 + lane % 4 * 2 + r % 2] = x[j][r];
    __syncthreads();
    if (warp_half() == 0)
#pragma unroll
        for (int j = 0; j < VALUES / 8; j++)
#pragma unroll
            for (int r = 0; r < 4; r++) {
                int row = first + r / 2 * 8, v = j * 8 + lane % 4 * 2 + r % 2;
                if (row < t.rows)
                    o[t.row0 + row][t.head * K3_V_DIM + v0 + v] = x[j][r] + sh->o[row][v];
            }
}

/* -------------------------------------------------------------------------------------------------------------------
 */

/* A step's blocks have numbers; sequence i begins at this one. */
__device__ static int first_block(const struct kern_batch &b, int i)
{
    return b.begin[i] / QUERIES + i;
}

__global__ static void __launch_bounds__(THREADS, 1)
    attend_prompts(struct cuda_rows q, const __nv_bfloat16 *kv_b, int64_t stride, struct cuda_rows o,
                   const __nv_bfloat16 *cache, int page_tokens, const __grid_constant__ struct kern_batch b,
                   float scale)
{
    CUDA_SHARED(uint4, memory);
    struct shared *sh = (struct shared *)memory;
    __shared__ int found;
    const int number = (int)(gridDim.x - 1 - blockIdx.x); /* a prompt's last rows see most and begin first */
    struct work t = {0, 0, (int)blockIdx.y, 0};
    const __nv_bfloat16 *uk = kv_b + (int64_t)t.head * MLA_HEAD_ROWS * stride;
    uint32_t qa[STEPS][4];
    float cbar[HALF / 8][4] = {};

    cuda_wait();
    cuda_next();
    for (int i = (int)threadIdx.x; i < b.seqs; i += THREADS)
        if (first_block(b, i) <= number && number < first_block(b, i + 1))
            found = i;
    __syncthreads();
    int i = found, first = (number - first_block(b, i)) * QUERIES;
    t.rows = min(QUERIES, mla_expanded_rows(b, i) - first);
    if (t.rows <= 0)
        return;
    t.row0 = b.begin[i] + first;
    t.pos0 = (int)b.pos[i] + first;
    absorb(sh, t, q, uk, stride, qa);
    attend(sh, t, cache, page_tokens, b, found, scale, qa, cbar);
#pragma unroll 1
    for (int v = 0; v < K3_V_DIM; v += VALUES) {
        expand(sh, t, uk + (K3_NOPE_DIM + v) * stride, stride, cbar, v, o);
        __syncthreads();
    }
}

int cuda_mla_prompts(const struct mla_attend_args *a, struct k3_stream *s)
{
    const struct kern_batch *b = a->batch;

    return cuda_launch(s, "mla_attend: prompts", attend_prompts,
                       dim3((unsigned)(b->rows / QUERIES + b->seqs), (unsigned)a->heads), THREADS,
                       sizeof(struct shared), cuda_rows_of(a->q), (const __nv_bfloat16 *)a->kv_b->data, a->kv_b->stride,
                       cuda_rows_of(a->o), (const __nv_bfloat16 *)a->cache->data, a->cache->page_tokens, *b, a->scale);
}
