/* matmul.c - a block of columns after the other, on two paths: for a few rows of x weights are decoded in registers and
 * used there; for more they are decoded into a panel that stays in the first-level cache
 *
 * Either way a block of the rows of x stays close too, while the weights stream past; what comes next of them is
 * fetched ahead, since the pieces of a row that lie in one block are too short for the hardware to foresee. */
#include "kernels/cpu/matmul.h"

enum {
    DIRECT_ROWS = 8, /* up to here, weights are used straight from registers */
    DIRECT_OUTS = 8  /* outputs that are worked on one after the other, while the next as many are fetched */
};

/* A block of columns, in `units` of which the last may be short; x holds the block of the rows of x: for a
 * few rows unit after unit, the n rows of each together, so that they lie as they are read; else row after row,
 * MATMUL_BLOCK apart. */
struct block {
    struct cpu_worker *worker;
    float *x;
    const struct k3_tensor *w;
    int n;
    int64_t end; /* of the outputs that fall to this worker */
    int64_t k, cols, units;
    float *const *y;
    const float *scale;
};

/* --- weights ----------------------------------------------------------------------------------------------------- */

/* One row of weights from the block's first column on. */
struct weights {
    const uint8_t *data, *scale;
};

static int64_t unit_bytes(enum k3_dtype dtype)
{
    switch (dtype) {
    case K3_MXFP4:
        return UNIT / 2;
    case K3_FP8_E4M3:
    case K3_MXFP8:
        return UNIT;
    case K3_BF16:
        return UNIT * 2;
    default:
        return UNIT * 4;
    }
}

static struct weights weights_of(const struct block *b, int64_t o)
{
    const struct k3_tensor *w = b->w;
    int64_t at = o * w->stride + b->k;
    struct weights row = {(const uint8_t *)w->data + at * unit_bytes(w->dtype) / UNIT, NULL};
    if (w->dtype == K3_MXFP4 || w->dtype == K3_MXFP8)
        row.scale = (const uint8_t *)w->scale + at / K3_MX_BLOCK;
    return row;
}

SIMD_INLINE void decode(const enum k3_dtype dtype, const struct cpu_worker *worker, struct weights w, int64_t unit,
                        vec d[UNIT_VECS])
{
    if (dtype == K3_MXFP4) {
        mxfp4_lanes(w.data + unit * (UNIT / 2), &worker->mxfp4[w.scale[unit]], d);
    } else if (dtype == K3_FP8_E4M3 || dtype == K3_MXFP8) {
        e4m3_lanes(w.data + unit * UNIT, d);
        UNROLL
        for (int j = 0; dtype == K3_MXFP8 && j < UNIT_VECS; j++)
            d[j] *= vec_set(worker->e8m0[w.scale[unit]]);
    } else if (dtype == K3_BF16) {
        UNROLL
        for (int j = 0; j < UNIT_VECS; j += 2)
            bf16_lanes(w.data + unit * (UNIT * 2) + j * (LANES * 2), &d[j], &d[j + 1]);
    } else {
        UNROLL
        for (int j = 0; j < UNIT_VECS; j++)
            d[j] = vec_load((const float *)w.data + unit * UNIT + j * LANES);
    }
}

/* What a sum over the block's columns of decoded weights comes to.  Codes of e4m3 are decoded to a 256th of themselves,
 * which is exact under every scale, as is this factor. */
static float finished(const struct block *b, int64_t o, float sum)
{
    if (b->w->dtype == K3_FP8_E4M3)
        return 256 * sum * ((const float *)b->w->scale)[o];
    return b->w->dtype == K3_MXFP8 ? 256 * sum : sum;
}

/* A short last unit is decoded from a copy filled up with zeros, for nothing may be read past the row.  MX formats
 * have none. */
struct tail {
    uint8_t bytes[UNIT * 4];
};

static struct weights tail_of(struct tail *t, enum k3_dtype dtype, struct weights w, int64_t cols)
{
    int64_t unit = unit_bytes(dtype);
    memset(t->bytes, 0, sizeof t->bytes);
    memcpy(t->bytes, w.data + cols / UNIT * unit, (size_t)(cols % UNIT * unit / UNIT));
    return (struct weights){t->bytes, NULL};
}

/* --- weights from registers -------------------------------------------------------------------------------------- */

/* Outputs whose sums are kept in registers together with those of R rows of x. */
#ifdef __AVX512F__
#define TOGETHER(R, dtype) ((R) == 1 && (dtype) != K3_MXFP4 ? 8 : (R) <= 4 ? 4 : 2)
#else
#define TOGETHER(R, dtype) ((R) == 1 ? 8 : (R) == 2 ? 4 : (R) <= 4 ? 2 : 1)
#endif

