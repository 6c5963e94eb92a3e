/* experts.cu - y[t] = sum_j weight[t,j] w2_e SiTU(w1_e z[t], w3_e z[t]), e = id[t,j]
 *
 * On tensor cores, with sums as matrix.h says; the sum over I is one segment, the choices of a row are added in order.
 * Inner activations are rounded to BF16, once, and lie in the workspace as the second product reads them.
 *
 * Few rows: inner_part: a block finds the rows that chose the expert of its pair (row, choice), if no pair before it
 * chose the same, keeps their z in shared memory as BF16, and reads w1 and w3 of the expert once for up to HELD of
 * them. outer_part: a block has 16 columns of one row of y; a warp multiplies w2 of one choice after the other.  Ids
 * and weights are asked for before the inner kernel ends: it starts its successor only after its own predecessors, the
 * router among them, are done.
 *
 * Many rows: the pairs are sorted by expert and cut into tiles of one expert; tiles_part makes the inner activations of
 * a tile, then w2's products for a slab of columns, F32, which add_choices adds up.
 *
 * A rank may hold only some of the experts: pairs of the others are passed over, and what lies in the workspace for
 * them is never looked at.  Matrices are counted from the first that is held. */
#include <type_traits>

#include "kernels/cuda/matrix.h"
#include "kernels/cuda/rows.h"
#include "kernels/cuda/situ.h"

enum {
    WARPS = 8,
    THREADS = WARPS * 32,
    HELD = 4,
    SHARED_PAIRS = 512,
    PITCH_PAD = 32,
    DEPTH = 4,
    TILE = 64,
    STAGES = 4,
    MOST_EXPERTS = 8192
};

/* A bit for each WARPS-th choice of a row. */
const uint32_t EVERY_WARPTH = 0xffffffffu / ((1u << WARPS) - 1);

/* Blocks an SM that the kernels for few rows are compiled for: code for sm_12x takes more registers. */
#if defined __CUDA_ARCH__ && __CUDA_ARCH__ >= 1200
enum { BLOCKS = 2 };
#else
enum { BLOCKS = 3 };
#endif

struct expert_matrix {
    const uint8_t *data, *scale;
    int64_t stride, data_step, scale_step;
};

template <class F> __device__ static struct cuda_weights row_of(const struct expert_matrix &m, int64_t e, int64_t row)
{
    return F::row(m.data + e * m.data_step, m.scale + e * m.scale_step, m.stride, row);
}

struct choices {
    const int32_t *id;
    int32_t pairs, topk, first, held;
};

__device__ static bool is_held(const struct choices &c, int id)
{
    return (uint32_t)(id - c.first) < (uint32_t)c.held;
}

/* Inner activation i of pair p: a pair's lie in units, those of the four lanes of a weight row side by side, as the
 * second product reads them. */
template <class F> __device__ static int64_t h_place(int64_t p, int i, int inner)
{
    int k = i % F::CHUNK, unit = k % (F::CHUNK / 4) / 8, lane = k / (F::CHUNK / 4);

    return ((p * ((inner + F::CHUNK - 1) / F::CHUNK) + i / F::CHUNK) * F::UNITS + unit) * 32 + lane * 8 +
           F::place(i % 8);
}

struct gate_and_up {
    struct expert_matrix w1, w3;
    int32_t in, inner, octets; /* of inner rows a block */
    float beta, linear_beta;
};

/* The pairs of pair p's expert, into `member`: none where an earlier pair has it.  All pairs are looked at while they
 * are few; more stay alone. */
__device__ static int find_members(const struct choices &c, int p, int id, int16_t *member, int *count)
{
    __shared__ int earlier;

    if (c.pairs > SHARED_PAIRS || c.pairs == c.topk) /* one row chooses an expert once */
        return 1;
    if (threadIdx.x == 0)
        *count = earlier = 0;
    __syncthreads();
    for (int q = (int)threadIdx.x; q < c.pairs; q += THREADS)
        if (c.id[q] == id) {
            if (q < p)
                earlier = 1;
            else
                member[atomicAdd(count, 1)] = (int16_t)q;
        }
    __syncthreads();
    return earlier ? 0 : *count;
}

