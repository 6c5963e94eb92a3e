/* mla_attend.cu - attention over the latents, keys and values absorbed (SPEC 6)
 *
 *   qa = UK^T qn;  score_s = scale (qa . c_s + qp . kp_s);  p = softmax(score);  cbar = sum_s p_s c_s;  o = UV cbar
 *
 * Four kernels: absorb (qa), attend, merge (cbar), expand (o).  All rows take the absorbed form, a prompt's too.  A
 * row's positions are cut into chunks whose length follows from the row's own position; a block of attend takes one of
 * them for up to HEADS heads, which share what it reads of the cache, and keeps a running maximum and sum; merge adds
 * the chunks in their order.  qa, p and the cache are BF16 in the products with the cache, all sums and the softmax
 * fp32, and so are qn, cbar and their products with the weights. */
#include "kernels/cuda/mma.h"
#include "kernels/cuda/rows.h"

enum {
    HEAD_ROWS = K3_NOPE_DIM + K3_V_DIM,
    TILE = 32,               /* positions that are in shared memory at a time, and as many under way */
    HEADS = 16,              /* rows of a tensor core's factor */
    CHUNKS = 256,            /* of a row, at most */
    WIDE = K3_CACHE_DIM + 8, /* of a row in shared memory: rows 8 apart meet other banks */
    THREADS = 256,
    WARPS = THREADS / 32,
};

/* Tensors between the kernels, in the workspace. */
struct between {
    __nv_bfloat16 *qa; /* [rows, heads, K3_CACHE_DIM] */
    float2 *top;       /* [rows, chunks, heads]: maximum and sum */
    float *part;       /* [rows, chunks, heads, K3_LATENT_DIM] */
    float *cbar;       /* [rows, heads, K3_LATENT_DIM] */
    int heads, chunks;
};

/* Positions of a chunk for a row that sees so many. */
__device__ static int chunk_length(int positions)
{
    int tiles = (positions + 2 * TILE - 1) / (2 * TILE);

    return (tiles + CHUNKS - 1) / CHUNKS * (2 * TILE);
}

/* --- absorb --------------------------------------------------------------------------------------------------------
 */

enum { SLICE = 32, GROUPS = THREADS / (SLICE / 2), STRIP = K3_NOPE_DIM / GROUPS, TOGETHER = 4 };

/* A block: SLICE columns of a head's UK for TOGETHER rows.  A thread two columns and STRIP rows of UK. */
__global__ static void __launch_bounds__(THREADS)
    absorb(struct cuda_rows q, const __nv_bfloat16 *kv_b, int64_t stride, int rows, struct between m)
{
    __shared__ float qn[TOGETHER][K3_NOPE_DIM];
    __shared__ float2 sum[GROUPS][TOGETHER][SLICE / 2];
    int head = (int)blockIdx.y, pair = (int)threadIdx.x % (SLICE / 2), group = (int)threadIdx.x / (SLICE / 2);
    int d = (int)blockIdx.x * SLICE, row0 = (int)blockIdx.z * TOGETHER, count = min(TOGETHER, rows - row0);
    const __nv_bfloat16 *uk = kv_b + ((int64_t)head * HEAD_ROWS + group * STRIP) * stride + d + pair * 2;
    float2 w[STRIP];

#pragma unroll
    for (int n = 0; n < STRIP; n++)
        w[n] = __bfloat1622float2(*(const __nv_bfloat162 *)(uk + n * stride));
    cuda_wait();
    cuda_next();
    for (int j = (int)threadIdx.x; j < count * K3_NOPE_DIM; j += THREADS)
        qn[j / K3_NOPE_DIM][j % K3_NOPE_DIM] = q[row0 + j / K3_NOPE_DIM][head * K3_QK_DIM + j % K3_NOPE_DIM];
    for (int j = (int)threadIdx.x; blockIdx.x == 0 && j < count * K3_ROPE_DIM; j += THREADS)
        m.qa[((int64_t)(row0 + j / K3_ROPE_DIM) * m.heads + head) * K3_CACHE_DIM + K3_LATENT_DIM + j % K3_ROPE_DIM] =
            __float2bfloat16(q[row0 + j / K3_ROPE_DIM][head * K3_QK_DIM + K3_NOPE_DIM + j % K3_ROPE_DIM]);
    __syncthreads();
    for (int r = 0; r < count; r++) {
        float2 s = {0, 0};
#pragma unroll
        for (int n = 0; n < STRIP; n++) {
            s.x += qn[r][group * STRIP + n] * w[n].x;
            s.y += qn[r][group * STRIP + n] * w[n].y;
        }
        sum[group][r][pair] = s;
    }
    __syncthreads();
    if (threadIdx.x < count * (SLICE / 2)) {
        int r = (int)threadIdx.x / (SLICE / 2);
        float2 s = {0, 0};
        for (int g = 0; g < GROUPS; g++)
            s.x += sum[g][r][pair].x, s.y += sum[g][r][pair].y;
        *(uint32_t *)(m.qa + ((int64_t)(row0 + r) * m.heads + head) * K3_CACHE_DIM + d + pair * 2) =
            cuda_bf16x2(s.x, s.y);
    }
}

