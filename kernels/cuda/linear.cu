/* linear.cu - y[t,o] = sum_i w[o,i] x[t,i] (+ y[t,o])
 *
 * few_rows, up to 16 rows a block: weights stream through shared memory, where each lane finds what it asked for
 * itself. The rows of all matrices that take the same x, laid end to end, are shared out evenly among the blocks; a
 * block's eight warps take its octets of weight rows and the segments of the sum, with as much on the way as half of
 * the shared memory holds.  What a warp reads first is asked for before the kernel that made x ends. x is read as F32
 * and rounded to BF16.
 *
 * many_rows: tiles of y from tiles of x, rounded beforehand, and of weights, which lie in shared memory some chunks
 * ahead.
 *
 * exact: F32 weights, one warp an output column and 8 rows; lane l adds up columns l, l + 32, ... in fp32, the lanes'
 * sums are added in a tree. */
#include "kernels/cuda/matrix.h"
#include "kernels/cuda/rows.h"

enum { WARPS = 8, FEW_WARPS = 16, MOST_SPAN = 80, MOST_DEPTH = 16, FEW = 64 };

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

/* The finished sum of row t of x and the `row`th of the weight rows laid end to end. */
template <class F> __device__ static void put(const struct products &p, int t, int row, float sum, float scale)
{
    const struct part *q = part_of(p, row);
    float *y = q->y[t] + (row - q->first);

    if (F::ROW_SCALED)
        sum = __fmul_rn(sum, scale);
    *y = q->accumulate ? *y + sum : sum;
}

template <class F> __device__ static float scale_of(const struct products &p, int row)
{
    if (!F::ROW_SCALED)
        return 1;
    const struct part *q = part_of(p, row);
    return __ldg((const float *)q->scale + (row - q->first));
}

/* --- few rows ----------------------------------------------------------------------------------------------------- */

/* A warp keeps its segment's part of 8 rows of x in registers, MOST chunks of it at a time, and meets all octets of
 * weight rows that its stream has with it.  Half of an octet's pieces are on the way while the other half is
 * multiplied; sixteen warps an SM have 57 KB on the way, of e4m3 32 KB, and nothing but weights is read in the loop. */
template <class F, int PIECES> struct held_weights {
    uint4 piece[PIECES];
    uint32_t scale[PIECES];

    template <bool FAST> __device__ void load(const struct cuda_weights &w, int c, int c1, int in)
    {
#pragma unroll
        for (int i = 0; i < PIECES; i++) {
            int k = (c + i) * F::CHUNK + threadIdx.x % 4 * (F::CHUNK / 4);
            piece[i] = make_uint4(0, 0, 0, 0);
            scale[i] = 0;
            if (w.data && c + i < c1 && k < in) {
                piece[i] = F::template fetch<FAST>(w, k, in);
                if (F::SCALED)
                    scale[i] = F::scale(w, k, in);
            }
        }
    }
};

template <class F, int MOST> struct held_x {
    uint4 unit[MOST * F::UNITS];

    template <bool FAST> __device__ void load(const float *x, int c, int c1, int in)
    {
#pragma unroll
        for (int i = 0; i < MOST; i++)
#pragma unroll
            for (int u = 0; u < F::UNITS; u++) {
                int k = (c + i) * F::CHUNK + threadIdx.x % 4 * (F::CHUNK / 4) + 8 * u;
                float4 a = make_float4(0, 0, 0, 0), b = a;
                if (x && c + i < c1 && k < in) {
                    a = FAST ? *(const float4 *)(x + k) : cuda_load4(x, k, in);
                    b = FAST ? *(const float4 *)(x + k + 4) : cuda_load4(x, k + 4, in);
                }
                unit[i * F::UNITS + u] = F::pack(a, b);
            }
    }
};

