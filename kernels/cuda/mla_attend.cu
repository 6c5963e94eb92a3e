/* mla_attend.cu - attention over the latents, keys and values absorbed (SPEC 6)
 *
 *   qa = UK^T qn;  score_s = scale (qa . c_s + qp . kp_s);  p = softmax(score);  cbar = sum_s p_s c_s;  o = UV cbar
 *
 * Four kernels: absorb (qa), attend, merge (cbar), expand (o).  A row's positions are cut into chunks whose length
 * follows from the row's own position; a block of attend takes one of them for up to HEADS heads, which share what it
 * reads of the cache, and keeps a running maximum and sum; merge adds the chunks in their order.  qa, p and the cache
 * are BF16 in the products with the cache, all sums and the softmax fp32, and so are qn, cbar and their products with
 * the weights.
 *
 * A prompt's rows, but for its last few, are the affair of mla_prompts.cu.  In a step that has prompts a list is made
 * of the rows that are left. */
#include "kernels/cuda/mla.h"

enum {
    TILE = MLA_TILE,
    WIDE = MLA_WIDE,
    THREADS = 256,
    EACH = THREADS / TILE, /* threads that copy a position */
    WARPS = THREADS / 32,
    HEADS = 16,   /* rows of a tensor core's factor */
    CHUNKS = 256, /* of a row, at most */
    HEAD_ROWS = MLA_HEAD_ROWS,
};

struct item {
    int row, sequence, positions; /* it sees positions 0 ... positions - 1 */
};

/* The rows of a step that are done here. */
struct list {
    int count;
    struct item item[];
};

/* Tensors between the kernels, in the workspace. */
struct between {
    __nv_bfloat16 *qa; /* [rows, heads, K3_CACHE_DIM] */
    float2 *top;       /* [rows, chunks, heads]: maximum and sum */
    float *part;       /* [rows, chunks, heads, K3_LATENT_DIM] */
    float *cbar;       /* [rows, heads, K3_LATENT_DIM] */
    int heads, chunks;
    int row0, rows;          /* of the list, or of the step where there is none */
    const struct list *list; /* NULL in a step without prompts */
};

/* Positions of a chunk for a row that sees so many. */
__device__ static int chunk_length(int positions)
{
    int tiles = (positions + 2 * TILE - 1) / (2 * TILE);

    return (tiles + CHUNKS - 1) / CHUNKS * (2 * TILE);
}

/* How many of the rows there are. */
__device__ static int live_rows(const struct between &m)
{
    return m.list ? min(m.rows, m.list->count - m.row0) : m.rows;
}

__device__ static int row_of(const struct between &m, int k)
{
    return m.list ? m.list->item[m.row0 + k].row : m.row0 + k;
}

/* The k-th of the rows, for a whole block; room: shared. */
__device__ static struct item item_of(const struct kern_batch &b, const struct between &m, int k, int *room)
{
    if (m.list)
        return m.list->item[m.row0 + k];
    int row = m.row0 + k, i = cuda_sequence_of(b, row, room);
    return (struct item){row, i, (int)b.pos[i] + row - b.begin[i] + 1};
}

/* --- list ----------------------------------------------------------------------------------------------------------
 */

/* One block, a thread a sequence. */
__global__ static void __launch_bounds__(THREADS)
    list_rows(const __grid_constant__ struct kern_batch b, struct list *list)
{
    __shared__ int count[THREADS];
    int before = 0;

    cuda_wait();
    cuda_next();
    for (int first = 0; first < b.seqs; first += THREADS) {
        int i = first + (int)threadIdx.x, rows = 0, done = 0, at = before;
        if (i < b.seqs) {
            rows = b.begin[i + 1] - b.begin[i];
            done = mla_expanded_rows(b, i);
        }
        count[threadIdx.x] = rows - done;
        __syncthreads();
        for (int j = 0; j < THREADS; j++) {
            at += j < (int)threadIdx.x ? count[j] : 0;
            before += count[j];
        }
        for (int r = done; r < rows; r++)
            list->item[at + r - done] = (struct item){b.begin[i] + r, i, (int)b.pos[i] + r + 1};
        __syncthreads();
    }
    if (threadIdx.x == 0)
        list->count = before;
}

/* --- absorb --------------------------------------------------------------------------------------------------------
 */

enum { SLICE = 32, GROUPS = THREADS / (SLICE / 2), STRIP = K3_NOPE_DIM / GROUPS, TOGETHER = 4 };