/* c += a chunk of 16 weight rows times that of 8 rows of x; unit u of x is x[u * 4], zeros where there is no row.  A
 * warp whose scales are all plain spares itself the care for others at every unit. */
template <class F>
__device__ static void add_chunk(float (&c)[4], const uint4 (&w)[2], const uint32_t (&scale)[2], const uint4 *x,
                                 bool inside)
{
    auto add = [&](auto plain) {
#pragma unroll
        for (int u = 0; u < F::UNITS; u++) {
            uint4 v = make_uint4(0, 0, 0, 0);
            if (inside)
                v = x[u * 4];
            cuda_mma_few(c, F::template unit<plain.value>(w[0], scale[0], u),
                         F::template unit<plain.value>(w[1], scale[1], u), v);
        }
    };
    if (__any_sync(0xffffffffu, !F::is_plain(scale[0]) || !F::is_plain(scale[1])))
        add(std::false_type());
    else
        add(std::true_type());
}

template <class F, bool FAST>
static __global__ void __launch_bounds__(THREADS, BLOCKS)
    inner_part(const __grid_constant__ struct gate_and_up g, struct choices c, struct cuda_rows z, __nv_bfloat16 *h,
               int held)
{
    /* Pieces on the way [WARPS, DEPTH, 2, 32], z [held, pitch], sums [segments, octets, 2, held, 8]. */
    CUDA_SHARED(uint4, room);
    __shared__ int16_t member[SHARED_PAIRS];
    __shared__ int count;
    int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, p = (int)blockIdx.x;
    int chunks = (g.in + F::CHUNK - 1) / F::CHUNK, pitch = chunks * F::CHUNK / 8 + PITCH_PAD / 8;
    int segments = cuda_segments(chunks, WARPS), segment = warp % segments, streams = WARPS / segments;
    int c0 = chunks * segment / segments, c1 = chunks * (segment + 1) / segments, n = c1 - c0;
    int begin = (int)blockIdx.y * g.octets, octets = min(g.octets, g.inner / 8 - begin);
    uint4 *ring = room + warp * DEPTH * 64 + lane, *rows = room + WARPS * DEPTH * 64;
    float *sums = (float *)(rows + held * pitch);

    cuda_wait();
    cuda_next();
    int id = c.id[p], e = id - c.first, members = is_held(c, id) ? find_members(c, p, id, member, &count) : 0;
    for (int m0 = 0; m0 < members; m0 += held) {
        int octet = warp / segments, here = min(held, members - m0);
        int turns = octet < octets ? (octets - octet + streams - 1) / streams * n : 0, left = n;
        uint32_t scale[DEPTH][2];
        float sum[4] = {}; /* an octet of w1, the same of w3 */
        int next_octet = octet, next_c = c0;
        struct cuda_weights at1, at3;

        auto find = [&] {
            int64_t row = (begin + next_octet) * 8 + lane / 4;
            at1 = row_of<F>(g.w1, e, row);
            at3 = row_of<F>(g.w3, e, row);
        };
        auto next = [&](uint4 *to, uint32_t(&factor)[2]) {
            int k = next_c * F::CHUNK + lane % 4 * (F::CHUNK / 4);
            F::template copy<FAST>(to, at1, k, g.in);
            F::template copy<FAST>(to + 32, at3, k, g.in);
            factor[0] = F::scale(at1, k, g.in);
            factor[1] = F::scale(at3, k, g.in);
            if (++next_c == c1) {
                next_c = c0;
                next_octet += streams;
                if (next_octet < octets)
                    find();
            }
        };
        if (turns > 0)
            find();
#pragma unroll
        for (int i = 0; i < DEPTH; i++) {
            if (i < turns)
                next(ring + i * 64, scale[i]);
            cuda_copies_end();
        }

        __syncthreads(); /* sums and z of the turn before are done with */
        for (int i = (int)threadIdx.x; i < here * chunks * F::CHUNK / 8; i += THREADS) {
            int m = i / (chunks * F::CHUNK / 8), u = i % (chunks * F::CHUNK / 8);
            const float *x = z[(members == 1 ? p : member[m0 + m]) / c.topk];
            /* Unit u of a lane goes beside the same unit of the other lanes of its row. */
            int of_lane = F::CHUNK / 32, place = u / (4 * of_lane) * 4 * of_lane + u % of_lane * 4 + u / of_lane % 4;
            rows[m * pitch + place] = F::pack(cuda_load4(x, u * 8, g.in), cuda_load4(x, u * 8 + 4, g.in));
        }
        __syncthreads();

        const uint4 *x = rows + lane / 4 * pitch + lane % 4;
        int at = c0;
        for (int turn = 0; turn < turns; turn += DEPTH) {
#pragma unroll
            for (int i = 0; i < DEPTH; i++) {
                if (turn + i >= turns)
                    break;
                cuda_copies_wait<DEPTH - 1>();
                uint4 w[2] = {ring[i * 64], ring[i * 64 + 32]};
                add_chunk<F>(sum, w, scale[i], x + at * F::UNITS * 4, lane / 4 < here);
                at++;
                if (turn + i + DEPTH < turns)
                    next(ring + i * 64, scale[i]);
                cuda_copies_end();
                if (--left == 0) {
                    for (int j = 0; j < 4; j++) {
                        int o = j / 2, m = lane % 4 * 2 + j % 2;
                        if (m < here)
                            sums[(((segment * g.octets + octet) * 2 + o) * held + m) * 8 + lane / 4] = sum[j];
                        sum[j] = 0;
                    }
                    octet += streams;
                    at = c0;
                    left = n;
                }
            }
        }
        __syncthreads();
        for (int i = (int)threadIdx.x; i < octets * here * 8; i += THREADS) {
            int o = i / (here * 8), m = i / 8 % here;
            float gate = 0, up = 0;
            for (int s = 0; s < segments; s++) {
                const float *from = sums + ((s * g.octets + o) * 2 * held + m) * 8 + i % 8;
                gate += from[0];
                up += from[held * 8];
            }
            int64_t q = members == 1 ? p : member[m0 + m];
            h[h_place<F>(q, (begin + o) * 8 + i % 8, g.inner)] =
                __float2bfloat16(cuda_situ_of(gate, up, g.beta, g.linear_beta));
        }
    }
}

