/* experts.cu - y[t] = sum_j weight[t,j] w2_e SiTU(w1_e z[t], w3_e z[t]), e = id[t,j]
 *
 * Two kernels, both on tensor cores with sums as matrix.h says.
 *
 * inner: a block finds the rows that chose the expert of its pair (row, choice), if no pair before it chose the same,
 * keeps their z in shared memory as BF16, reads w1 and w3 of the expert once for up to HELD of them, and leaves their
 * inner activations, F32 [T * topk, I], in the workspace.
 *
 * outer: a block has 8 columns of one row of y; a warp multiplies w2 of one choice after the other, and the choices are
 * added in order.  Ids and weights are asked for before the inner kernel ends: it starts its successor only after its
 * own predecessors, the router among them, are done. */
#include "kernels/cuda/matrix.h"
#include "kernels/cuda/rows.h"
#include "kernels/cuda/situ.h"

enum { WARPS = 8, THREADS = WARPS * 32, HELD = 4, SHARED_PAIRS = 512, PITCH_PAD = 32 };

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
    int32_t pairs, topk;
};

struct gate_and_up {
    struct expert_matrix w1, w3;
    int32_t in, inner, octets; /* of inner rows a block */
    float beta, linear_beta;
};

/* The pairs of pair p's expert, into `member`: none where an earlier pair has it.  All pairs are looked at while they
 * are few; more stay alone. */
__device__ static int find_members(const struct choices &c, int p, int e, int16_t *member, int *count)
{
    __shared__ int earlier;

    if (c.pairs > SHARED_PAIRS)
        return 1;
    if (threadIdx.x == 0)
        *count = earlier = 0;
    __syncthreads();
    for (int q = (int)threadIdx.x; q < c.pairs; q += THREADS)
        if (c.id[q] == e) {
            if (q < p)
                earlier = 1;
            else
                member[atomicAdd(count, 1)] = (int16_t)q;
        }
    __syncthreads();
    return earlier ? 0 : *count;
}