/* Sums of one register tile, R rows of O, and then zeros up to a multiple of four. */
#define TILE_SUMS(R, O) (((R) * (O) + 3) / 4 * 4)
enum { MOST_SUMS = 24 };

SIMD_INLINE void direct_unit(const int R, const int O, const enum k3_dtype dtype, const struct cpu_worker *worker,
                             const struct weights *w, int64_t unit, const float *x, vec *acc)
{
    vec d[DIRECT_OUTS][UNIT_VECS];
    UNROLL
    for (int o = 0; o < O; o++)
        decode(dtype, worker, w[o], unit, d[o]);
    UNROLL
    for (int r = 0; r < R; r++) {
        UNROLL
        for (int j = 0; j < UNIT_VECS; j++) {
            vec xv = vec_load(x + r * UNIT + j * LANES);
            UNROLL
            for (int o = 0; o < O; o++)
                acc[r * O + o] = vec_fma(d[o][j], xv, acc[r * O + o]);
        }
    }
}

/* What lies `ahead` bytes behind this unit of the outputs, once a cache line. */
SIMD_INLINE void fetch(const enum k3_dtype dtype, const int O, const struct weights *w, int64_t unit, int64_t ahead)
{
    UNROLL
    for (int o = 0; o < O; o++)
        if (unit * unit_bytes(dtype) % 64 == 0)
            __builtin_prefetch((const void *)((uintptr_t)w[o].data + (uintptr_t)(unit * unit_bytes(dtype) + ahead)));
}

/* sum[r * O + o] = w[o] . x[r] over the block. */
SIMD_INLINE void direct(const int R, const enum k3_dtype dtype, const struct block *b, const struct weights *w,
                        const float *x, int64_t ahead, float *sum)
{
    const int O = TOGETHER(R, dtype);
    int64_t whole = b->cols / UNIT;
    vec acc[MOST_SUMS];
    UNROLL
    for (int i = 0; i < TILE_SUMS(R, O); i++)
        acc[i] = vec_set(0);
    for (int64_t unit = 0; unit < whole; unit++) {
        if (R > 1 || unit_bytes(dtype) < UNIT * 2)
            fetch(dtype, O, w, unit, ahead);
        direct_unit(R, O, dtype, b->worker, w, unit, x + unit * (R * UNIT), acc);
    }
    if (dtype != K3_MXFP4 && dtype != K3_MXFP8 && whole < b->units) {
        struct tail tail[DIRECT_OUTS];
        struct weights rest[DIRECT_OUTS];
        for (int o = 0; o < O; o++)
            rest[o] = tail_of(&tail[o], dtype, w[o], b->cols);
        direct_unit(R, O, dtype, b->worker, rest, 0, x + whole * (R * UNIT), acc);
    }
    UNROLL
    for (int i = 0; i < TILE_SUMS(R, O); i += 4)
        vec_sum4(acc + i, sum + i);
}

typedef void (*direct_fn)(const struct block *b, const struct weights *w, const float *x, int64_t ahead, float *sum);

#define EACH_ROWS(X, dtype)                                                                                            \
    X(1, dtype) X(2, dtype) X(3, dtype) X(4, dtype) X(5, dtype) X(6, dtype) X(7, dtype) X(8, dtype)
#define DIRECT(R, dtype)                                                                                               \
    static void direct_##R##_##dtype(const struct block *b, const struct weights *w, const float *x, int64_t ahead,    \
                                     float *sum)                                                                       \
    {                                                                                                                  \
        direct(R, dtype, b, w, x, ahead, sum);                                                                         \
    }
EACH_ROWS(DIRECT, K3_F32)
EACH_ROWS(DIRECT, K3_BF16)
EACH_ROWS(DIRECT, K3_FP8_E4M3)
EACH_ROWS(DIRECT, K3_MXFP8)
EACH_ROWS(DIRECT, K3_MXFP4)

#define ENTRY(R, dtype) {direct_##R##_##dtype, TOGETHER(R, dtype)},
static const struct {
    direct_fn fn;
    int together;
} direct_table[K3_MXFP4 + 1][DIRECT_ROWS] = {[K3_F32] = {EACH_ROWS(ENTRY, K3_F32)},
                                             [K3_BF16] = {EACH_ROWS(ENTRY, K3_BF16)},
                                             [K3_FP8_E4M3] = {EACH_ROWS(ENTRY, K3_FP8_E4M3)},
                                             [K3_MXFP8] = {EACH_ROWS(ENTRY, K3_MXFP8)},
                                             [K3_MXFP4] = {EACH_ROWS(ENTRY, K3_MXFP4)}};

