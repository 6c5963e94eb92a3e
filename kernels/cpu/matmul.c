/* matmul.c - the two paths of a product: weights decoded in registers for one or two rows of x, weights decoded into a
 * panel that stays in the first-level cache for more */
#include "kernels/cpu/matmul.h"

enum {
    DIRECT_ROWS = 8, /* up to here, decoded weights are used straight from registers, for four rows at a time */
    DIRECT_OUTS = 8, /* times one row of x; 4 times two and 2 times four keep as many sums in registers */
    PANEL_ROWS = 4,  /* rows and outputs of one register tile */
    PANEL_OUTS = 3
};

/* One row of weights from a column on that is a multiple of UNIT. */
struct weights {
    const uint8_t *data, *scale;
};

static int64_t unit_bytes(enum k3_dtype dtype)
{
    return dtype == K3_MXFP4 ? UNIT / 2 : dtype == K3_BF16 ? UNIT * 2 : UNIT * 4;
}

static struct weights weights_at(const struct k3_tensor *w, int64_t o, int64_t k)
{
    int64_t unit = unit_bytes(w->dtype);
    struct weights at = {(const uint8_t *)w->data + (o * w->stride + k) * unit / UNIT, NULL};
    if (w->dtype == K3_MXFP4)
        at.scale = (const uint8_t *)w->scale + (o * w->stride + k) / K3_MX_BLOCK;
    return at;
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

/* The last, short unit of a row is decoded from a copy filled up with zeros, for nothing may be read past the row. */
struct tail {
    uint8_t bytes[UNIT * 4];
};

static struct weights tail_of(struct tail *t, enum k3_dtype dtype, struct weights w, int64_t k)
{
    int64_t unit = unit_bytes(dtype);
    memset(t->bytes, 0, sizeof t->bytes);
    memcpy(t->bytes, w.data + k / UNIT * unit, (size_t)(k % UNIT * unit / UNIT));
    return (struct weights){t->bytes, NULL};
}

static int64_t padded(int64_t k)
{
    return (k + UNIT - 1) / UNIT * UNIT;
}

/* --- weights from registers -------------------------------------------------------------------------------------- */

SIMD_INLINE void direct_unit(const int R, const int O, const enum k3_dtype dtype, const struct mxfp4_table *table,
                             const struct weights *w, int64_t unit, const float *x, int64_t stride,
                             v8 acc[4][DIRECT_OUTS])
{
    UNROLL
    for (int o = 0; o < O; o++) {
        v8 d[4];
        decode(dtype, table, w[o], unit, d);
        UNROLL
        for (int r = 0; r < R; r++) {
            UNROLL
            for (int j = 0; j < 4; j++)
                acc[r][o] = v8_fma(d[j], v8_load(x + r * stride + j * LANES), acc[r][o]);
        }
    }
}

/* total[r][o] += scale[r] * w[o] . x[r], block by block. */
SIMD_INLINE void direct(const int R, const int O, const enum k3_dtype dtype, const struct mxfp4_table *table,
                        const struct weights *w, int64_t k, const float *x, int64_t stride, const float *scale,
                        float *total)
{
    for (int64_t k0 = 0; k0 < k; k0 += MATMUL_BLOCK) {
        int64_t end = k0 + MATMUL_BLOCK < k ? k0 + MATMUL_BLOCK : k;
        v8 acc[4][DIRECT_OUTS];
        UNROLL
        for (int r = 0; r < R; r++) {
            UNROLL
            for (int o = 0; o < O; o++)
                acc[r][o] = v8_set(0);
        }
        for (int64_t unit = k0 / UNIT; unit < end / UNIT; unit++)
            direct_unit(R, O, dtype, table, w, unit, x + unit * UNIT, stride, acc);
        if (dtype != K3_MXFP4 && end % UNIT != 0) {
            struct tail tail[DIRECT_OUTS];
            struct weights rest[DIRECT_OUTS];
            for (int o = 0; o < O; o++)
                rest[o] = tail_of(&tail[o], dtype, w[o], end);
            direct_unit(R, O, dtype, table, rest, 0, x + end / UNIT * UNIT, stride, acc);
        }
        UNROLL
        for (int r = 0; r < R; r++) {
            UNROLL
            for (int o = 0; o < O; o++)
                total[r * O + o] += scale[r] * v8_sum(acc[r][o]);
        }
    }
}

#define DIRECT(R, O, dtype)                                                                                            \
    static void direct_##R##_##O##_##dtype(const struct mxfp4_table *table, const struct weights *w, int64_t k,        \
                                           const float *x, int64_t stride, const float *scale, float *total)           \
    {                                                                                                                  \
        direct(R, O, dtype, table, w, k, x, stride, scale, total);                                                     \
    }