template <class F, bool FAST>
static __global__ void __launch_bounds__(THREADS, 2)
    inner_part(const __grid_constant__ struct gate_and_up g, struct choices c, struct cuda_rows z, float *h, int held)
{
    constexpr int DEPTH = F::UNITS > 1 ? 4 : 8;
    extern __shared__ uint4 room[]; /* z [held, pitch], then sums [segments, octets, 2, held, 8] */
    __shared__ int16_t member[SHARED_PAIRS];
    __shared__ int count;
    int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, p = (int)blockIdx.x;
    int chunks = (g.in + F::CHUNK - 1) / F::CHUNK, pitch = chunks * F::CHUNK / 8 + PITCH_PAD / 8;
    int segments = cuda_segments(chunks), segment = warp % segments, streams = WARPS / segments;
    int c0 = chunks * segment / segments, c1 = chunks * (segment + 1) / segments, n = c1 - c0;
    int begin = (int)blockIdx.y * g.octets, octets = min(g.octets, g.inner / 8 - begin);
    float *sums = (float *)(room + held * pitch);

    cuda_wait();
    cuda_next();
    int e = c.id[p], members = find_members(c, p, e, member, &count);
    for (int m0 = 0; m0 < members; m0 += held) {
        int octet = warp / segments, here = min(held, members - m0);
        int turns = octet < octets ? (octets - octet + streams - 1) / streams * n : 0, left = n;
        typename F::piece w[DEPTH][2];
        float sum[2][4] = {};
        int next_octet = octet, next_c = c0;
        struct cuda_weights at1, at3;

        auto find = [&] {
            int64_t row = (begin + next_octet) * 8 + lane / 4;
            at1 = row_of<F>(g.w1, e, row);
            at3 = row_of<F>(g.w3, e, row);
        };
        auto next = [&](typename F::piece(&to)[2]) {
            int k = next_c * F::CHUNK + lane % 4 * (F::CHUNK / 4);
            to[0] = F::template load<FAST>(at1, k, g.in);
            to[1] = F::template load<FAST>(at3, k, g.in);
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
        for (int i = 0; i < DEPTH; i++)
            if (i < turns)
                next(w[i]);

        __syncthreads(); /* sums and z of the turn before are done with */
        for (int i = (int)threadIdx.x; i < here * chunks * F::CHUNK / 8; i += THREADS) {
            int m = i / (chunks * F::CHUNK / 8), u = i % (chunks * F::CHUNK / 8);
            const float *x = z[(members == 1 ? p : member[m0 + m]) / c.topk];
            /* Unit u of a lane goes beside the same unit of the other lanes of its row. */
            int of_lane = F::CHUNK / 32, place = u / (4 * of_lane) * 4 * of_lane + u % of_lane * 4 + u / of_lane % 4;
            room[m * pitch + place] = F::pack(cuda_load4(x, u * 8, g.in), cuda_load4(x, u * 8 + 4, g.in));
        }
        __syncthreads();

        const uint4 *x = room + lane / 4 * pitch + lane % 4;
        int at = c0;
        for (int turn = 0; turn < turns; turn += DEPTH) {
#pragma unroll
            for (int i = 0; i < DEPTH; i++) {
                if (turn + i >= turns)
                    break;
#pragma unroll
                for (int u = 0; u < F::UNITS; u++) {
                    uint4 none = make_uint4(0, 0, 0, 0), v = none;
                    if (lane / 4 < here)
                        v = x[(at * F::UNITS + u) * 4];
                    cuda_mma_unit(sum[0], v, none, F::unit(w[i][0], u));
                    cuda_mma_unit(sum[1], v, none, F::unit(w[i][1], u));
                }
                at++;
                if (turn + i + DEPTH < turns)
                    next(w[i]);
                if (--left == 0) {
                    if (lane / 4 < here)
                        for (int o = 0; o < 2; o++)
                            *(float2 *)(sums + (((segment * g.octets + octet) * 2 + o) * held + lane / 4) * 8 +
                                        lane % 4 * 2) = make_float2(sum[o][0], sum[o][1]);
                    for (int o = 0; o < 2; o++)
                        sum[o][0] = sum[o][1] = sum[o][2] = sum[o][3] = 0;
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
            h[q * g.inner + (begin + o) * 8 + i % 8] = cuda_situ_of(gate, up, g.beta, g.linear_beta);
        }
    }
}

template <class F, bool FAST>
static __global__ void __launch_bounds__(THREADS, 2)
    outer_part(const __grid_constant__ struct expert_matrix w2, struct choices c, const float *weight, const float *h,
               int inner, struct cuda_rows y)
{
    constexpr int DEPTH = F::UNITS > 1 ? 4 : 8;
    __shared__ float sums[K3_MAX_TOPK][8];
    int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, t = (int)blockIdx.y;
    int chunks = (inner + F::CHUNK - 1) / F::CHUNK;
    int turns = warp < c.topk ? (c.topk - warp + WARPS - 1) / WARPS * chunks : 0;
    typename F::piece w[DEPTH];
    int next_j = warp, next_c = 0;
    struct cuda_weights at = {};
    const int32_t *id = c.id + t * c.topk;

    auto find = [&] { at = row_of<F>(w2, id[next_j], (int64_t)blockIdx.x * 8 + lane / 4); };
    auto next = [&](typename F::piece &to) {
        to = F::template load<FAST>(at, next_c * F::CHUNK + lane % 4 * (F::CHUNK / 4), inner);
        if (++next_c == chunks) {
            next_c = 0;
            next_j += WARPS;
            if (next_j < c.topk)
                find();
        }
    };
    if (turns > 0)
        find();
#pragma unroll
    for (int i = 0; i < DEPTH; i++)
        if (i < turns)
            next(w[i]);
    cuda_next();
    cuda_wait();

    float sum[4] = {};
    int j = warp, at_c = 0;
    for (int turn = 0; turn < turns; turn += DEPTH) {
#pragma unroll
        for (int i = 0; i < DEPTH; i++) {
            if (turn + i >= turns)
                break;
            const float *x = h + (int64_t)(t * c.topk + j) * inner;
#pragma unroll
            for (int u = 0; u < F::UNITS; u++) {
                int k = at_c * F::CHUNK + lane % 4 * (F::CHUNK / 4) + 8 * u;
                uint4 none = make_uint4(0, 0, 0, 0), v = none;
                if (lane < 4 && k < inner)
                    v = F::pack(*(const float4 *)(x + k), *(const float4 *)(x + k + 4));
                cuda_mma_unit(sum, v, none, F::unit(w[i], u));
            }
            if (turn + i + DEPTH < turns)
                next(w[i]);
            if (++at_c == chunks) {
                if (lane < 4)
                    *(float2 *)&sums[j][lane * 2] = make_float2(sum[0], sum[1]);
                sum[0] = sum[1] = sum[2] = sum[3] = 0;
                at_c = 0;
                j += WARPS;
            }
        }
    }
    __syncthreads();
    if (threadIdx.x < 8) {
        float total = 0;
        for (int i = 0; i < c.topk; i++)
            total += weight[t * c.topk + i] * (chunks > 0 ? sums[i][threadIdx.x] : 0);
        y[t][blockIdx.x * 8 + threadIdx.x] = total;
    }
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
static int run_rows(const struct experts_args *a, struct k3_stream *s, int64_t t0, int32_t rows)
{
    int32_t inner = (int32_t)a->w1->first.rows, width = (int32_t)a->z->cols;
    int chunks = (width + F::CHUNK - 1) / F::CHUNK, segments = cuda_segments(chunks), streams = WARPS / segments;
    struct choices c = {a->id + t0 * a->topk, rows * a->topk, a->topk};
    struct gate_and_up g = {matrix_of(a->w1), matrix_of(a->w3), width, inner, 0, a->beta, a->linear_beta};
    int held = rows == 1 || c.pairs > SHARED_PAIRS ? 1 : HELD;
    float *h = (float *)cuda_of(s)->workspace;
    struct cuda_rows z = cuda_rows_of(a->z), y = cuda_rows_of(a->y);

    z.data += t0 * z.stride;
    y.data += t0 * y.stride;
    g.octets = c.pairs <= 32 ? streams : 3 * streams;
    while (inner / 8 > 65535 * g.octets)
        g.octets *= 2;
    size_t room =
        (size_t)held * (chunks * F::CHUNK / 8 + PITCH_PAD / 8) * 16 + (size_t)segments * g.octets * 2 * held * 32;
    dim3 inner_grid((unsigned)c.pairs, (unsigned)((inner / 8 + g.octets - 1) / g.octets));
    if (room > cuda_of(s)->shared_most) {
        errno = EINVAL;
        return -1;
    }
    if (cuda_launch(s, "experts", inner_part<F, FAST>, inner_grid, THREADS, room, g, c, z, h, held) < 0)
        return -1;
    return cuda_launch(s, "experts", outer_part<F, FAST>, dim3((unsigned)width / 8, (unsigned)rows), THREADS, 0,
                       matrix_of(a->w2), c, a->weight + t0 * a->topk, h, inner, y);
}

extern "C" int cuda_experts(const struct experts_args *a, struct k3_stream *s)
{
    int64_t bytes = a->topk * (a->w1->first.rows + 1) * (int64_t)sizeof(float), rows = a->z->rows;
    int64_t room = (int64_t)cuda_of(s)->workspace_bytes / bytes;
    bool fast = is_fast(a->w1) && is_fast(a->w3) && is_fast(a->w2), bf16 = a->w1->first.dtype == K3_BF16;

    room = room < 16384 ? room : 16384;
    if (room == 0) {
        errno = EINVAL;
        return -1;
    }
    for (int64_t t = 0, n; t < rows; t += n) {
        n = rows - t < room ? rows - t : room;
        int rc = bf16   ? fast ? run_rows<cuda_bf16, true>(a, s, t, (int32_t)n)
                               : run_rows<cuda_bf16, false>(a, s, t, (int32_t)n)
                   : fast ? run_rows<cuda_mxfp4, true>(a, s, t, (int32_t)n)
                        : run_rows<cuda_mxfp4, false>(a, s, t, (int32_t)n);
        if (rc < 0)
            return -1;
    }
    return 0;
}