/* A block: SLICE columns of a head's UK for TOGETHER rows.  A thread two columns and STRIP rows of UK. */
__global__ static void __launch_bounds__(THREADS)
    absorb(struct cuda_rows q, const __nv_bfloat16 *kv_b, int64_t stride, struct between m)
{
    __shared__ float qn[TOGETHER][K3_NOPE_DIM];
    __shared__ float2 sum[GROUPS][TOGETHER][SLICE / 2];
    int head = (int)blockIdx.y, pair = (int)threadIdx.x % (SLICE / 2), group = (int)threadIdx.x / (SLICE / 2);
    int d = (int)blockIdx.x * SLICE, k0 = (int)blockIdx.z * TOGETHER;
    const __nv_bfloat16 *uk = kv_b + ((int64_t)head * HEAD_ROWS + group * STRIP) * stride + d + pair * 2;
    float2 w[STRIP];

#pragma unroll
    for (int n = 0; n < STRIP; n++)
        w[n] = __bfloat1622float2(*(const __nv_bfloat162 *)(uk + n * stride));
    cuda_wait();
    cuda_next();
    int count = min(TOGETHER, live_rows(m) - k0);
    for (int j = (int)threadIdx.x; j < count * K3_NOPE_DIM; j += THREADS)
        qn[j / K3_NOPE_DIM][j % K3_NOPE_DIM] = q[row_of(m, k0 + j / K3_NOPE_DIM)][head * K3_QK_DIM + j % K3_NOPE_DIM];
    for (int j = (int)threadIdx.x; blockIdx.x == 0 && j < count * K3_ROPE_DIM; j += THREADS)
        m.qa[((int64_t)(k0 + j / K3_ROPE_DIM) * m.heads + head) * K3_CACHE_DIM + K3_LATENT_DIM + j % K3_ROPE_DIM] =
            __float2bfloat16(q[row_of(m, k0 + j / K3_ROPE_DIM)][head * K3_QK_DIM + K3_NOPE_DIM + j % K3_ROPE_DIM]);
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
    if ((int)threadIdx.x < count * (SLICE / 2)) {
        int r = (int)threadIdx.x / (SLICE / 2);
        float2 s = {0, 0};
        for (int g = 0; g < GROUPS; g++)
            s.x += sum[g][r][pair].x, s.y += sum[g][r][pair].y;
        *(uint32_t *)(m.qa + ((int64_t)(k0 + r) * m.heads + head) * K3_CACHE_DIM + d + pair * 2) =
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

/* A warp: the scores of eight positions over half of a latent row. */
__device__ static void score_tile(struct shared *sh, int stage)
{
    enum { STEPS = K3_CACHE_DIM / 16 / 2 };
    int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32, first = warp % 4 * 8, half = warp / 4;
    const __nv_bfloat16 *q = &sh->q[lane % 16][half * STEPS * 16 + lane / 16 * 8];
    const __nv_bfloat16 *c = &sh->latent[stage][first + lane % 8][half * STEPS * 16 + lane / 8 * 8];
    float sum[4] = {}, odd[4] = {};

#pragma unroll
    for (int step = 0; step < STEPS; step += 2) {
        uint32_t a[4], b[4];
        cuda_matrices(b, c + step * 16);
        cuda_matrices(a, q + step * 16);
        cuda_mma(sum, a, b[0], b[1]);
        cuda_matrices(a, q + step * 16 + 16);
        cuda_mma(odd, a, b[2], b[3]);
    }
    float *to = &sh->score[half][lane / 4][first + lane % 4 * 2];
    to[0] = sum[0] + odd[0], to[1] = sum[1] + odd[1];
    to += 8 * (TILE + 1);
    to[0] = sum[2] + odd[2], to[1] = sum[3] + odd[3];
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

/* One chunk of one row for up to HEADS heads from head0 on. */
__device__ static void attend_chunk(struct shared *sh, const __nv_bfloat16 *cache, int page_tokens,
                                    const struct kern_batch &b, const struct item &it, int k, int chunk, int head0,
                                    float scale, const struct between &m)
{
    int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32, heads = min(HEADS, m.heads - head0);
    int length = chunk_length(it.positions), begin = chunk * length, end = min(it.positions, begin + length);
    float max = -INFINITY, sum = 0, cbar[PIECES][4] = {};

    if (begin >= end)
        return;
    int mine = begin + (int)threadIdx.x / EACH;
    int next = mla_row(b, page_tokens, it.sequence, mine, end);
    mla_fetch<EACH>(sh->latent[0], cache, next);
    mine += TILE;
    next = mla_row(b, page_tokens, it.sequence, mine, end);
    const __nv_bfloat16 *qa = m.qa + ((int64_t)k * m.heads + head0) * K3_CACHE_DIM;
    for (int j = (int)threadIdx.x; j < HEADS * K3_CACHE_DIM / 8; j += THREADS) {
        int head = j / (K3_CACHE_DIM / 8), d = j % (K3_CACHE_DIM / 8) * 8;
        uint4 zero = {0, 0, 0, 0};
        *(uint4 *)&sh->q[head][d] = head < heads ? *(const uint4 *)(qa + (int64_t)head * K3_CACHE_DIM + d) : zero;
    }
    for (int pos = begin, stage = 0; pos < end; pos += TILE, stage ^= 1) {
        if (pos + TILE < end) {
            mla_fetch<EACH>(sh->latent[stage ^ 1], cache, next);
            mine += TILE;
            next = mla_row(b, page_tokens, it.sequence, mine, end);
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
    int64_t at = ((int64_t)k * m.chunks + chunk) * m.heads + head0;
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

__global__ static void __launch_bounds__(THREADS, 2)
    attend(const __nv_bfloat16 *cache, int page_tokens, const __grid_constant__ struct kern_batch b, float scale,
           const __grid_constant__ struct between m)
{
    CUDA_SHARED(uint4, memory);
    __shared__ int room;

    cuda_wait();
    cuda_next();
    for (int64_t w = blockIdx.x, end = (int64_t)live_rows(m) * m.chunks; w < end; w += gridDim.x) {
        int k = (int)(w / m.chunks), chunk = (int)(w % m.chunks);
        struct item it = item_of(b, m, k, &room);
        attend_chunk((struct shared *)memory, cache, page_tokens, b, it, k, chunk, (int)blockIdx.y * HEADS, scale, m);
        __syncthreads();
    }
}

/* --- merge ---------------------------------------------------------------------------------------------------------
 */

enum { MERGE_COLUMNS = 64, MERGE_GROUPS = THREADS / MERGE_COLUMNS };

/* A block: MERGE_COLUMNS of a row's and head's cbar; its chunks are shared by MERGE_GROUPS. */
__global__ static void __launch_bounds__(THREADS)
    merge(const __grid_constant__ struct kern_batch b, const __grid_constant__ struct between m)
{
    __shared__ float weight[CHUNKS], room[WARPS], part[MERGE_GROUPS][MERGE_COLUMNS];
    __shared__ int found;
    int k = (int)blockIdx.z, head = (int)blockIdx.y, group = (int)threadIdx.x / MERGE_COLUMNS;
    int column = (int)threadIdx.x % MERGE_COLUMNS, d = (int)blockIdx.x * MERGE_COLUMNS + column, c = (int)threadIdx.x;
    float sum = 0;

    cuda_wait();
    cuda_next();
    if (k >= live_rows(m))
        return;
    int positions = item_of(b, m, k, &found).positions, length = chunk_length(positions);
    int count = (positions + length - 1) / length;
    int64_t at = (int64_t)k * m.chunks * m.heads + head;
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
    m.cbar[((int64_t)k * m.heads + head) * K3_LATENT_DIM + d] = sum / all;
}
static_assert(CHUNKS == THREADS, "a thread weighs a chunk");

/* --- expand --------------------------------------------------------------------------------------------------------
 */

/* A warp: one value of a head, for EXPAND_ROWS rows. */
enum { EXPAND_ROWS = 8 };

__global__ static void __launch_bounds__(THREADS)
    expand(const __nv_bfloat16 *kv_b, int64_t stride, struct cuda_rows o, struct between m)
{
    int head = (int)blockIdx.y, v = (int)blockIdx.x * WARPS + (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    int k0 = (int)blockIdx.z * EXPAND_ROWS;
    const __nv_bfloat16 *uv = kv_b + ((int64_t)head * HEAD_ROWS + K3_NOPE_DIM + v) * stride;
    struct cuda_vector weights = {uv, 1};
    float4 w[K3_LATENT_DIM / 128];

#pragma unroll
    for (int j = 0; j < K3_LATENT_DIM / 128; j++)
        w[j] = cuda_load4(weights, j * 128 + lane * 4, K3_LATENT_DIM);
    cuda_wait();
    cuda_next();
    for (int k = k0, end = min(live_rows(m), k0 + EXPAND_ROWS); k < end; k++) {
        const float4 *cbar = (const float4 *)(m.cbar + ((int64_t)k * m.heads + head) * K3_LATENT_DIM);
        float sum = 0;
#pragma unroll
        for (int j = 0; j < K3_LATENT_DIM / 128; j++)
            sum += cuda_dot4(w[j], cbar[j * 32 + lane]);
        sum = cuda_warp_sum(sum);
        if (lane == 0)
            o[row_of(m, k)][head * K3_V_DIM + v] = sum;
    }
}

/* -------------------------------------------------------------------------------------------------------------------
 */

static int64_t row_bytes(const struct between *m)
{
    int64_t part = (int64_t)m->chunks * (K3_LATENT_DIM * sizeof *m->part + sizeof *m->top);

    return m->heads * (K3_CACHE_DIM * (int64_t)sizeof *m->qa + part + K3_LATENT_DIM * (int64_t)sizeof *m->cbar);
}

/* The rows that m names; `at`: the workspace that is left. */
static int attend_rows(const struct mla_attend_args *a, struct k3_stream *s, char *at, struct between m)
{
    const __nv_bfloat16 *kv_b = (const __nv_bfloat16 *)a->kv_b->data, *cache = (const __nv_bfloat16 *)a->cache->data;
    unsigned heads = (unsigned)m.heads, blocks = (unsigned)(m.rows * m.chunks), most = 2 * (unsigned)cuda_of(s)->sms;

    m.part = (float *)at;
    m.cbar = m.part + (int64_t)m.rows * m.chunks * m.heads * K3_LATENT_DIM;
    m.qa = (__nv_bfloat16 *)(m.cbar + (int64_t)m.rows * m.heads * K3_LATENT_DIM);
    m.top = (float2 *)(m.qa + (int64_t)m.rows * m.heads * K3_CACHE_DIM);
    if (cuda_launch(s, "mla_attend: absorb", absorb,
                    dim3(K3_LATENT_DIM / SLICE, heads, (unsigned)(m.rows + TOGETHER - 1) / TOGETHER), THREADS, 0,
                    cuda_rows_of(a->q), kv_b, a->kv_b->stride, m) < 0 ||
        cuda_launch(s, "mla_attend", attend, dim3(m.list && blocks > most ? most : blocks, (heads + HEADS - 1) / HEADS),
                    THREADS, sizeof(struct shared), cache, a->cache->page_tokens, *a->batch, a->scale, m) < 0 ||
        cuda_launch(s, "mla_attend: merge", merge, dim3(K3_LATENT_DIM / MERGE_COLUMNS, heads, (unsigned)m.rows),
                    THREADS, 0, *a->batch, m) < 0)
        return -1;
    return cuda_launch(s, "mla_attend: expand", expand,
                       dim3(K3_V_DIM / WARPS, heads, (unsigned)(m.rows + EXPAND_ROWS - 1) / EXPAND_ROWS), THREADS, 0,
                       kv_b, a->kv_b->stride, cuda_rows_of(a->o), m);
}

extern "C" int cuda_mla_attend(const struct mla_attend_args *a, struct k3_stream *s)
{
    struct cuda_stream *c = cuda_of(s);
    int64_t most = (int64_t)a->batch->page_stride * a->cache->page_tokens, rows = a->q->rows;
    int64_t list_bytes = (int64_t)sizeof(struct list) + rows * (int64_t)sizeof(struct item);
    struct between m = {};

    if (most > INT32_MAX / 2 || (uintptr_t)a->kv_b->data % 16 != 0 || a->kv_b->stride % 8 != 0) {
        errno = EINVAL;
        return -1;
    }
    if (a->heads == 0 || rows == 0 || most == 0)
        return 0;
    m.heads = a->heads;
    m.chunks = (int)((most + 2 * TILE - 1) / (2 * TILE));
    if (m.chunks > CHUNKS)
        m.chunks = CHUNKS;
    list_bytes = a->batch->prefill ? (list_bytes + 255) / 256 * 256 : 0;
    if (a->batch->prefill) {
        m.list = (const struct list *)c->workspace;
        if (cuda_mla_prompts(a, s) < 0 ||
            cuda_launch(s, "mla_attend: list", list_rows, 1, THREADS, 0, *a->batch, (struct list *)c->workspace) < 0)
            return -1;
    }
    int64_t together = ((int64_t)c->workspace_bytes - list_bytes) / row_bytes(&m);
    together = together < 1 << 15 ? together : 1 << 15;
    for (; m.row0 < rows; m.row0 += m.rows) {
        m.rows = (int)(rows - m.row0 < together ? rows - m.row0 : together);
        if (attend_rows(a, s, c->workspace + list_bytes, m) < 0)
            return -1;
    }
    return 0;
}
