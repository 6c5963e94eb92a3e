/* matmul.c - a block of columns after the other, on two paths: for a few rows of x weights are decoded in registers and
 * used there; for more they are decoded into a panel that stays in the first-level cache
 *
 * Either way a block of the rows of x stays close too, while the weights stream past; what comes next of them is
 * fetched ahead, since the pieces of a row that lie in one block are too short for the hardware to foresee. */
#include "kernels/cpu/matmul.h"

enum {
    DIRECT_ROWS = 8, /* up to here, weights are used straight from registers, with four rows of x at a time */
    DIRECT_OUTS = 8, /* times one row of x; 4 times two and 2 times four keep as many sums in registers */
    PANEL_ROWS = 4,  /* rows and outputs of one register tile on the other path */
    PANEL_OUTS = 3
};

/* A block of columns, in `units` of which the last may be short; x holds the block of the rows of x, MATMUL_BLOCK
 * apart. */
struct block {
    struct cpu_worker *worker;
    float *x;
    const struct k3_tensor *w;
    int n;
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
    return dtype == K3_MXFP4 ? UNIT / 2 : dtype == K3_BF16 ? UNIT * 2 : UNIT * 4;
}

static struct weights weights_of(const struct block *b, int64_t o)
{
    const struct k3_tensor *w = b->w;
    int64_t at = o * w->stride + b->k;
    struct weights row = {(const uint8_t *)w->data + at * unit_bytes(w->dtype) / UNIT, NULL};
    if (w->dtype == K3_MXFP4)
        row.scale = (const uint8_t *)w->scale + at / K3_MX_BLOCK;
    return row;
}

SIMD_INLINE void decode(const enum k3_dtype dtype, const struct mxfp4_table *table, struct weights w, int64_t unit,
                        v8 d[4])
{
    if (dtype == K3_MXFP4) {
        mxfp4_lanes(w.data + unit * (UNIT / 2), &table[w.scale[unit]], d);
    } else if (dtype == K3_BF16) {
        bf16_lanes(w.data + unit * (UNIT * 2), &d[0], &d[1]);
        bf16_lanes(w.data + unit * (UNIT * 2) + UNIT, &d[2], &d[3]);
    } else {
        UNROLL
        for (int j = 0; j < 4; j++)
            d[j] = v8_load((const float *)w.data + unit * UNIT + j * LANES);
    }
}

/* A short last unit is decoded from a copy filled up with zeros, for nothing may be read past the row.  MXFP4 has
 * none. */
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

SIMD_INLINE void direct_unit(const int R, const int O, const enum k3_dtype dtype, const struct mxfp4_table *table,
                             const struct weights *w, int64_t unit, const float *x, v8 acc[4][DIRECT_OUTS])
{
    UNROLL
    for (int o = 0; o < O; o++) {
        v8 d[4];
        decode(dtype, table, w[o], unit, d);
        UNROLL
        for (int r = 0; r < R; r++) {
            UNROLL
            for (int j = 0; j < 4; j++)
                acc[r][o] = v8_fma(d[j], v8_load(x + r * MATMUL_BLOCK + j * LANES), acc[r][o]);
        }
    }
}

/* sum[r][o] = w[o] . x[r] over the block.  Weights `ahead` bytes further on come next. */
SIMD_INLINE void direct(const int R, const int O, const enum k3_dtype dtype, const struct block *b,
                        const struct weights *w, const float *x, int64_t ahead, float *sum)
{
    int64_t whole = b->cols / UNIT;
    v8 acc[4][DIRECT_OUTS];
    UNROLL
    for (int r = 0; r < R; r++) {
        UNROLL
        for (int o = 0; o < O; o++)
            acc[r][o] = v8_set(0);
    }
    for (int64_t unit = 0; unit < whole; unit++) {
        UNROLL
        for (int o = 0; R > 1 && o < O; o++)
            __builtin_prefetch((const void *)((uintptr_t)w[o].data + (uintptr_t)(unit * unit_bytes(dtype) + ahead)));
        direct_unit(R, O, dtype, b->worker->mxfp4, w, unit, x + unit * UNIT, acc);
    }
    if (dtype != K3_MXFP4 && whole < b->units) {
        struct tail tail[DIRECT_OUTS];
        struct weights rest[DIRECT_OUTS];
        for (int o = 0; o < O; o++)
            rest[o] = tail_of(&tail[o], dtype, w[o], b->cols);
        direct_unit(R, O, dtype, NULL, rest, 0, x + whole * UNIT, acc);
    }
    UNROLL
    for (int r = 0; r < R; r++) {
        UNROLL
        for (int o = 0; o < O; o++)
            sum[r * O + o] = v8_sum(acc[r][o]);
    }
}