/* y[t, 16 b ... 16 b + 15] of block (b, t). */
template <class F, bool FAST>
static __global__ void __launch_bounds__(THREADS, BLOCKS)
    outer_part(const __grid_constant__ struct expert_matrix w2, struct choices c, const float *weight, const uint4 *h,
               int inner, struct cuda_rows y, int hold)
{
    CUDA_SHARED(uint4, room); /* pieces on the way [WARPS, DEPTH, 2, 32], then the row's inner activations */
    __shared__ float sums[K3_MAX_TOPK][16];
    __shared__ float share[K3_MAX_TOPK];
    int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, t = (int)blockIdx.y;
    int chunks = (inner + F::CHUNK - 1) / F::CHUNK, units = chunks * F::UNITS * 4;
    uint4 *ring = room + warp * DEPTH * 64 + lane, *row = room + WARPS * DEPTH * 64;
    uint32_t scale[DEPTH][2];
    struct cuda_weights at[2];
    const int32_t *id = c.id + t * c.topk;
    /* Choices whose experts are held, a bit each; a warp has every eighth, and takes the lowest next. */
    uint32_t here = __ballot_sync(0xffffffffu, lane < c.topk && is_held(c, id[lane]));
    uint32_t mine = here & EVERY_WARPTH << warp, to_read = mine, to_add = mine;
    int turns = __popc(mine) * chunks, next_c = 0;
    const uint4 *x_row = h + (int64_t)t * c.topk * units;

    auto find = [&] {
        int64_t out = (int64_t)blockIdx.x * 16 + lane / 4, e = id[__ffs(to_read) - 1] - c.first;
        at[0] = row_of<F>(w2, e, out);
        at[1] = row_of<F>(w2, e, out + 8);
    };
    auto next = [&](uint4 *to, uint32_t(&factor)[2]) {
        int k = next_c * F::CHUNK + lane % 4 * (F::CHUNK / 4);
        for (int o = 0; o < 2; o++) {
            F::template copy<FAST>(to + 32 * o, at[o], k, inner);
            factor[o] = F::scale(at[o], k, inner);
        }
        if (++next_c == chunks) {
            next_c = 0;
            to_read &= to_read - 1;
            if (to_read)
                find();
        }
    };
    if (turns > 0)
        find();
#pragma unroll
    for (int i = 0; i < DEPTH; i++) {
        if (i < turns)
            next(ring + i * 64, scale[i]);
        cuda_copies_end();
    }
    cuda_next();
    cuda_wait();
    if (threadIdx.x < c.topk)
        share[threadIdx.x] = weight[t * c.topk + threadIdx.x];
    if (hold) {
        for (int i = (int)threadIdx.x; i < c.topk * units; i += THREADS)
            row[i] = x_row[i];
        x_row = row;
    }
    __syncthreads();

    float sum[4] = {};
    int at_c = 0;
    for (int turn = 0; turn < turns; turn += DEPTH) {
#pragma unroll
        for (int i = 0; i < DEPTH; i++) {
            if (turn + i >= turns)
                break;
            int j = __ffs(to_add) - 1;
            const uint4 *x = x_row + j * units + at_c * F::UNITS * 4 + lane;
            bool inside = lane < 4 && at_c * F::CHUNK + lane * (F::CHUNK / 4) < inner;
            cuda_copies_wait<DEPTH - 1>();
            uint4 w[2] = {ring[i * 64], ring[i * 64 + 32]};
            add_chunk<F>(sum, w, scale[i], x, inside);
            if (turn + i + DEPTH < turns)
                next(ring + i * 64, scale[i]);
            cuda_copies_end();
            if (++at_c == chunks) {
                if (lane % 4 == 0) {
                    sums[j][lane / 4] = sum[0];
                    sums[j][8 + lane / 4] = sum[2];
                }
                sum[0] = sum[1] = sum[2] = sum[3] = 0;
                at_c = 0;
                to_add &= to_add - 1;
            }
        }
    }
    __syncthreads();
    if (threadIdx.x < 16) {
        float total = 0;
        for (int i = 0; i < c.topk; i++)
            if (here >> i & 1)
                total = fmaf(share[i], chunks > 0 ? sums[i][threadIdx.x] : 0, total);
        y[t][blockIdx.x * 16 + threadIdx.x] = total;
    }
}