/* Up to DIRECT_OUTS outputs.  Where fewer are left than are made together, the last one is made again and dropped. */
static void outputs_direct(const struct block *b, int64_t o, int outs)
{
    int together = direct_table[b->w->dtype][b->n - 1].together;
    int64_t ahead = o + 2 * DIRECT_OUTS <= b->end ? DIRECT_OUTS * b->w->stride * unit_bytes(b->w->dtype) / UNIT : 0;
    struct weights w[DIRECT_OUTS];
    float sum[MOST_SUMS];
    for (int j = 0; j < DIRECT_OUTS; j++)
        w[j] = weights_of(b, o + (j < outs ? j : outs - 1));
    for (int j0 = 0; j0 < outs; j0 += together) {
        direct_table[b->w->dtype][b->n - 1].fn(b, w + j0, b->x, ahead, sum);
        for (int r = 0; r < b->n; r++)
            for (int j = 0; j < together && j0 + j < outs; j++)
                b->y[r][o + j0 + j] += b->scale[r] * finished(b, o + j0 + j, sum[r * together + j]);
    }
}

/* --- weights from a panel ---------------------------------------------------------------------------------------- */

SIMD_INLINE void decode_units(const enum k3_dtype dtype, const struct block *b, struct weights w, int64_t units,
                              float *to)
{
    for (int64_t unit = 0; unit < units; unit++, to += UNIT) {
        vec d[UNIT_VECS];
        decode(dtype, b->worker, w, unit, d);
        UNROLL
        for (int j = 0; j < UNIT_VECS; j++)
            vec_store(to + j * LANES, d[j]);
    }
}

SIMD_INLINE void decode_all(const enum k3_dtype dtype, const struct block *b, struct weights w, float *to)
{
    int64_t whole = b->cols / UNIT;
    struct tail tail;
    decode_units(dtype, b, w, whole, to);
    if (whole < b->units)
        decode_units(dtype, b, tail_of(&tail, dtype, w, b->cols), 1, to + whole * UNIT);
}

static void decode_row(const struct block *b, struct weights w, float *to)
{
    switch (b->w->dtype) {
    case K3_MXFP4:
        decode_all(K3_MXFP4, b, w, to);
        break;
    case K3_MXFP8:
        decode_all(K3_MXFP8, b, w, to);
        break;
    case K3_FP8_E4M3:
        decode_all(K3_FP8_E4M3, b, w, to);
        break;
    case K3_BF16:
        decode_all(K3_BF16, b, w, to);
        break;
    default:
        decode_all(K3_F32, b, w, to);
    }
}

SIMD_INLINE void dot_rows(const int R, int64_t k, const float *const *x, const float *const *w, float *sum)
{
    vec acc[MOST_SUMS];
    UNROLL
    for (int i = 0; i < TILE_SUMS(R, DOT_OUTS); i++)
        acc[i] = vec_set(0);
    for (int64_t i = 0; i < k; i += LANES) {
        vec wv[DOT_OUTS];
        UNROLL
        for (int o = 0; o < DOT_OUTS; o++)
            wv[o] = vec_load(w[o] + i);
        UNROLL
        for (int r = 0; r < R; r++) {
            vec xv = vec_load(x[r] + i);
            UNROLL
            for (int o = 0; o < DOT_OUTS; o++)
                acc[r * DOT_OUTS + o] = vec_fma(wv[o], xv, acc[r * DOT_OUTS + o]);
        }
    }
    UNROLL
    for (int i = 0; i < TILE_SUMS(R, DOT_OUTS); i += 4)
        vec_sum4(acc + i, sum + i);
}

void CPU(dot)(int R, int O, int64_t k, const float *const *x, const float *const *w, float *sum, int64_t stride)
{
    const float *all[DOT_OUTS];
    float tile[MOST_SUMS];
    for (int o = 0; o < DOT_OUTS; o++)
        all[o] = w[o < O ? o : O - 1];
    if (R == 4)
        dot_rows(4, k, x, all, tile);
    else if (R == 3)
        dot_rows(3, k, x, all, tile);
    else if (R == 2)
        dot_rows(2, k, x, all, tile);
    else
        dot_rows(1, k, x, all, tile);
    for (int r = 0; r < R; r++)
        for (int o = 0; o < O; o++)
            sum[r * stride + o] = tile[r * DOT_OUTS + o];
}