/* --- attend --------------------------------------------------------------------------------------------------------
 */

struct shared {
    __nv_bfloat16 q[HEADS][WIDE], latent[2][TILE][WIDE], p[HEADS][TILE + 8];
    float score[2][HEADS][TILE + 1]; /* of the first and of the second half of a latent row */
    float factor[HEADS];
};

/* Start to copy this thread's part of the position whose cache row is given; -1 for none. */
__device__ static void fetch(struct shared *sh, int stage, const __nv_bfloat16 *cache, int64_t row)
{
    int position = (int)threadIdx.x / 8;

#pragma unroll
    for (int piece = (int)threadIdx.x % 8; piece < K3_CACHE_DIM / 8; piece += 8)
        cuda_copy16(&sh->latent[stage][position][piece * 8], cache + (row < 0 ? 0 : row) * K3_CACHE_DIM + piece * 8,
                    row >= 0);
    cuda_copies_end();
}

/* A warp: the scores of eight positions over half of a latent row. */
__device__ static void score_tile(struct shared *sh, int stage)
{
    enum { STEPS = K3_CACHE_DIM / 16 / 2 };
    int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32, first = warp % 4 * 8, half = warp / 4;
    const __nv_bfloat16 *q = &sh->q[lane % 16][half * STEPS * 16 + lane / 16 * 8];
    const __nv_bfloat16 *c = &sh->latent[stage][first + lane % 8][half * STEPS * 16 + lane / 8 * 8];
    float sum[4] = {0, 0, 0, 0};

#pragma unroll
    for (int step = 0; step < STEPS; step += 2) {
        uint32_t a[4], b[4];
        cuda_matrices(b, c + step * 16);
        cuda_matrices(a, q + step * 16);
        cuda_mma(sum, a, b[0], b[1]);
        cuda_matrices(a, q + step * 16 + 16);
        cuda_mma(sum, a, b[2], b[3]);
    }
    float *to = &sh->score[half][lane / 4][first + lane % 4 * 2];
    to[0] = sum[0], to[1] = sum[1];
    to += 8 * (TILE + 1);
    to[0] = sum[2], to[1] = sum[3];
}
static_assert(K3_CACHE_DIM % 64 == 0 && WARPS == 8 && TILE == 32, "eight warps share a tile");

/* Sixteen threads a head: weights relative to the running maximum. */
__device__ static void weigh_tile(struct shared *sh, int count, float scale, float *max, float *sum)
{
    int head = (int)threadIdx.x / 16, s = (int)threadIdx.x % 16;
    float x[2], most = *max;

#pragma unroll
    for (int j = 0; j < 2; j++) {
        int pos = s + 16 * j;
        x[j] = pos < count ? (sh->score[0][head][pos] + sh->score[1][head][pos]) * scale : -INFINITY;
        most = fmaxf(most, x[j]);
    }
    for (int d = 8; d > 0; d >>= 1)
        most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, d));
    float factor = expf(*max - most), all = 0;