/* --- many rows ---------------------------------------------------------------------------------------------------- */

/* Rows [first, first + count) of the sorted pairs, all of one expert. */
struct tile {
    int32_t expert, first, count;
};

struct plan {
    int32_t *tiles;    /* their number */
    struct tile *tile; /* [held + pairs / TILE] */
    int32_t *pair;     /* [pairs], those of experts that are held, sorted by expert */
};

/* One block: how often each expert is chosen, where its pairs begin, the pairs.  The order of an expert's pairs is any.
 */
static __global__ void __launch_bounds__(1024) sort_pairs(struct choices c, struct plan p)
{
    CUDA_SHARED(int, at); /* [held]: count, then place of the next pair */
    __shared__ int room[32][2];
    int me = (int)threadIdx.x, lane = me % 32, each = (c.held + 1023) / 1024, pairs = 0, tiles = 0;

    cuda_next();
    cuda_wait();
    for (int e = me; e < c.held; e += 1024)
        at[e] = 0;
    __syncthreads();
    for (int q = me; q < c.pairs; q += 1024)
        if (is_held(c, c.id[q]))
            atomicAdd(&at[c.id[q] - c.first], 1);
    __syncthreads();
    for (int e = me * each; e < min((me + 1) * each, c.held); e++) {
        pairs += at[e];
        tiles += (at[e] + TILE - 1) / TILE;
    }
    int pairs_before = pairs, tiles_before = tiles;
    for (int d = 1; d < 32; d *= 2) {
        int a = __shfl_up_sync(0xffffffffu, pairs_before, d), b = __shfl_up_sync(0xffffffffu, tiles_before, d);
        pairs_before += lane >= d ? a : 0;
        tiles_before += lane >= d ? b : 0;
    }
    if (lane == 31)
        room[me / 32][0] = pairs_before, room[me / 32][1] = tiles_before;
    __syncthreads();
    pairs_before -= pairs;
    tiles_before -= tiles;
    for (int i = 0; i < me / 32; i++) {
        pairs_before += room[i][0];
        tiles_before += room[i][1];
    }
    for (int e = me * each; e < min((me + 1) * each, c.held); e++) {
        int n = at[e];
        at[e] = pairs_before;
        for (int i = 0; i < n; i += TILE)
            p.tile[tiles_before++] = (struct tile){e, pairs_before + i, min(n - i, TILE)};
        pairs_before += n;
    }
    if (me == 1023)
        *p.tiles = tiles_before;
    __syncthreads();
    for (int q = me; q < c.pairs; q += 1024)
        if (is_held(c, c.id[q]))
            p.pair[atomicAdd(&at[c.id[q] - c.first], 1)] = q;
}

