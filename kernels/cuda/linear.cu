/* linear.cu - y[t,o] = sum_i w[o,i] x[t,i] (+ y[t,o])
 *
 * few_rows, up to 16 rows a block: weights stream through registers.  The rows of all matrices that take the same x,
 * laid end to end, are shared out evenly among the blocks; a block's eight warps take its octets of weight rows and the
 * segments of the sum, with 64 KB on the way.  What a warp reads first is asked for before the kernel that made x ends.
 * x is read as F32 and rounded to BF16.
 *
 * exact: F32 weights, one warp an output column and 8 rows; lane l adds up columns l, l + 32, ... in fp32, the lanes'
 * sums are added in a tree. */
#include "kernels/cuda/matrix.h"
#include "kernels/cuda/rows.h"

enum { WARPS = 8, MOST_SPAN = 80, PASS = 16 };

/* Products of one x. */
struct part {
    const void *data, *scale;
    int64_t stride;
    struct cuda_rows y;
    int32_t first; /* of the weight rows laid end to end */
    int32_t accumulate;
};
struct products {
    struct cuda_rows x;
    int32_t rows, in, out, parts; /* out: of all parts */
    struct part part[K3_MAX_LINEARS];
};

__device__ static const struct part *part_of(const struct products &p, int row)
{
    int i = p.parts - 1;
    while (row < p.part[i].first)
        i--;
    return &p.part[i];
}

/* --- few rows ----------------------------------------------------------------------------------------------------- */

/* Where a warp reads weights: chunks [c0, c1) of OCTETS octets at a time, group after group. */
template <class F, int OCTETS, bool FAST> struct weight_reader {
    const struct products &p;
    int row, end, step, c0, c1, c;
    struct cuda_weights at[OCTETS];

    __device__ void find(void)
    {
        for (int o = 0; o < OCTETS; o++) {
            int r = row + 8 * o;
            at[o].data = NULL;
            if (r < end) {
                const struct part *q = part_of(p, r);
                at[o] = F::row(q->data, q->scale, q->stride, r - q->first);
            }
        }
    }

    __device__ void next(typename F::piece (&w)[OCTETS])
    {
        int k = c * F::CHUNK + threadIdx.x % 4 * (F::CHUNK / 4);
        for (int o = 0; o < OCTETS; o++)
            w[o] = F::template load<FAST>(at[o], k, at[o].data ? p.in : 0);
        if (++c == c1) {
            c = c0;
            row += step;
            find();
        }
    }
};

/* Where it reads x: units of the same chunks, over and over. */
template <class F, int HALVES, bool FAST> struct x_reader {
    const float *lo, *hi; /* NULL: no such row */
    int in, c0, c1, c, unit;

    __device__ static void load(const float *x, int k, int n, float4 (&v)[2])
    {
        v[0] = v[1] = make_float4(0, 0, 0, 0);
        if (FAST && x && k < n) {
            v[0] = *(const float4 *)(x + k);
            v[1] = *(const float4 *)(x + k + 4);
        } else if (!FAST && x) {
            v[0] = cuda_load4(x, k, n);
            v[1] = cuda_load4(x, k + 4, n);
        }
    }

    __device__ void next(float4 (&v)[HALVES][2])
    {
        int k = c * F::CHUNK + threadIdx.x % 4 * (F::CHUNK / 4) + 8 * unit;
        load(lo, k, in, v[0]);
        if (HALVES > 1)
            load(hi, k, in, v[HALVES - 1]);
        if (++unit == F::UNITS) {
            unit = 0;
            c = c + 1 == c1 ? c0 : c + 1;
        }
    }
};