#pragma unroll
    for (int j = 0; j < 2; j++) {
        float p = expf(x[j] - most);
        all += p;
        sh->p[head][s + 16 * j] = __float2bfloat16(p);
    }
    for (int d = 8; d > 0; d >>= 1)
        all += __shfl_xor_sync(0xffffffffu, all, d);
    *sum = *sum * factor + all;
    *max = most;
    if (s == 0)
        sh->factor[head] = factor;
}

enum { COLUMNS = K3_LATENT_DIM / WARPS, PIECES = COLUMNS / 8 };

/* A warp: COLUMNS latents of cbar. */
__device__ static void mix_tile(struct shared *sh, int stage, float cbar[PIECES][4])
{
    int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    float low = sh->factor[lane / 4], high = sh->factor[lane / 4 + 8];

#pragma unroll
    for (int j = 0; j < PIECES; j++)
        cbar[j][0] *= low, cbar[j][1] *= low, cbar[j][2] *= high, cbar[j][3] *= high;
#pragma unroll
    for (int s = 0; s < TILE; s += 16) {
        uint32_t a[4];
        cuda_matrices(a, &sh->p[lane % 16][s + lane / 16 * 8]);
#pragma unroll
        for (int j = 0; j < PIECES; j += 2) {
            uint32_t b[4];
            cuda_matrices_transposed(b, &sh->latent[stage][s + lane % 16][warp * COLUMNS + j * 8 + lane / 16 * 8]);
            cuda_mma(cbar[j], a, b[0], b[1]);
            cuda_mma(cbar[j + 1], a, b[2], b[3]);
        }
    }
}

__global__ static void __launch_bounds__(THREADS)
    attend(const __nv_bfloat16 *cache, int page_tokens, struct kern_batch b, int row0, float scale, struct between m)
{
    extern __shared__ __align__(16) char memory[];
    struct shared *sh = (struct shared *)memory;
    __shared__ int found;
    int row = row0 + (int)blockIdx.y, head0 = (int)blockIdx.z * HEADS, heads = min(HEADS, m.heads - head0);
    int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    float max = -INFINITY, sum = 0, cbar[PIECES][4] = {};

    cuda_wait();
    cuda_next();
    int i = cuda_sequence_of(b, row, &found);
    int positions = (int)b.pos[i] + row - b.begin[i] + 1, length = chunk_length(positions);
    int begin = (int)blockIdx.x * length, end = min(positions, begin + length);
    if (begin >= end)
        return;
    int mine = begin + (int)threadIdx.x / 8;
    int64_t next = mine < end ? cuda_latent_row(b, page_tokens, i, mine) : -1;
    fetch(sh, 0, cache, next);
    mine += TILE;
    next = mine < end ? cuda_latent_row(b, page_tokens, i, mine) : -1;
    const __nv_bfloat16 *qa = m.qa + ((int64_t)blockIdx.y * m.heads + head0) * K3_CACHE_DIM;
    for (int j = (int)threadIdx.x; j < HEADS * K3_CACHE_DIM / 8; j += THREADS) {
        int head = j / (K3_CACHE_DIM / 8), d = j % (K3_CACHE_DIM / 8) * 8;
        uint4 zero = {0, 0, 0, 0};
        *(uint4 *)&sh->q[head][d] = head < heads ? *(const uint4 *)(qa + (int64_t)head * K3_CACHE_DIM + d) : zero;
    }
    for (int pos = begin, stage = 0; pos < end; pos += TILE, stage ^= 1) {
        if (pos + TILE < end) {
            fetch(sh, stage ^ 1, cache, next);
            mine += TILE;
            next = mine < end ? cuda_latent_row(b, page_tokens, i, mine) : -1;
            cuda_copies_wait<1>();
        } else
            cuda_copies_wait<0>();
        __syncthreads();
        score_tile(sh, stage);
        __syncthreads();
        weigh_tile(sh, end - pos, scale, &max, &sum);
        __syncthreads();
        mix_tile(sh, stage, cbar);
        __syncthreads();
    }
    int64_t at = ((int64_t)blockIdx.y * m.chunks + blockIdx.x) * m.heads + head0;
    int head = (int)threadIdx.x / 16;
    if (head < heads && threadIdx.x % 16 == 0)
        m.top[at + head] = make_float2(max, sum);
#pragma unroll
    for (int j = 0; j < PIECES; j++) {
        float *to = m.part + at * K3_LATENT_DIM + warp * COLUMNS + j * 8 + lane % 4 * 2;
        if (lane / 4 < heads)
            *(float2 *)(to + lane / 4 * K3_LATENT_DIM) = make_float2(cbar[j][0], cbar[j][1]);
        if (lane / 4 + 8 < heads)
            *(float2 *)(to + (lane / 4 + 8) * K3_LATENT_DIM) = make_float2(cbar[j][2], cbar[j][3]);
    }
}