template <class F, int MOST, int PIECES>
__device__ static void multiply_from(float (&sum)[4], const struct held_x<F, MOST> &x,
                                     const struct held_weights<F, PIECES> &w, int first)
{
    const uint4 none = make_uint4(0, 0, 0, 0);
#pragma unroll
    for (int i = 0; i < PIECES; i++)
#pragma unroll
        for (int u = 0; u < F::UNITS; u++)
            cuda_mma_unit(sum, x.unit[(first + i) * F::UNITS + u], none, F::unit(w.piece[i], w.scale[i], u));
}

template <class F, int MOST, bool FAST>
static __global__ void __launch_bounds__(FEW_WARPS * 32, 1) few_rows(const __grid_constant__ struct products p)
{
    constexpr int HALF = (MOST + 1) / 2;
    CUDA_SHARED(float, sums); /* [segments, octets, 8 rows of x, 8] */
    __shared__ float scales[F::ROW_SCALED ? MOST_SPAN : 1];
    int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, t0 = (int)blockIdx.y * 8;
    int begin = (int)((int64_t)p.out * blockIdx.x / gridDim.x);
    int end = (int)((int64_t)p.out * (blockIdx.x + 1) / gridDim.x);
    int octets = (end - begin + 7) / 8, chunks = (p.in + F::CHUNK - 1) / F::CHUNK,
        segments = cuda_segments(chunks, FEW_WARPS);
    int segment = warp % segments, stream = warp / segments, streams = FEW_WARPS / segments;
    int c0 = chunks * segment / segments, c1 = chunks * (segment + 1) / segments;
    const float *x_row = t0 + lane / 4 < p.rows ? p.x[t0 + lane / 4] : NULL;
    float *mine = sums + (segment * octets * 8 + lane / 4) * 8 + lane % 4 * 2;
    struct held_weights<F, HALF> first;
    struct held_weights<F, MOST - HALF> second;
    struct held_x<F, MOST> x;

    auto row = [&](int octet) {
        struct cuda_weights w = {NULL, NULL};
        int r = begin + octet * 8 + lane / 4;
        if (octet < octets && r < end) {
            const struct part *q = part_of(p, r);
            w = F::row(q->data, q->scale, q->stride, r - q->first);
        }
        return w;
    };

    struct cuda_weights at = row(stream);
    first.template load<FAST>(at, c0, c1, p.in);
    second.template load<FAST>(at, c0 + HALF, c1, p.in);
    bool has_scale = F::ROW_SCALED && (int)threadIdx.x < end - begin;
    float scale = has_scale ? scale_of<F>(p, begin + (int)threadIdx.x) : 1;
    cuda_next();
    cuda_wait();
    for (int c = c0; c < c1; c += MOST) {
        x.template load<FAST>(x_row, c, c1, p.in);
        for (int octet = stream; octet < octets; octet += streams) {
            float sum[4] = {};
            float2 *to = (float2 *)(mine + octet * 64);
            if (c > c0) {
                float2 before = *to;
                sum[0] = before.x, sum[1] = before.y;
            }
            /* Where there are more chunks than registers hold, all octets come once more. */
            bool again = octet + streams >= octets;
            int then = again ? c + MOST : c;
            at = row(again ? stream : octet + streams);
            multiply_from(sum, x, first, 0);
            first.template load<FAST>(at, then, c1, p.in);
            multiply_from(sum, x, second, HALF);
            second.template load<FAST>(at, then + HALF, c1, p.in);
            *to = make_float2(sum[0], sum[1]);
        }
    }
    if (has_scale)
        scales[threadIdx.x] = scale;
    __syncthreads();
    for (int i = (int)threadIdx.x; i < octets * 64; i += FEW_WARPS * 32) {
        int o = begin + i / 64 * 8 + i % 8, t = t0 + i / 8 % 8;
        float total = 0;
        if (o >= end || t >= p.rows)
            continue;
        for (int s = 0; chunks > 0 && s < segments; s++)
            total += sums[s * octets * 64 + i];
        put<F>(p, t, o, total, F::ROW_SCALED ? scales[o - begin] : 1);
    }
}