#define DIRECT_ALL(dtype)                                                                                              \
    DIRECT(1, 1, dtype)                                                                                                \
    DIRECT(2, 1, dtype)                                                                                                \
    DIRECT(3, 1, dtype)                                                                                                \
    DIRECT(4, 1, dtype) DIRECT(1, 8, dtype) DIRECT(2, 4, dtype) DIRECT(3, 2, dtype) DIRECT(4, 2, dtype)
DIRECT_ALL(K3_F32)
DIRECT_ALL(K3_BF16)
DIRECT_ALL(K3_MXFP4)

typedef void (*direct_fn)(const struct mxfp4_table *table, const struct weights *w, int64_t k, const float *x,
                          int64_t stride, const float *scale, float *total);

/* For one output and for as many as fill the registers beside 1 ... 4 rows of x. */
struct direct_pair {
    direct_fn one, several;
};
#define DIRECT_PAIRS(dtype)                                                                                            \
    {                                                                                                                  \
        {direct_1_1_##dtype, direct_1_8_##dtype}, {direct_2_1_##dtype, direct_2_4_##dtype},                            \
            {direct_3_1_##dtype, direct_3_2_##dtype}, {direct_4_1_##dtype, direct_4_2_##dtype},                        \
    }
static const struct direct_pair direct_pairs[K3_MXFP4 + 1][4] = {
    [K3_F32] = DIRECT_PAIRS(K3_F32), [K3_BF16] = DIRECT_PAIRS(K3_BF16), [K3_MXFP4] = DIRECT_PAIRS(K3_MXFP4)};

/* --- the product ------------------------------------------------------------------------------------------------- */

/* A product cut to the columns [k0, k1) of which worker->x holds the rows of x, `stride` apart. */
struct slice {
    struct cpu_worker *worker;
    const struct k3_tensor *w;
    int n;
    int64_t k0, k1, stride;
    float *const *y;
    const float *scale;
};

/* Eight outputs (or one) and up to DIRECT_ROWS rows of x, which share what is read of the weights in the cache. */
static void outputs_direct(const struct slice *s, int64_t o, int outs)
{
    for (int t = 0; t < s->n; t += 4) {
        int rows = s->n - t < 4 ? s->n - t : 4, step = outs == 1 ? 1 : rows == 1 ? 8 : rows == 2 ? 4 : 2;
        const struct direct_pair *pair = &direct_pairs[s->w->dtype][rows - 1];
        direct_fn fn = step == 1 ? pair->one : pair->several;
        for (int j0 = 0; j0 < outs; j0 += step) {
            struct weights w[DIRECT_OUTS];
            float total[4 * DIRECT_OUTS];
            for (int j = 0; j < step; j++) {
                w[j] = weights_at(s->w, o + j0 + j, s->k0);
                for (int r = 0; r < rows; r++)
                    total[r * step + j] = s->y[t + r][o + j0 + j];
            }
            fn(s->worker->mxfp4, w, s->k1 - s->k0, s->worker->x + t * s->stride, s->stride, s->scale + t, total);
            for (int j = 0; j < step; j++)
                for (int r = 0; r < rows; r++)
                    s->y[t + r][o + j0 + j] = total[r * step + j];
        }
    }
}

static int64_t block_end(const struct slice *s, int64_t k)
{
    return k + MATMUL_BLOCK < s->k1 ? k + MATMUL_BLOCK : s->k1;
}

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

static void decode_row(const struct slice *s, int64_t o, int64_t k, int64_t end, float *to)
{
    struct weights w = weights_at(s->w, o, k), rest;
    int64_t units = (end - k) / UNIT;
    struct tail tail;
    if (s->w->dtype == K3_MXFP4) {
        decode_units(K3_MXFP4, s->worker->mxfp4, w, units, to);
        return;
    }
    rest = tail_of(&tail, s->w->dtype, w, end - k);
    if (s->w->dtype == K3_BF16) {
        decode_units(K3_BF16, NULL, w, units, to);
        decode_units(K3_BF16, NULL, rest, (end - k) % UNIT != 0, to + units * UNIT);
    } else {
        decode_units(K3_F32, NULL, w, units, to);
        decode_units(K3_F32, NULL, rest, (end - k) % UNIT != 0, to + units * UNIT);
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

/* The weights of the next panel come from memory while this one is computed. */
static void fetch_ahead(const struct slice *s, int64_t o, int64_t k)
{
    int64_t bytes = (block_end(s, k) - k) * unit_bytes(s->w->dtype) / UNIT;
    for (int j = 0; j < PANEL_OUTS && o + j < s->w->rows; j++)
        for (int64_t i = 0; i < bytes; i += 64)
            __builtin_prefetch(weights_at(s->w, o + j, k).data + i);
}

static void outputs_panel(const struct slice *s, int64_t o, int outs)
{
    for (int64_t k = s->k0; k < s->k1; k += MATMUL_BLOCK) {
        const float *w[PANEL_OUTS], *x[PANEL_ROWS];
        float sum[PANEL_ROWS * PANEL_OUTS];
        for (int j = 0; j < outs; j++) {
            float *row = s->worker->w + j * MATMUL_BLOCK;
            decode_row(s, o + j, k, block_end(s, k), row);
            w[j] = row;
        }
        fetch_ahead(s, o + outs, k);
        for (int t = 0; t < s->n; t += PANEL_ROWS) {
            int rows = s->n - t < PANEL_ROWS ? s->n - t : PANEL_ROWS;
            for (int r = 0; r < rows; r++)
                x[r] = s->worker->x + (t + r) * s->stride + k - s->k0;
            CPU(dot)(rows, outs, padded(block_end(s, k) - k), x, w, sum, PANEL_OUTS);
            for (int r = 0; r < rows; r++)
                for (int j = 0; j < outs; j++)
                    s->y[t + r][o + j] += s->scale[t + r] * sum[r * PANEL_OUTS + j];
        }
    }
}

/* Columns [k0, k1) of the rows of x into worker->x in the order in which the weights are decoded. */
static void pack(const struct slice *s, const float *const *x)
{
    for (int t = 0; t < s->n; t++) {
        float *to = s->worker->x + t * s->stride;
        int64_t k = s->k0;
        for (; k + UNIT <= s->k1; k += UNIT, to += UNIT)
            simd_reorder(s->w->dtype, x[t] + k, to);
        if (k < s->k1) {
            float unit[UNIT] = {0};
            memcpy(unit, x[t] + k, (size_t)(s->k1 - k) * sizeof *unit);
            simd_reorder(s->w->dtype, unit, to);
        }
    }
}

void CPU(matmul)(struct cpu_worker *worker, int n, const float *const *x, const struct k3_tensor *w, int64_t o0,
                 int64_t o1, float *const *y, const float *scale)
{
    static const float ones[CPU_TILE_ROWS] = {[0 ... CPU_TILE_ROWS - 1] = 1};
    struct slice s = {.worker = worker, .w = w, .n = n, .y = y, .scale = scale != NULL ? scale : ones};
    /* Where x fits whole, every row of weights is read from end to end, which is how memory is fastest. */
    int64_t span = n * padded(w->cols) <= CPU_X_FLOATS ? padded(w->cols) : MATMUL_BLOCK;
    int step = n <= DIRECT_ROWS ? DIRECT_OUTS : PANEL_OUTS;
    for (s.k0 = 0; n > 0 && s.k0 < w->cols; s.k0 = s.k1) {
        s.k1 = s.k0 + span < w->cols ? s.k0 + span : w->cols;
        s.stride = padded(s.k1 - s.k0);
        pack(&s, x);
        for (int64_t o = o0; o < o1;) {
            int outs = o1 - o >= step ? step : n <= DIRECT_ROWS ? 1 : (int)(o1 - o);
            if (n <= DIRECT_ROWS)
                outputs_direct(&s, o, outs);
            else
                outputs_panel(&s, o, outs);
            o += outs;
        }
    }
}