/* z as BF16 units, in the order that the first product reads them. */
template <class F> static __global__ void round_z(struct cuda_rows z, int in, int chunks, uint4 *to)
{
    int n = chunks * F::UNITS * 4;

    cuda_next();
    cuda_wait();
    to += (int64_t)blockIdx.x * n;
    for (int u = (int)threadIdx.x; u < n; u += THREADS) {
        int place = u / (4 * F::UNITS) * 4 * F::UNITS + u % F::UNITS * 4 + u / F::UNITS % 4;
        const float *x = z[blockIdx.x];
        to[place] = F::pack(cuda_load4(x, u * 8, in), cuda_load4(x, u * 8 + 4, in));
    }
}

/* A product of tiles of pairs and two octets of weight rows a warp: an octet of w1 and the same of w3, or 16 rows of
 * w2. */
struct tiled {
    struct expert_matrix first, second;
    int32_t in, out, topk; /* out: of `first` */
    int32_t x_divisor;     /* x of pair q is row q / x_divisor */
    const uint4 *x;
    int32_t column; /* of w2 */
    float *u;       /* [pairs, out of this turn] */
    int32_t u_cols;
    __nv_bfloat16 *h;
    float beta, linear_beta;
};

template <class F> struct tile_stage {
    uint4 x[F::UNITS][TILE][4], w[WARPS][2][32];
};