/* Up to DOT_OUTS outputs. */
static void outputs_panel(const struct block *b, int64_t o, int outs)
{
    int64_t row = b->w->stride * unit_bytes(b->w->dtype) / UNIT,
            ahead = o + 2 * DOT_OUTS <= b->end ? DOT_OUTS * row : 0;
    const float *panel[DOT_OUTS], *x[DOT_ROWS];
    float sum[DOT_ROWS * DOT_OUTS];
    for (int j = 0; j < outs; j++) {
        float *decoded = b->worker->w + j * MATMUL_BLOCK;
        struct weights w = weights_of(b, o + j);
        decode_row(b, w, decoded);
        panel[j] = decoded;
        for (int64_t i = 0; i < b->units * unit_bytes(b->w->dtype); i += 64)
            __builtin_prefetch((const void *)((uintptr_t)w.data + (uintptr_t)(i + ahead)));
    }
    for (int t = 0; t < b->n; t += DOT_ROWS) {
        int rows = b->n - t < DOT_ROWS ? b->n - t : DOT_ROWS;
        for (int r = 0; r < rows; r++)
            x[r] = b->x + (t + r) * MATMUL_BLOCK;
        CPU(dot)(rows, outs, b->units * UNIT, x, panel, sum, DOT_OUTS);
        for (int r = 0; r < rows; r++)
            for (int j = 0; j < outs; j++)
                b->y[t + r][o + j] += b->scale[t + r] * finished(b, o + j, sum[r * DOT_OUTS + j]);
    }
}

/* --- the product ------------------------------------------------------------------------------------------------- */

/* The block of the rows of x into b->x, in the order in which weights are decoded. */
static void pack(const struct block *b, const float *const *x)
{
    int few = b->n <= DIRECT_ROWS;
    for (int t = 0; t < b->n; t++) {
        float *to = b->x + t * (few ? UNIT : MATMUL_BLOCK);
        const float *from = x[t] + b->k;
        int64_t k = 0, step = few ? b->n * UNIT : UNIT;
        for (; k + UNIT <= b->cols; k += UNIT, to += step)
            simd_reorder(b->w->dtype, from + k, to);
        if (k < b->cols) {
            float unit[UNIT] = {0};
            memcpy(unit, from + k, (size_t)(b->cols - k) * sizeof *unit);
            simd_reorder(b->w->dtype, unit, to);
        }
    }
}

static void outputs(const struct block *b, int64_t o0, int64_t o1)
{
    int few = b->n <= DIRECT_ROWS, step = few ? DIRECT_OUTS : DOT_OUTS;
    for (int64_t o = o0; o < o1; o += step) {
        int outs = o1 - o < step ? (int)(o1 - o) : step;
        if (few)
            outputs_direct(b, o, outs);
        else
            outputs_panel(b, o, outs);
    }
}

static void next_block(struct block *b)
{
    b->cols = b->w->cols - b->k < MATMUL_BLOCK ? b->w->cols - b->k : MATMUL_BLOCK;
    b->units = (b->cols + UNIT - 1) / UNIT;
}

/* One row of x: all of it is packed first, so that a row of weights can be read from end to end, which the hardware
 * foresees. */
static void one_row(struct block *b, const float *const *x, int64_t o0, int64_t o1)
{
    for (b->k = 0; b->k < b->w->cols; b->k += MATMUL_BLOCK) {
        next_block(b);
        b->x = b->worker->x + b->k;
        pack(b, x);
    }
    for (int64_t o = o0, end; o < o1; o = end) {
        end = o + DIRECT_OUTS < o1 ? o + DIRECT_OUTS : o1;
        for (b->k = 0; b->k < b->w->cols; b->k += MATMUL_BLOCK) {
            next_block(b);
            b->x = b->worker->x + b->k;
            outputs(b, o, end);
        }
    }
}

void CPU(matmul)(struct cpu_worker *worker, int n, const float *const *x, const struct k3_tensor *w, int64_t o0,
                 int64_t o1, float *const *y, const float *scale)
{
    static const float ones[CPU_TILE_ROWS] = {[0 ... CPU_TILE_ROWS - 1] = 1};
    struct block b = {.worker = worker, .w = w, .n = n, .end = o1, .y = y, .scale = scale != NULL ? scale : ones};
    if (n == 1 && w->cols <= CPU_X_FLOATS - MATMUL_BLOCK) {
        one_row(&b, x, o0, o1);
        return;
    }
    b.x = worker->x;
    for (; n > 0 && b.k < w->cols; b.k += MATMUL_BLOCK) {
        next_block(&b);
        pack(&b, x);
        outputs(&b, o0, o1);
    }
}