template <class F, int OCTETS, int HALVES, bool FAST>
static __global__ void __launch_bounds__(WARPS * 32, 2) few_rows(const __grid_constant__ struct products p)
{
    constexpr int DEPTH = (F::UNITS > 1 || !FAST ? 4 : HALVES > 1 ? 12 : 16) / OCTETS;
    constexpr int X_DEPTH = OCTETS * HALVES * F::UNITS == 1 && FAST ? 4 : 2;
    extern __shared__ float room[]; /* [segments, octets, rows of x, 8] */
    int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, t0 = (int)blockIdx.y * PASS;
    int begin = (int)((int64_t)p.out * blockIdx.x / gridDim.x);
    int end = (int)((int64_t)p.out * (blockIdx.x + 1) / gridDim.x);
    int groups = (end - begin + 8 * OCTETS - 1) / (8 * OCTETS), chunks = (p.in + F::CHUNK - 1) / F::CHUNK;
    int segments = cuda_segments(chunks), segment = warp % segments, streams = WARPS / segments;
    int c0 = chunks * segment / segments, c1 = chunks * (segment + 1) / segments, group = warp / segments;
    int turns = group < groups ? (groups - group + streams - 1) / streams * (c1 - c0) : 0;
    struct weight_reader<F, OCTETS, FAST> weights = {
        p, begin + group * 8 * OCTETS + lane / 4, end, streams * 8 * OCTETS, c0, c1, c0
    };
    typename F::piece w[DEPTH][OCTETS];

    weights.find();
#pragma unroll
    for (int i = 0; i < DEPTH; i++)
        if (i < turns)
            weights.next(w[i]);
    cuda_next();
    cuda_wait();

    int row = t0 + lane / 4;
    struct x_reader<F, HALVES, FAST> x = {
        row < p.rows ? p.x[row] : NULL, row + 8 < p.rows ? p.x[row + 8] : NULL, p.in, c0, c1, c0, 0
    };
    float4 v[X_DEPTH][HALVES][2];
#pragma unroll
    for (int i = 0; i < X_DEPTH; i++)
        if (turns > 0)
            x.next(v[i]);

    float sum[OCTETS][4] = {};
    int left = c1 - c0;
    for (int turn = 0; turn < turns; turn += DEPTH) {
#pragma unroll
        for (int i = 0; i < DEPTH; i++) {
            if (turn + i >= turns)
                break;
#pragma unroll
            for (int u = 0; u < F::UNITS; u++) {
                float4(&f)[HALVES][2] = v[(i * F::UNITS + u) % X_DEPTH];
                uint4 lo = F::pack(f[0][0], f[0][1]), hi = make_uint4(0, 0, 0, 0);
                if (HALVES > 1)
                    hi = F::pack(f[HALVES - 1][0], f[HALVES - 1][1]);
                x.next(f);
#pragma unroll
                for (int o = 0; o < OCTETS; o++)
                    cuda_mma_unit(sum[o], lo, hi, F::unit(w[i][o], u));
            }
            if (turn + i + DEPTH < turns)
                weights.next(w[i]);
            if (--left == 0) {
#pragma unroll
                for (int o = 0; o < OCTETS; o++) {
                    float *to =
                        room + (((segment * groups + group) * OCTETS + o) * HALVES * 8 + lane / 4) * 8 + lane % 4 * 2;
                    *(float2 *)to = make_float2(sum[o][0], sum[o][1]);
                    if (HALVES > 1)
                        *(float2 *)(to + 64) = make_float2(sum[o][2], sum[o][3]);
                    sum[o][0] = sum[o][1] = sum[o][2] = sum[o][3] = 0;
                }
                left = c1 - c0;
                group += streams;
            }
        }
    }
    __syncthreads();
    for (int i = (int)threadIdx.x; i < groups * OCTETS * HALVES * 64; i += WARPS * 32) {
        int o = begin + i / (HALVES * 64) * 8 + i % 8, t = t0 + i / 8 % (HALVES * 8);
        if (o >= end || t >= p.rows)
            continue;
        const struct part *q = part_of(p, o);
        float *y = q->y[t] + (o - q->first), total = 0;
        for (int s = 0; chunks > 0 && s < segments; s++)
            total += room[s * groups * OCTETS * HALVES * 64 + i];
        *y = q->accumulate ? *y + total : total;
    }
}

template <class F, int OCTETS, int HALVES, bool FAST>
static int launch_few(const struct products *p, unsigned blocks, struct k3_stream *s)
{
    int span = (p->out + (int)blocks - 1) / (int)blocks, groups = (span + 8 * OCTETS - 1) / (8 * OCTETS);
    size_t room = (size_t)cuda_segments((p->in + F::CHUNK - 1) / F::CHUNK) * groups * OCTETS * HALVES * 64 * 4;

    return cuda_launch(s, "linear", few_rows<F, OCTETS, HALVES, FAST>, dim3(blocks, (p->rows + PASS - 1) / PASS),
                       WARPS * 32, room, *p);
}