template <class F, bool INNER, bool FAST>
static __global__ void __launch_bounds__(THREADS, 1) tiles_part(const __grid_constant__ struct tiled a, struct plan p)
{
    CUDA_SHARED(uint4, room);
    auto *stage = (struct tile_stage<F> *)room;
    int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, part = (int)threadIdx.x % 4;
    int chunks = (a.in + F::CHUNK - 1) / F::CHUNK, segments = INNER ? cuda_segments(chunks, WARPS) : 1, segment = 0;
    int o = INNER ? ((int)blockIdx.y * WARPS + warp) * 8 : a.column + ((int)blockIdx.y * WARPS + warp) * 16;
    bool mine = o < a.out;

    cuda_next();
    cuda_wait();
    if ((int)blockIdx.x >= *p.tiles)
        return;
    struct tile t = p.tile[blockIdx.x];
    int blocks = (t.count + 15) / 16;
    struct cuda_weights at[2] = {};
    if (mine) {
        at[0] = row_of<F>(a.first, t.expert, o + lane / 4);
        at[1] = row_of<F>(a.second, t.expert, o + lane / 4 + (INNER ? 0 : 8));
    }
    const uint4 *x =
        a.x +
        (int64_t)(p.pair[t.first + min((int)threadIdx.x / 4, t.count - 1)] / a.x_divisor) * chunks * F::UNITS * 4 +
        part;
    auto copy = [&](int c) {
        if (c < chunks) {
            struct tile_stage<F> &to = stage[c % STAGES];
            int k = c * F::CHUNK + part * (F::CHUNK / 4);
            if ((int)threadIdx.x / 4 < blocks * 16)
                for (int u = 0; u < F::UNITS; u++)
                    cuda_copy16(&to.x[u][threadIdx.x / 4][part], x + (c * F::UNITS + u) * 4, k < a.in);
            for (int i = 0; i < 2 && mine; i++)
                F::template copy<FAST>(&to.w[warp][i][lane], at[i], k, a.in);
        }
        cuda_copies_end();
    };
    float sum[4][2][4] = {}, total[4][2][4] = {};
    uint32_t scale[2], scale_then[2] = {};
    for (int i = 0; i < STAGES - 1; i++)
        copy(i);
    for (int i = 0; i < 2 && mine; i++)
        scale_then[i] = F::scale(at[i], part * (F::CHUNK / 4), a.in);
    for (int c = 0; c < chunks; c++) {
        const struct tile_stage<F> &from = stage[c % STAGES];

        cuda_copies_wait<STAGES - 2>();
        __syncthreads();
        copy(c + STAGES - 1);
        for (int i = 0; i < 2; i++) {
            scale[i] = scale_then[i];
            if (mine)
                scale_then[i] = F::scale(at[i], (c + 1) * F::CHUNK + part * (F::CHUNK / 4), a.in);
        }
        uint4 w[2] = {from.w[warp][0][lane], from.w[warp][1][lane]};
#pragma unroll
        for (int u = 0; u < F::UNITS; u++) {
            uint4 v[2] = {F::unit(w[0], scale[0], u), F::unit(w[1], scale[1], u)};
#pragma unroll
            for (int m = 0; m < TILE / 16; m++)
                if (m < blocks) {
                    uint4 lo = from.x[u][m * 16 + lane / 4][part], hi = from.x[u][m * 16 + 8 + lane / 4][part];
                    cuda_mma_unit(sum[m][0], lo, hi, v[0]);
                    cuda_mma_unit(sum[m][1], lo, hi, v[1]);
                }
        }
        if (c + 1 == chunks * (segment + 1) / segments) {
            segment++;
#pragma unroll
            for (int i = 0; i < TILE / 2; i++) {
                total[i / 8][i / 4 % 2][i % 4] += sum[i / 8][i / 4 % 2][i % 4];
                sum[i / 8][i / 4 % 2][i % 4] = 0;
            }
        }
    }
#pragma unroll
    for (int i = 0; i < TILE / 4; i++) {
        int row = i / 4 * 16 + i % 4 / 2 * 8 + lane / 4, col = o + lane % 4 * 2 + i % 2;
        if (row >= t.count || !mine)
            continue;
        int64_t q = p.pair[t.first + row];
        float one = total[i / 4][0][i % 4], two = total[i / 4][1][i % 4];
        if (INNER) {
            a.h[h_place<F>(q, col, a.out)] = __float2bfloat16(cuda_situ_of(one, two, a.beta, a.linear_beta));
        } else {
            float *to = a.u + q * a.u_cols + col - a.column;
            to[0] = one;
            to[8] = two;
        }
    }
}

/* y[t, column + l] = sum_j weight[t,j] u[t,j,l] */
static __global__ void add_choices(const float *u, int cols, const float *weight, struct choices c, struct cuda_rows y,
                                   int column)
{
    int t = (int)blockIdx.x, l = (int)(blockIdx.y * THREADS + threadIdx.x);
    float total = 0;

    cuda_next();
    cuda_wait();
    if (l >= cols)
        return;
    for (int j = t * c.topk; j < (t + 1) * c.topk; j++)
        if (is_held(c, c.id[j]))
            total = fmaf(weight[j], u[(int64_t)j * cols + l], total);
    y[t][column + l] = total;
}

/* --- launches ------------------------------------------------------------------------------------------------------
 */

static struct expert_matrix matrix_of(const struct kern_expert_matrix *m)
{
    return (struct expert_matrix){(const uint8_t *)m->first.data, (const uint8_t *)m->first.scale, m->first.stride,
                                  m->data_step, m->scale_step};
}

