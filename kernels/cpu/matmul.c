/* matmul.c - the two paths of a product: weights decoded in registers for one or two rows of x, weights decoded into a
 * panel that stays in the first-level cache for more */
#include "kernels/cpu/matmul.h"

enum {
    DIRECT_ROWS = 2, /* up to here, decoded weights are used straight from registers */
    DIRECT_OUTS = 4,
    PANEL_ROWS = 4, /* rows and outputs of one register tile */
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
                             const struct weights *w, int64_t unit, const float *x, int64_t stride, v8 acc[2][4])
{
    UNROLL
    for (int o = 0; o < O; o++) {
        v8 d[4];
        decode(dtype, table, w[o], unit, d);
        UNROLL
        for (int r = 0; r < R; r++)
            UNROLL
        for (int j = 0; j < 4; j++)
            acc[r][o] = v8_fma(d[j], v8_load(x + r * stride + j * LANES), acc[r][o]);
    }
}

SIMD_INLINE void direct(const int R, const int O, const enum k3_dtype dtype, const struct mxfp4_table *table,
                        const struct weights *w, int64_t k, const float *x, int64_t stride, float *sum)
{
    v8 acc[2][4];
    UNROLL
    for (int r = 0; r < R; r++)
        UNROLL
    for (int o = 0; o < O; o++)
        acc[r][o] = v8_set(0);
    for (int64_t unit = 0; unit < k / UNIT; unit++)
        direct_unit(R, O, dtype, table, w, unit, x + unit * UNIT, stride, acc);
    if (dtype != K3_MXFP4 && k % UNIT != 0) {
        struct tail tail[4];
        struct weights rest[4];
        for (int o = 0; o < O; o++)
            rest[o] = tail_of(&tail[o], dtype, w[o], k);
        direct_unit(R, O, dtype, table, rest, 0, x + k / UNIT * UNIT, stride, acc);
    }
    UNROLL
    for (int r = 0; r < R; r++)
        UNROLL
    for (int o = 0; o < O; o++)
        sum[r * O + o] = v8_sum(acc[r][o]);
}

#define DIRECT(R, O, dtype)                                                                                            \
    static void direct_##R##_##O##_##dtype(const struct mxfp4_table *table, const struct weights *w, int64_t k,        \
                                           const float *x, int64_t stride, float *sum)                                 \
    {                                                                                                                  \
        direct(R, O, dtype, table, w, k, x, stride, sum);                                                              \
    }
#define DIRECT_ALL(dtype) DIRECT(1, 1, dtype) DIRECT(1, 4, dtype) DIRECT(2, 1, dtype) DIRECT(2, 4, dtype)
DIRECT_ALL(K3_F32)
DIRECT_ALL(K3_BF16)
DIRECT_ALL(K3_MXFP4)

typedef void (*direct_fn)(const struct mxfp4_table *table, const struct weights *w, int64_t k, const float *x,
                          int64_t stride, float *sum);

/* [rows of x - 1][four outputs at a time] */
#define DIRECT_TABLE(dtype)                                                                                            \
    {                                                                                                                  \
        {direct_1_1_##dtype, direct_1_4_##dtype},                                                                      \
        {                                                                                                              \
            direct_2_1_##dtype, direct_2_4_##dtype                                                                     \
        }                                                                                                              \
    }
static const direct_fn direct_table[K3_MXFP4 + 1][DIRECT_ROWS][2] = {
    [K3_F32] = DIRECT_TABLE(K3_F32), [K3_BF16] = DIRECT_TABLE(K3_BF16), [K3_MXFP4] = DIRECT_TABLE(K3_MXFP4)};

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

static void add_sum(const struct slice *s, int t, int64_t o, float sum)
{
    s->y[t][o] += s->scale != NULL ? s->scale[t] * sum : sum;
}

static int64_t block_end(const struct slice *s, int64_t k)
{
    return k + MATMUL_BLOCK < s->k1 ? k + MATMUL_BLOCK : s->k1;
}

static void outputs_direct(const struct slice *s, int64_t o, int outs)
{
    direct_fn fn = direct_table[s->w->dtype][s->n - 1][outs == DIRECT_OUTS];
    for (int64_t k = s->k0; k < s->k1; k += MATMUL_BLOCK) {
        struct weights w[DIRECT_OUTS];
        float sum[DIRECT_ROWS * DIRECT_OUTS];
        for (int j = 0; j < outs; j++)
            w[j] = weights_at(s->w, o + j, k);
        fn(s->worker->mxfp4, w, block_end(s, k) - k, s->worker->x + k - s->k0, s->stride, sum);
        for (int t = 0; t < s->n; t++)
            for (int j = 0; j < outs; j++)
                add_sum(s, t, o + j, sum[t * outs + j]);
    }
}

static void decode_row(const struct slice *s, int64_t o, int64_t k, int64_t end, float *to)
{
    enum k3_dtype dtype = s->w->dtype;
    struct weights w = weights_at(s->w, o, k);
    int64_t units = (end - k) / UNIT;
    v8 d[4];
    for (int64_t unit = 0; unit < units; unit++) {
        decode(dtype, s->worker->mxfp4, w, unit, d);
        memcpy(to + unit * UNIT, d, sizeof d);
    }
    if ((end - k) % UNIT != 0) {
        struct tail tail;
        decode(dtype, NULL, tail_of(&tail, dtype, w, end - k), 0, d);
        memcpy(to + units * UNIT, d, sizeof d);
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
        CASE(1, 2) CASE(1, 3) CASE(2, 1) CASE(2, 2) CASE(2, 3) CASE(3, 1) CASE(3, 2) CASE(3, 3) CASE(4, 1) CASE(4, 2)
            CASE(4, 3)
#undef CASE
    }
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
        for (int t = 0; t < s->n; t += PANEL_ROWS) {
            int rows = s->n - t < PANEL_ROWS ? s->n - t : PANEL_ROWS;
            for (int r = 0; r < rows; r++)
                x[r] = s->worker->x + (t + r) * s->stride + k - s->k0;
            CPU(dot)(rows, outs, padded(block_end(s, k) - k), x, w, sum, PANEL_OUTS);
            for (int r = 0; r < rows; r++)
                for (int j = 0; j < outs; j++)
                    add_sum(s, t + r, o + j, sum[r * PANEL_OUTS + j]);
        }
    }
}

/* Columns [k0, k1) of the rows of x into worker->x in the order in which the weights are decoded. */
static void pack(const struct slice *s, const float *const *x)
{
    int order[UNIT];
    for (int i = 0; i < UNIT; i++)
        order[i] = simd_order(s->w->dtype, i);
    for (int t = 0; t < s->n; t++) {
        const float *from = x[t];
        float *to = s->worker->x + t * s->stride;
        for (int64_t k = s->k0; k < s->k1; k += UNIT, to += UNIT)
            for (int i = 0; i < UNIT; i++)
                to[i] = k + order[i] < s->k1 ? from[k + order[i]] : 0;
    }
}

void CPU(matmul)(struct cpu_worker *worker, int n, const float *const *x, const struct k3_tensor *w, int64_t o0,
                 int64_t o1, float *const *y, const float *scale)
{
    struct slice s = {.worker = worker, .w = w, .n = n, .y = y, .scale = scale};
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