template <class F, int MOST, bool FAST>
static int launch_few(const struct products *p, int segments, struct k3_stream *s)
{
    int sms = cuda_of(s)->sms, blocks = sms * ((p->out + sms * MOST_SPAN - 1) / (sms * MOST_SPAN));

    if (blocks > p->out)
        blocks = p->out;
    int octets = ((p->out + blocks - 1) / blocks + 7) / 8;
    return cuda_launch(s, "linear", few_rows<F, MOST, FAST>, dim3((unsigned)blocks, (unsigned)(p->rows + 7) / 8),
                       FEW_WARPS * 32, (size_t)segments * octets * 64 * sizeof(float), *p);
}

template <class F, bool FAST> static int multiply(const struct products *p, struct k3_stream *s)
{
    int chunks = (p->in + F::CHUNK - 1) / F::CHUNK, segments = cuda_segments(chunks, FEW_WARPS);
    [[maybe_unused]] int longest = (chunks + segments - 1) / segments;

    if constexpr (F::UNITS > 1 || !FAST)
        return launch_few<F, (F::UNITS > 2 ? 2 : 4), FAST>(p, segments, s);
    else
        return longest <= 4 ? launch_few<F, 4, FAST>(p, segments, s) : launch_few<F, 7, FAST>(p, segments, s);
}

/* --- many rows ---------------------------------------------------------------------------------------------------- */

/* x as BF16 [rows, chunks, units, 4 lanes], zeros behind its columns. */
template <class F> static __global__ void round_rows(struct cuda_rows x, int in, int chunks, uint4 *to)
{
    constexpr int UNITS = F::UNITS;
    int t = (int)blockIdx.x;

    to += (int64_t)t * chunks * UNITS * 4;
    cuda_next();
    cuda_wait();
    for (int i = (int)threadIdx.x; i < chunks * UNITS * 4; i += (int)blockDim.x)
        to[i / (UNITS * 4) * (UNITS * 4) + i % UNITS * 4 + i / UNITS % 4] =
            F::pack(cuda_load4(x[t], i * 8, in), cuda_load4(x[t], i * 8 + 4, in));
}

/* A block makes 32 M rows and 32 N columns of y, a warp 16 M and 8 N: two warps deep, four wide. */
template <class F, int M, int N> struct tiles {
    uint4 x[F::UNITS][32 * M][4], w[32 * N][4];
};