/* Whether rows can be read 16 bytes at a time. */
static bool is_fast(const struct kern_expert_matrix *m)
{
    int64_t pitch = m->first.dtype == K3_BF16 ? m->first.stride * 2 : m->first.stride / 2;

    return ((uintptr_t)m->first.data | (uintptr_t)pitch | (uintptr_t)m->data_step) % 16 == 0;
}

template <class F, bool FAST>
static int run_few(const struct experts_args *a, struct k3_stream *s, int64_t t0, int32_t rows)
{
    int32_t inner = (int32_t)a->w1->first.rows, width = (int32_t)a->z->cols;
    int chunks = (width + F::CHUNK - 1) / F::CHUNK, segments = cuda_segments(chunks, WARPS), streams = WARPS / segments;
    struct choices c = {a->id + t0 * a->topk, rows * a->topk, a->topk, a->first, a->held};
    struct gate_and_up g = {matrix_of(a->w1), matrix_of(a->w3), width, inner, 0, a->beta, a->linear_beta};
    int held = rows == 1 || c.pairs > SHARED_PAIRS ? 1 : HELD;
    size_t ring = WARPS * DEPTH * 1024, x = (size_t)(chunks * F::CHUNK / 8 + PITCH_PAD / 8) * 16, most = 96 << 10;
    size_t h_bytes = (size_t)a->topk * ((inner + F::CHUNK - 1) / F::CHUNK) * F::CHUNK * 2;
    bool hold = ring + h_bytes <= most;
    void *h = cuda_of(s)->workspace;
    struct cuda_rows z = cuda_rows_of(a->z), y = cuda_rows_of(a->y);

    z.data += t0 * z.stride;
    y.data += t0 * y.stride;
    g.octets = c.pairs <= 32 ? streams : 3 * streams;
    while (inner / 8 > 65535 * g.octets)
        g.octets *= 2;
    size_t sums = (size_t)segments * g.octets * 2 * held * 32;
    if (ring + held * x + sums > most)
        held = 1;
    dim3 inner_grid((unsigned)c.pairs, (unsigned)((inner / 8 + g.octets - 1) / g.octets));
    if (cuda_launch(s, "experts", inner_part<F, FAST>, inner_grid, THREADS, ring + held * x + sums, g, c, z, h, held) <
        0)
        return -1;
    return cuda_launch(s, "experts", outer_part<F, FAST>, dim3((unsigned)width / 16, (unsigned)rows), THREADS,
                       ring + (hold ? h_bytes : 0), matrix_of(a->w2), c, a->weight + t0 * a->topk, h, inner, y, hold);
}

/* What lies in the workspace for so many rows; u, which takes the rest, holds `columns` of each pair. */
struct many_room {
    uint4 *z;
    __nv_bfloat16 *h;
    struct plan plan;
    float *u;
    int tiles, columns;
};

template <class F>
static int lay_out(const struct experts_args *a, const struct k3_stream *s, int rows, struct many_room *r)
{
    const struct cuda_stream *c = (const struct cuda_stream *)s;
    size_t pairs = (size_t)rows * a->topk, at = 0;
    auto take = [&](size_t bytes) {
        char *p = c->workspace + at;
        at += (bytes + 255) / 256 * 256;
        return p;
    };
    int z_chunks = (int)(a->z->cols + F::CHUNK - 1) / F::CHUNK,
        h_chunks = (int)(a->w1->first.rows + F::CHUNK - 1) / F::CHUNK;

    r->tiles = a->held + (int)(pairs / TILE);
    r->z = (uint4 *)take((size_t)rows * z_chunks * F::CHUNK * 2);
    r->h = (__nv_bfloat16 *)take(pairs * h_chunks * F::CHUNK * 2);
    r->plan.tiles = (int32_t *)take(4);
    r->plan.tile = (struct tile *)take((size_t)r->tiles * sizeof(struct tile));
    r->plan.pair = (int32_t *)take(pairs * 4);
    r->u = (float *)take(0);
    r->columns = at < c->workspace_bytes ? (int)((c->workspace_bytes - at) / (pairs * 4 * 16) * 16) : 0;
    return r->columns >= 512 || r->columns >= a->z->cols;
}