template <class F, bool FAST> static int multiply(const struct products *p, struct k3_stream *s)
{
    int sms = cuda_of(s)->sms, blocks = sms * ((p->out + sms * MOST_SPAN - 1) / (sms * MOST_SPAN));

    if (blocks > p->out)
        blocks = p->out;
    if (p->out <= blocks * 8)
        return p->rows <= 8 ? launch_few<F, 1, 1, FAST>(p, blocks, s) : launch_few<F, 1, 2, FAST>(p, blocks, s);
    return p->rows <= 8 ? launch_few<F, 2, 1, FAST>(p, blocks, s) : launch_few<F, 2, 2, FAST>(p, blocks, s);
}

/* --- F32 weights ---------------------------------------------------------------------------------------------------
 */

static __global__ void exact(const __grid_constant__ struct products p)
{
    int o = (int)blockIdx.x * WARPS + (int)threadIdx.x / 32, t0 = (int)blockIdx.y * 8;
    float sum[8] = {};

    cuda_next();
    cuda_wait();
    if (o >= p.out)
        return;
    const struct part *q = part_of(p, o);
    const float *w = (const float *)q->data + (o - q->first) * q->stride;
    for (int i = (int)threadIdx.x % 32; i < p.in; i += 32)
        for (int r = 0; r < 8 && t0 + r < p.rows; r++)
            sum[r] += w[i] * p.x[t0 + r][i];
    for (int r = 0; r < 8 && t0 + r < p.rows; r++) {
        float total = cuda_warp_sum(sum[r]), *y = q->y[t0 + r] + (o - q->first);
        if (threadIdx.x % 32 == 0)
            *y = q->accumulate ? *y + total : total;
    }
}

/* --- products into launches --------------------------------------------------------------------------------------- */

static bool aligned(const void *p, int64_t pitch)
{
    return (uintptr_t)p % 16 == 0 && pitch % 16 == 0;
}

/* Whether rows of x and w can be read 16 bytes at a time. */
static bool is_fast(const struct linear_args *a)
{
    return a->x->cols % 8 == 0 && aligned(a->x->data, a->x->stride * 4) &&
           aligned(a->w->data, a->w->dtype == K3_BF16 ? a->w->stride * 2 : a->w->stride / 2);
}

static bool go_together(const struct linear_args *a, const struct linear_args *b)
{
    return a->x->data == b->x->data && a->x->stride == b->x->stride && a->x->rows == b->x->rows &&
           a->x->cols == b->x->cols && a->w->dtype == b->w->dtype && is_fast(a) == is_fast(b);
}

static int launch(const struct linear_args *a, int count, struct k3_stream *s)
{
    struct products p = {cuda_rows_of(a->x), (int32_t)a->x->rows, (int32_t)a->x->cols, 0, count, {}};
    bool fast = is_fast(a);

    for (int i = 0; i < count; i++) {
        const struct k3_tensor *w = a[i].w;
        p.part[i] = (struct part){w->data, w->scale, w->stride, cuda_rows_of(a[i].y), p.out, a[i].accumulate};
        p.out += (int32_t)w->rows;
    }
    if (p.rows == 0 || p.out == 0)
        return 0;
    if (a->w->dtype == K3_F32)
        return cuda_launch(s, "linear", exact, dim3((p.out + WARPS - 1) / WARPS, (p.rows + 7) / 8), WARPS * 32, 0, p);
    if (a->w->dtype == K3_BF16)
        return fast ? multiply<cuda_bf16, true>(&p, s) : multiply<cuda_bf16, false>(&p, s);
    return fast ? multiply<cuda_mxfp4, true>(&p, s) : multiply<cuda_mxfp4, false>(&p, s);
}

extern "C" int cuda_linears(const struct linears_args *a, struct k3_stream *s)
{
    for (int i = 0, n; i < a->count; i += n) {
        for (n = 1; i + n < a->count && go_together(&a->product[i], &a->product[i + n]); n++)
            ;
        if (launch(&a->product[i], n, s) < 0)
            return -1;
    }
    return 0;
}

extern "C" int cuda_linear(const struct linear_args *a, struct k3_stream *s)
{
    return launch(a, 1, s);
}