template <class F, int M, int N, int STAGES>
static __global__ void __launch_bounds__(WARPS * 32, M > 2 ? 1 : 2)
    many_rows(const __grid_constant__ struct products p, const uint4 *rounded)
{
    CUDA_SHARED(uint4, room);
    auto *stage = (struct tiles<F, M, N> *)room;
    int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, piece = (int)threadIdx.x % 4;
    int t0 = (int)blockIdx.x * 32 * M, o0 = (int)blockIdx.y * 32 * N, chunks = (p.in + F::CHUNK - 1) / F::CHUNK;
    int segments = cuda_segments(chunks, FEW_WARPS), segment = 0, c = 0;
    struct cuda_weights w[N / 2];
    const uint4 *x[M / 2];
    float sum[M][N][4] = {}, total[M][N][4] = {};

    for (int i = 0; i < N / 2; i++) {
        int o = min(o0 + (int)threadIdx.x / 4 + 64 * i, p.out - 1);
        const struct part *q = part_of(p, o);
        w[i] = F::row(q->data, q->scale, q->stride, o - q->first);
    }
    for (int i = 0; i < M / 2; i++) {
        int t = min(t0 + (int)threadIdx.x / 4 + 64 * i, p.rows - 1);
        x[i] = rounded + (int64_t)t * chunks * F::UNITS * 4 + piece;
    }
    const uint8_t *scale_at[N];                 /* of the rows that this lane multiplies, */
    uint32_t scale[N] = {}, scale_then[N] = {}; /* a chunk ahead */
    auto load_scales = [&](int chunk) {
        for (int n = 0; F::SCALED && n < N; n++)
            scale_then[n] =
                F::scale((struct cuda_weights){NULL, scale_at[n]}, chunk * F::CHUNK + lane % 4 * (F::CHUNK / 4), p.in);
    };
    for (int n = 0; F::SCALED && n < N; n++) {
        int o = min(o0 + warp / 2 * 8 * N + n * 8 + lane / 4, p.out - 1);
        const struct part *q = part_of(p, o);
        scale_at[n] = F::row(q->data, q->scale, q->stride, o - q->first).scale;
    }
    load_scales(0);
    auto copy = [&] {
        if (c < chunks) {
            struct tiles<F, M, N> &to = stage[c % STAGES];
            for (int i = 0; i < N / 2; i++)
                F::template copy<true>(&to.w[threadIdx.x / 4 + 64 * i][piece], w[i],
                                       c * F::CHUNK + piece * (F::CHUNK / 4), p.in);
            for (int i = 0; i < M / 2; i++)
                for (int u = 0; u < F::UNITS; u++)
                    cuda_copy16(&to.x[u][threadIdx.x / 4 + 64 * i][piece], x[i] + (c * F::UNITS + u) * 4, true);
        }
        cuda_copies_end();
        c++;
    };
    cuda_next();
    cuda_wait();
    for (int i = 0; i < STAGES - 1; i++)
        copy();

    for (int at = 0; at < chunks; at++) {
        const struct tiles<F, M, N> &from = stage[at % STAGES];

        cuda_copies_wait<STAGES - 2>();
        __syncthreads();
        copy();
        for (int n = 0; F::SCALED && n < N; n++)
            scale[n] = scale_then[n];
        load_scales(at + 1);
#pragma unroll
        for (int u = 0; u < F::UNITS; u++) {
            uint4 v[M][2];
#pragma unroll
            for (int m = 0; m < M; m++)
                for (int half = 0; half < 2; half++)
                    v[m][half] = from.x[u][warp % 2 * 16 * M + m * 16 + half * 8 + lane / 4][lane % 4];
#pragma unroll
            for (int n = 0; n < N; n++) {
                uint4 unit = F::unit(from.w[warp / 2 * 8 * N + n * 8 + lane / 4][lane % 4], scale[n], u);
#pragma unroll
                for (int m = 0; m < M; m++)
                    cuda_mma_unit(sum[m][n], v[m][0], v[m][1], unit);
            }
        }
        if (at + 1 == chunks * (segment + 1) / segments) {
            segment++;
#pragma unroll
            for (int i = 0; i < M * N * 4; i++) {
                total[i / 4 / N][i / 4 % N][i % 4] += sum[i / 4 / N][i / 4 % N][i % 4];
                sum[i / 4 / N][i / 4 % N][i % 4] = 0;
            }
        }
    }
#pragma unroll
    for (int i = 0; i < M * N * 4; i++) {
        int t = t0 + warp % 2 * 16 * M + i / 4 / N * 16 + i % 4 / 2 * 8 + lane / 4;
        int o = o0 + warp / 2 * 8 * N + i / 4 % N * 8 + lane % 4 * 2 + i % 2;
        if (t < p.rows && o < p.out)
            put<F>(p, t, o, total[i / 4 / N][i / 4 % N][i % 4], scale_of<F>(p, o));
    }
}

template <class F, int M, int N, int STAGES>
static int launch_many(const struct products *p, const uint4 *rounded, struct k3_stream *s)
{
    dim3 grid((unsigned)(p->rows + 32 * M - 1) / (32 * M), (unsigned)(p->out + 32 * N - 1) / (32 * N));

    return cuda_launch(s, "linear", many_rows<F, M, N, STAGES>, grid, WARPS * 32,
                       sizeof(struct tiles<F, M, N>) * STAGES, *p, rounded);
}