template <class F, bool FAST>
static int run_many(const struct experts_args *a, struct k3_stream *s, int64_t t0, int32_t rows,
                    const struct many_room *r)
{
    int32_t inner = (int32_t)a->w1->first.rows, width = (int32_t)a->z->cols,
            columns = width < r->columns ? width : r->columns;
    struct choices c = {a->id + t0 * a->topk, rows * a->topk, a->topk, a->first, a->held};
    struct cuda_rows z = cuda_rows_of(a->z), y = cuda_rows_of(a->y);
    size_t room = sizeof(struct tile_stage<F>) * STAGES;
    struct tiled first = {matrix_of(a->w1), matrix_of(a->w3), width, inner, a->topk, a->topk, r->z, 0, NULL, 0, r->h,
                          a->beta,          a->linear_beta};
    struct tiled second = {
        matrix_of(a->w2), matrix_of(a->w2), inner, width, a->topk, 1, (const uint4 *)r->h, 0, r->u, 0, NULL, 0, 0};

    z.data += t0 * z.stride;
    y.data += t0 * y.stride;
    if (cuda_launch(s, "experts", sort_pairs, 1, 1024, (size_t)a->held * 4, c, r->plan) < 0 ||
        cuda_launch(s, "experts", round_z<F>, rows, THREADS, 0, z, width, (width + F::CHUNK - 1) / F::CHUNK, r->z) <
            0 ||
        cuda_launch(s, "experts", tiles_part<F, true, FAST>, dim3(r->tiles, (inner / 8 + WARPS - 1) / WARPS), THREADS,
                    room, first, r->plan) < 0)
        return -1;
    for (int l = 0; l < width; l += columns) {
        second.column = l;
        second.u_cols = width - l < columns ? width - l : columns;
        second.out = l + second.u_cols;
        if (cuda_launch(s, "experts", tiles_part<F, false, FAST>,
                        dim3(r->tiles, (second.u_cols / 16 + WARPS - 1) / WARPS), THREADS, room, second, r->plan) < 0 ||
            cuda_launch(s, "experts", add_choices, dim3(rows, (second.u_cols + THREADS - 1) / THREADS), THREADS, 0,
                        r->u, second.u_cols, a->weight + t0 * a->topk, c, y, l) < 0)
            return -1;
    }
    return 0;
}

template <class F, bool FAST> static int run(const struct experts_args *a, struct k3_stream *s)
{
    int64_t h_chunks = (a->w1->first.rows + F::CHUNK - 1) / F::CHUNK, rows = a->z->rows;
    int64_t most = (int64_t)cuda_of(s)->workspace_bytes / (a->topk * h_chunks * F::CHUNK * 2 + 1);
    struct many_room r;

    most = most < 16384 ? most : 16384;
    if (most == 0 || (size_t)(a->z->cols + F::CHUNK) * 2 > 48 << 10) {
        errno = EINVAL;
        return -1;
    }
    for (int64_t t = 0, n; t < rows; t += n) {
        int rc;
        n = rows - t < most ? rows - t : most;
        if (n * a->topk > SHARED_PAIRS && a->held <= MOST_EXPERTS && h_chunks > 0) {
            while (n > 1 && !lay_out<F>(a, s, (int)n, &r))
                n = (n + 1) / 2;
            rc = lay_out<F>(a, s, (int)n, &r) ? run_many<F, FAST>(a, s, t, (int32_t)n, &r)
                                              : run_few<F, FAST>(a, s, t, (int32_t)n);
        } else {
            rc = run_few<F, FAST>(a, s, t, (int32_t)n);
        }
        if (rc < 0)
            return -1;
    }
    return 0;
}

extern "C" int cuda_experts(const struct experts_args *a, struct k3_stream *s)
{
    bool fast = is_fast(a->w1) && is_fast(a->w3) && is_fast(a->w2);

    if (a->w1->first.dtype == K3_BF16)
        return fast ? run<cuda_bf16, true>(a, s) : run<cuda_bf16, false>(a, s);
    return fast ? run<cuda_mxfp4, true>(a, s) : run<cuda_mxfp4, false>(a, s);
}