typedef void (*direct_fn)(const struct block *b, const struct weights *w, const float *x, int64_t ahead, float *sum);

#define DIRECT(R, O, dtype)                                                                                            \
    static void direct_##R##_##O##_##dtype(const struct block *b, const struct weights *w, const float *x,             \
                                           int64_t ahead, float *sum)                                                  \
    {                                                                                                                  \
        direct(R, O, dtype, b, w, x, ahead, sum);                                                                      \
    }
#define DIRECT_ONE(dtype) DIRECT(1, 1, dtype) DIRECT(2, 1, dtype) DIRECT(3, 1, dtype) DIRECT(4, 1, dtype)
#define DIRECT_MORE(dtype) DIRECT(1, 8, dtype) DIRECT(2, 4, dtype) DIRECT(3, 2, dtype) DIRECT(4, 2, dtype)
DIRECT_ONE(K3_F32)
DIRECT_ONE(K3_BF16)
DIRECT_ONE(K3_MXFP4)
DIRECT_MORE(K3_F32)
DIRECT_MORE(K3_BF16)
DIRECT_MORE(K3_MXFP4)

/* For 1 ... 4 rows of x: one output, and as many as fill the registers. */
#define DIRECT_TABLE(dtype)                                                                                            \
    {                                                                                                                  \
        {direct_1_1_##dtype, direct_1_8_##dtype}, {direct_2_1_##dtype, direct_2_4_##dtype},                            \
            {direct_3_1_##dtype, direct_3_2_##dtype}, {direct_4_1_##dtype, direct_4_2_##dtype},                        \
    }
static const direct_fn direct_table[K3_MXFP4 + 1][4][2] = {
    [K3_F32] = DIRECT_TABLE(K3_F32), [K3_BF16] = DIRECT_TABLE(K3_BF16), [K3_MXFP4] = DIRECT_TABLE(K3_MXFP4)};

/* DIRECT_OUTS outputs, or one. */
static void outputs_direct(const struct block *b, int64_t o, int outs, int64_t ahead)
{
    static const int together[4] = {8, 4, 2, 2};
    struct weights w[DIRECT_OUTS];
    float sum[4 * DIRECT_OUTS];
    for (int j = 0; j < outs; j++)
        w[j] = weights_of(b, o + j);
    for (int t = 0; t < b->n; t += 4) {
        int rows = b->n - t < 4 ? b->n - t : 4, step = outs == 1 ? 1 : together[rows - 1];
        direct_fn fn = direct_table[b->w->dtype][rows - 1][outs > 1];
        for (int j0 = 0; j0 < outs; j0 += step) {
            fn(b, w + j0, b->x + t * MATMUL_BLOCK, ahead, sum);
            for (int r = 0; r < rows; r++)
                for (int j = 0; j < step; j++)
                    b->y[t + r][o + j0 + j] += b->scale[t + r] * sum[r * step + j];
        }
    }
}

/* --- weights from a panel ---------------------------------------------------------------------------------------- */

SIMD_INLINE void decode_units(const enum k3_dtype dtype, const struct mxfp4_table *table, struct weights w,
                              int64_t units, float *to)
{
    for (int64_t unit = 0; unit < units; unit++, to += UNIT) {
        v8 d[4];
        decode(dtype, table, w, unit, d);
        UNROLL
        for (int j = 0; j < 4; j++)
            v8_store(to + j * LANES, d[j]);
    }
}

static void decode_row(const struct block *b, struct weights w, float *to)
{
    int64_t whole = b->cols / UNIT;
    struct tail tail;
    if (b->w->dtype == K3_MXFP4) {
        decode_units(K3_MXFP4, b->worker->mxfp4, w, whole, to);
    } else if (b->w->dtype == K3_BF16) {
        decode_units(K3_BF16, NULL, w, whole, to);
        decode_units(K3_BF16, NULL, tail_of(&tail, K3_BF16, w, b->cols), b->units - whole, to + whole * UNIT);
    } else {
        decode_units(K3_F32, NULL, w, whole, to);
        decode_units(K3_F32, NULL, tail_of(&tail, K3_F32, w, b->cols), b->units - whole, to + whole * UNIT);
    }
}

void CPU(dot)(int R, int O, int64_t k, const float *const *x, const float *const *w, float *sum, int64_t stride)
{
    switch (R * 4 + O) {
#define CASE(R, O)                                                                                                     \
    case R * 4 + O:                                                                                                    \
        dot_tile(R, O, k, x, w, sum, stride);                                                                          \
        break;
        CASE(1, 1)
        CASE(1, 2)
        CASE(1, 3) CASE(2, 1) CASE(2, 2) CASE(2, 3) CASE(3, 1) CASE(3, 2) CASE(3, 3) CASE(4, 1) CASE(4, 2) CASE(4, 3)
#undef CASE
    }
}

/* Up to PANEL_OUTS outputs. */
static void outputs_panel(const struct block *b, int64_t o, int outs, int64_t ahead)
{
    const float *panel[PANEL_OUTS], *x[PANEL_ROWS];
    float sum[PANEL_ROWS * PANEL_OUTS];
    for (int j = 0; j < outs; j++) {
        float *row = b->worker->w + j * MATMUL_BLOCK;
        struct weights w = weights_of(b, o + j);
        decode_row(b, w, row);
        panel[j] = row;
        for (int64_t i = 0; i < b->units * unit_bytes(b->w->dtype); i += 64)
            __builtin_prefetch((const void *)((uintptr_t)w.data + (uintptr_t)(i + ahead)));
    }
    for (int t = 0; t < b->n; t += PANEL_ROWS) {
        int rows = b->n - t < PANEL_ROWS ? b->n - t : PANEL_ROWS;
        for (int r = 0; r < rows; r++)
            x[r] = b->x + (t + r) * MATMUL_BLOCK;
        CPU(dot)(rows, outs, b->units * UNIT, x, panel, sum, PANEL_OUTS);
        for (int r = 0; r < rows; r++)
            for (int j = 0; j < outs; j++)
                b->y[t + r][o + j] += b->scale[t + r] * sum[r * PANEL_OUTS + j];
    }
}

/* --- the product ------------------------------------------------------------------------------------------------- */

/* The block of the rows of x into b->x, in the order in which weights are decoded. */
static void pack(const struct block *b, const float *const *x)
{
    for (int t = 0; t < b->n; t++) {
        float *to = b->x + t * MATMUL_BLOCK;
        const float *from = x[t] + b->k;
        int64_t k = 0;
        for (; k + UNIT <= b->cols; k += UNIT)
            simd_reorder(b->w->dtype, from + k, to + k);
        if (k < b->cols) {
            float unit[UNIT] = {0};
            memcpy(unit, from + k, (size_t)(b->cols - k) * sizeof *unit);
            simd_reorder(b->w->dtype, unit, to + k);
        }
    }
}

static void outputs(const struct block *b, int64_t o0, int64_t o1)
{
    int few = b->n <= DIRECT_ROWS, step = few ? DIRECT_OUTS : PANEL_OUTS, outs;
    int64_t ahead = step * b->w->stride * unit_bytes(b->w->dtype) / UNIT;
    for (int64_t o = o0; o < o1; o += outs) {
        outs = o1 - o >= step ? step : few ? 1 : (int)(o1 - o);
        if (few)
            outputs_direct(b, o, outs, o1 - o >= 2 * step ? ahead : 0);
        else
            outputs_panel(b, o, outs, o1 - o >= 2 * step ? ahead : 0);
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
    struct block b = {.worker = worker, .w = w, .n = n, .y = y, .scale = scale != NULL ? scale : ones};
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