/* --- merge ---------------------------------------------------------------------------------------------------------
 */

enum { MERGE_COLUMNS = 64, MERGE_GROUPS = THREADS / MERGE_COLUMNS };

/* A block: MERGE_COLUMNS of a row's and head's cbar; its chunks are shared by MERGE_GROUPS. */
__global__ static void __launch_bounds__(THREADS) merge(struct kern_batch b, int row0, struct between m)
{
    __shared__ float weight[CHUNKS], room[WARPS], part[MERGE_GROUPS][MERGE_COLUMNS];
    __shared__ int found;
    int row = row0 + (int)blockIdx.z, head = (int)blockIdx.y, group = (int)threadIdx.x / MERGE_COLUMNS;
    int column = (int)threadIdx.x % MERGE_COLUMNS, d = (int)blockIdx.x * MERGE_COLUMNS + column, c = (int)threadIdx.x;
    float sum = 0;

    cuda_wait();
    cuda_next();
    int i = cuda_sequence_of(b, row, &found);
    int positions = (int)b.pos[i] + row - b.begin[i] + 1, length = chunk_length(positions);
    int count = (positions + length - 1) / length;
    int64_t at = (int64_t)blockIdx.z * m.chunks * m.heads + head;
    float2 top = c < count ? m.top[at + (int64_t)c * m.heads] : make_float2(-INFINITY, 0);
    float max = cuda_warp_max(top.x);
    if (threadIdx.x % 32 == 0)
        room[threadIdx.x / 32] = max;
    __syncthreads();
    for (int j = 0; j < WARPS; j++)
        max = fmaxf(max, room[j]);
    weight[c] = expf(top.x - max);
    float all = cuda_block_sum(weight[c] * top.y, room);
#pragma unroll 8
    for (int j = group; j < count; j += MERGE_GROUPS)
        sum += weight[j] * m.part[(at + (int64_t)j * m.heads) * K3_LATENT_DIM + d];
    part[group][column] = sum;
    __syncthreads();
    if (group > 0)
        return;
    for (int g = 1; g < MERGE_GROUPS; g++)
        sum += part[g][column];
    m.cbar[((int64_t)blockIdx.z * m.heads + head) * K3_LATENT_DIM + d] = sum / all;
}
static_assert(CHUNKS == THREADS, "a thread weighs a chunk");

/* --- expand --------------------------------------------------------------------------------------------------------
 */

/* A warp: one value of a head, for EXPAND_ROWS rows. */
enum { EXPAND_ROWS = 8 };