/* As many rows at a time as the workspace holds. */
template <class F> static int multiply_many(struct products *p, struct k3_stream *s)
{
    constexpr bool long_chunks = F::UNITS > 1;
    int chunks = (p->in + F::CHUNK - 1) / F::CHUNK, rows = p->rows,
        most = (int)(cuda_of(s)->workspace_bytes / ((size_t)chunks * F::CHUNK * 2));
    uint4 *rounded = (uint4 *)cuda_of(s)->workspace;

    for (int t = 0; t < rows; t += p->rows) {
        int rc;
        p->rows = rows - t < most ? rows - t : most;
        if (cuda_launch(s, "linear", round_rows<F>, p->rows, 256, 0, p->x, p->in, chunks, rounded) < 0)
            return -1;
        if ((int64_t)((p->rows + 127) / 128) * ((p->out + 127) / 128) >= cuda_of(s)->sms)
            rc = launch_many<F, 4, 4, (long_chunks ? 4 : 6)>(p, rounded, s);
        else
            rc = launch_many<F, 2, 2, (long_chunks ? 4 : 8)>(p, rounded, s);
        if (rc < 0)
            return -1;
        p->x.data += p->rows * p->x.stride;
        for (int i = 0; i < p->parts; i++)
            p->part[i].y.data += p->rows * p->part[i].y.stride;
    }
    return 0;
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

/* Whether rows of w, and of x too, can be read 16 bytes at a time. */
static bool weights_fast(const struct linear_args *a)
{
    int64_t stride = a->w->stride, cols = a->x->cols;

    switch (a->w->dtype) {
    case K3_BF16:
        return cols % 8 == 0 && aligned(a->w->data, stride * 2);
    case K3_MXFP4:
        return aligned(a->w->data, stride / 2);
    default:
        return cols % 16 == 0 && aligned(a->w->data, stride);
    }
}

static bool is_fast(const struct linear_args *a)
{
    return weights_fast(a) && aligned(a->x->data, a->x->stride * 4);
}

static bool go_together(const struct linear_args *a, const struct linear_args *b)
{
    return a->x->data == b->x->data && a->x->stride == b->x->stride && a->x->rows == b->x->rows &&
           a->x->cols == b->x->cols && a->w->dtype == b->w->dtype && weights_fast(a) == weights_fast(b);
}

template <class F> static int launch_any(struct products *p, const struct linear_args *a, struct k3_stream *s)
{
    if (p->rows > FEW && p->in > 0 && weights_fast(a))
        return multiply_many<F>(p, s);
    return is_fast(a) ? multiply<F, true>(p, s) : multiply<F, false>(p, s);
}

static int launch(const struct linear_args *a, int count, struct k3_stream *s)
{
    struct products p = {cuda_rows_of(a->x), (int32_t)a->x->rows, (int32_t)a->x->cols, 0, count, {}};

    for (int i = 0; i < count; i++) {
        const struct k3_tensor *w = a[i].w;
        p.part[i] = (struct part){w->data, w->scale, w->stride, cuda_rows_of(a[i].y), p.out, a[i].accumulate};
        p.out += (int32_t)w->rows;
    }
    if (p.rows == 0 || p.out == 0)
        return 0;
    switch (a->w->dtype) {
    case K3_F32:
        return cuda_launch(s, "linear", exact, dim3((p.out + WARPS - 1) / WARPS, (p.rows + 7) / 8), WARPS * 32, 0, p);
    case K3_BF16:
        return launch_any<cuda_bf16>(&p, a, s);
    case K3_FP8_E4M3:
        return launch_any<cuda_fp8>(&p, a, s);
    case K3_MXFP8:
        return launch_any<cuda_mxfp8>(&p, a, s);
    default:
        return is_fast(a) ? multiply<cuda_mxfp4, true>(&p, s) : multiply<cuda_mxfp4, false>(&p, s);
    }
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