__global__ static void __launch_bounds__(THREADS)
    expand(const __nv_bfloat16 *kv_b, int64_t stride, struct cuda_rows o, int rows, struct between m)
{
    int head = (int)blockIdx.y, v = (int)blockIdx.x * WARPS + (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    int row0 = (int)blockIdx.z * EXPAND_ROWS, end = min(rows, row0 + EXPAND_ROWS);
    const __nv_bfloat16 *uv = kv_b + ((int64_t)head * HEAD_ROWS + K3_NOPE_DIM + v) * stride;
    struct cuda_vector weights = {uv, 1};
    float4 w[K3_LATENT_DIM / 128];

#pragma unroll
    for (int j = 0; j < K3_LATENT_DIM / 128; j++)
        w[j] = cuda_load4(weights, j * 128 + lane * 4, K3_LATENT_DIM);
    cuda_wait();
    cuda_next();
    for (int row = row0; row < end; row++) {
        const float4 *cbar = (const float4 *)(m.cbar + ((int64_t)row * m.heads + head) * K3_LATENT_DIM);
        float sum = 0;
#pragma unroll
        for (int j = 0; j < K3_LATENT_DIM / 128; j++)
            sum += cuda_dot4(w[j], cbar[j * 32 + lane]);
        sum = cuda_warp_sum(sum);
        if (lane == 0)
            o[row][head * K3_V_DIM + v] = sum;
    }
}

/* -------------------------------------------------------------------------------------------------------------------
 */

static int64_t row_bytes(const struct between *m)
{
    int64_t part = (int64_t)m->chunks * (K3_LATENT_DIM * sizeof *m->part + sizeof *m->top);

    return m->heads * (K3_CACHE_DIM * (int64_t)sizeof *m->qa + part + K3_LATENT_DIM * (int64_t)sizeof *m->cbar);
}

/* Rows [row0, row0 + rows). */
static int attend_rows(const struct mla_attend_args *a, struct k3_stream *s, int row0, int rows, struct between m)
{
    char *at = cuda_of(s)->workspace;
    const __nv_bfloat16 *kv_b = (const __nv_bfloat16 *)a->kv_b->data, *cache = (const __nv_bfloat16 *)a->cache->data;
    struct cuda_rows q = cuda_rows_of(a->q), o = cuda_rows_of(a->o);
    unsigned heads = (unsigned)m.heads, chunks = (unsigned)m.chunks;

    m.part = (float *)at;
    m.cbar = m.part + (int64_t)rows * m.chunks * m.heads * K3_LATENT_DIM;
    m.qa = (__nv_bfloat16 *)(m.cbar + (int64_t)rows * m.heads * K3_LATENT_DIM);
    m.top = (float2 *)(m.qa + (int64_t)rows * m.heads * K3_CACHE_DIM);
    q.data += row0 * q.stride;
    o.data += row0 * o.stride;
    if (cuda_launch(s, "mla_attend: absorb", absorb,
                    dim3(K3_LATENT_DIM / SLICE, heads, (unsigned)(rows + TOGETHER - 1) / TOGETHER), THREADS, 0, q, kv_b,
                    a->kv_b->stride, rows, m) < 0 ||
        cuda_launch(s, "mla_attend", attend, dim3(chunks, (unsigned)rows, (heads + HEADS - 1) / HEADS), THREADS,
                    sizeof(struct shared), cache, a->cache->page_tokens, *a->batch, row0, a->scale, m) < 0 ||
        cuda_launch(s, "mla_attend: merge", merge, dim3(K3_LATENT_DIM / MERGE_COLUMNS, heads, (unsigned)rows), THREADS,
                    0, *a->batch, row0, m) < 0)
        return -1;
    return cuda_launch(s, "mla_attend: expand", expand,
                       dim3(K3_V_DIM / WARPS, heads, (unsigned)(rows + EXPAND_ROWS - 1) / EXPAND_ROWS), THREADS, 0,
                       kv_b, a->kv_b->stride, o, rows, m);
}

extern "C" int cuda_mla_attend(const struct mla_attend_args *a, struct k3_stream *s)
{
    int64_t most = (int64_t)a->batch->page_stride * a->cache->page_tokens;
    struct between m = {};

    if (most > INT32_MAX - 2 * TILE || (uintptr_t)a->kv_b->data % 8 != 0 || a->kv_b->stride % 4 != 0) {
        errno = EINVAL;
        return -1;
    }
    m.heads = a->heads;
    m.chunks = (int)((most + 2 * TILE - 1) / (2 * TILE));
    if (m.chunks > CHUNKS)
        m.chunks = CHUNKS;
    if (m.heads == 0 || m.chunks == 0)
        return 0;
    int64_t together = (int64_t)cuda_of(s)->workspace_bytes / row_bytes(&m);
    together = together < 1 << 15 ? together : 1 << 15;
    for (int64_t row = 0, rows = a->q->rows; row < rows; row += together)
        if (attend_rows(a, s, (int)row, (int)(rows - row < together ? rows - row : together), m) < 0)
            return -1;
    return 0;
}
