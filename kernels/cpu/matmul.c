/* matmul.c - a block of columns after the other, on two paths: for a few rows of x weights are decoded in registers and
 * used there; for more they are decoded into a panel that stays in the cache
 *
 * Either way a block of the rows of x stays close too, while the weights stream past; what comes next of them is
 * fetched ahead, since the pieces of a row that lie in one block are too short for the hardware to foresee.  Pages are
 * too many for the processor to remember where they are: few rows leave it little time for that, so they take the
 * blocks of some outputs one after the other, many rows all outputs of a block. */
#include "kernels/cpu/matmul.h"

enum {
    DIRECT_ROWS = 8, /* up to here, weights are used straight from registers */
    DIRECT_OUTS = 8  /* outputs that are worked on one after the other, while the next as many are fetched */
};

/* A block of columns, in `units` of which the last may be short; x holds the block of the rows of x in the order in
 * which it is read: pack_few(), pack_panels(). */
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

/* Formats of which a vector is decoded by itself, so that registers need not hold a whole unit. */
#define BY_VECTOR(dtype) ((dtype) == K3_BF16 || (dtype) == K3_F32)

SIMD_INLINE vec decode_vector(const enum k3_dtype dtype, struct weights w, int64_t unit, const int j)
{
    return dtype == K3_BF16 ? bf16_half(w.data + unit * (UNIT * 2) + j / 2 * (LANES * 4), j % 2)
                            : vec_load((const float *)w.data + unit * UNIT + j * LANES);
}

/* What a sum over decoded weights of output o is taken times.  Codes of e4m3 are decoded to a 256th of themselves,
 * which is exact under every scale, as is this factor. */
static float factor_of(const struct k3_tensor *w, int64_t o)
{
    if (w->dtype == K3_FP8_E4M3)
        return 256 * ((const float *)w->scale)[o];
    return w->dtype == K3_MXFP8 ? 256 : 1;
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

/* Outputs whose sums are kept in registers together with those of R rows of x, and of how many the weights are decoded
 * at a time where that takes a unit: with sixteen registers the sums leave room for those of one. */
#ifdef __AVX512F__
#define TOGETHER(R, dtype) ((R) == 1 && (dtype) != K3_MXFP4 ? 8 : (R) <= 4 ? 4 : 2)
#define DECODED(O) (O)
#else
#define TOGETHER(R, dtype) ((R) == 1 ? 8 : (R) == 2 ? 4 : (R) <= 4 ? 2 : 1)
#define DECODED(O) 1
#endif

/* Sums of one register tile, R rows of O, and then zeros up to a multiple of four. */
#define TILE_SUMS(R, O) (((R) * (O) + 3) / 4 * 4)
enum { MOST_SUMS = 24, GROUP_SUMS = DIRECT_OUTS * DIRECT_ROWS };

/* Tile after tile, DIRECT_OUTS outputs of all rows: y so far, and what sums are taken times. */
struct group {
    float y[GROUP_SUMS], factor[GROUP_SUMS];
};

/* Neighbouring multiply-adds go to different sums: one of them waits for the one before. */
SIMD_INLINE void direct_vector(const int R, const int O, const int o0, const int D, const vec *d, const float *x,
                               vec *acc)
{
    UNROLL
    for (int r = 0; r < R; r++) {
        vec xv = vec_load(x + r * LANES);
        UNROLL
        for (int o = 0; o < D; o++)
            acc[r * O + o0 + o] = vec_fma(d[o], xv, acc[r * O + o0 + o]);
    }
}

SIMD_INLINE void direct_unit(const int R, const int O, const enum k3_dtype dtype, const struct cpu_worker *worker,
                             const struct weights *w, int64_t unit, const float *x, vec *acc)
{
    const int D = BY_VECTOR(dtype) ? O : DECODED(O);
    UNROLL
    for (int o0 = 0; o0 < O; o0 += D) {
        vec whole[DIRECT_OUTS][UNIT_VECS], d[DIRECT_OUTS];
        if (!BY_VECTOR(dtype)) {
            UNROLL
            for (int o = 0; o < D; o++)
                decode(dtype, worker, w[o0 + o], unit, whole[o]);
        }
        UNROLL
        for (int j = 0; j < UNIT_VECS; j++) {
            UNROLL
            for (int o = 0; o < D; o++)
                d[o] = BY_VECTOR(dtype) ? decode_vector(dtype, w[o0 + o], unit, j) : whole[o][j];
            direct_vector(R, O, o0, D, d, x + j * (R * LANES), acc);
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

/* y[r * O + o] += factor[r * O + o] * (w[o] . x[r] over the block) */
SIMD_INLINE void direct(const int R, const enum k3_dtype dtype, const struct block *b, const struct weights *w,
                        int64_t ahead, const float *factor, float *y)
{
    const int O = TOGETHER(R, dtype);
    int64_t whole = b->cols / UNIT;
    vec acc[MOST_SUMS];
    float sum[MOST_SUMS];
    UNROLL
    for (int i = 0; i < TILE_SUMS(R, O); i++)
        acc[i] = vec_set(0);
    for (int64_t unit = 0; unit < whole; unit++) {
        if (R > 1 || unit_bytes(dtype) < UNIT * 2)
            fetch(dtype, O, w, unit, ahead);
        direct_unit(R, O, dtype, b->worker, w, unit, b->x + unit * (R * UNIT), acc);
    }
    if (dtype != K3_MXFP4 && dtype != K3_MXFP8 && whole < b->units) {
        struct tail tail[DIRECT_OUTS];
        struct weights rest[DIRECT_OUTS];
        for (int o = 0; o < O; o++)
            rest[o] = tail_of(&tail[o], dtype, w[o], b->cols);
        direct_unit(R, O, dtype, b->worker, rest, 0, b->x + whole * (R * UNIT), acc);
    }
    UNROLL
    for (int i = 0; i < TILE_SUMS(R, O); i += 4)
        vec_sum4(acc + i, sum + i);
    for (int i = 0; i < TILE_SUMS(R, O); i++)
        y[i] += factor[i] * sum[i];
}

typedef void (*direct_fn)(const struct block *b, const struct weights *w, int64_t ahead, const float *factor, float *y);

#define EACH_ROWS(X, dtype)                                                                                            \
    X(1, dtype) X(2, dtype) X(3, dtype) X(4, dtype) X(5, dtype) X(6, dtype) X(7, dtype) X(8, dtype)
#define DIRECT(R, dtype)                                                                                               \
    static void direct_##R##_##dtype(const struct block *b, const struct weights *w, int64_t ahead,                    \
                                     const float *factor, float *y)                                                    \
    {                                                                                                                  \
        direct(R, dtype, b, w, ahead, factor, y);                                                                      \
    }
EACH_ROWS(DIRECT, K3_F32)
EACH_ROWS(DIRECT, K3_BF16)
EACH_ROWS(DIRECT, K3_FP8_E4M3)
EACH_ROWS(DIRECT, K3_MXFP8)
EACH_ROWS(DIRECT, K3_MXFP4)

#define ENTRY(R, dtype) {direct_##R##_##dtype, TOGETHER(R, dtype), TILE_SUMS(R, TOGETHER(R, dtype))},
static const struct {
    direct_fn fn;
    int together, sums;
} direct_table[K3_MXFP4 + 1][DIRECT_ROWS] = {[K3_F32] = {EACH_ROWS(ENTRY, K3_F32)},
                                             [K3_BF16] = {EACH_ROWS(ENTRY, K3_BF16)},
                                             [K3_FP8_E4M3] = {EACH_ROWS(ENTRY, K3_FP8_E4M3)},
                                             [K3_MXFP8] = {EACH_ROWS(ENTRY, K3_MXFP8)},
                                             [K3_MXFP4] = {EACH_ROWS(ENTRY, K3_MXFP4)}};

static void group_open(struct group *g, const struct block *b, int64_t o, int outs)
{
    int together = direct_table[b->w->dtype][b->n - 1].together, sums = direct_table[b->w->dtype][b->n - 1].sums;
    memset(g, 0, sizeof *g);
    for (int j0 = 0, tile = 0; j0 < outs; j0 += together, tile += sums)
        for (int r = 0; r < b->n; r++)
            for (int j = 0; j < together && j0 + j < outs; j++) {
                g->y[tile + r * together + j] = b->y[r][o + j0 + j];
                g->factor[tile + r * together + j] = b->scale[r] * factor_of(b->w, o + j0 + j);
            }
}

static void group_close(const struct group *g, const struct block *b, int64_t o, int outs)
{
    int together = direct_table[b->w->dtype][b->n - 1].together, sums = direct_table[b->w->dtype][b->n - 1].sums;
    for (int j0 = 0, tile = 0; j0 < outs; j0 += together, tile += sums)
        for (int r = 0; r < b->n; r++)
            for (int j = 0; j < together && j0 + j < outs; j++)
                b->y[r][o + j0 + j] = g->y[tile + r * together + j];
}

/* A group's block of columns, while `next` columns further on are fetched.  Where fewer outputs are left than are made
 * together, the last one is made again and dropped. */
static void group_block(struct group *g, const struct block *b, int64_t o, int outs, int64_t next)
{
    int together = direct_table[b->w->dtype][b->n - 1].together, sums = direct_table[b->w->dtype][b->n - 1].sums;
    int64_t ahead = next * unit_bytes(b->w->dtype) / UNIT;
    struct weights w[DIRECT_OUTS];
    for (int j = 0; j < DIRECT_OUTS; j++)
        w[j] = weights_of(b, o + (j < outs ? j : outs - 1));
    for (int j = 0, tile = 0; j < outs; j += together, tile += sums)
        direct_table[b->w->dtype][b->n - 1].fn(b, w + j, ahead, g->factor + tile, g->y + tile);
}

/* --- weights from a panel ----------------------------------------------------------------------------------------
 *
 * Here a vector holds as many outputs, and each of them still adds up LANES sums of its own, one lane of the columns
 * after the other.  A lane has `steps` columns in a block: the vectors that are decoded of it. */

enum { PANEL_OUTS = PANEL_VECS * LANES, HALF = 8 /* rows and columns that are transposed at a time */ };

_Static_assert(PANEL_OUTS *MATMUL_BLOCK <= CPU_W_FLOATS, "a panel fits");
_Static_assert(PANEL_OUTS % HALF == 0 && LANES % HALF == 0 && PANEL_ROWS <= 2 * HALF, "transposed in whole pieces");

/* Rows of x are met in parts of PANEL_ROWS or a few less, evenly: two rows alone would leave multiply-adds waiting. */
static int panel_parts(const struct block *b)
{
    return (b->n + PANEL_ROWS - 1) / PANEL_ROWS;
}

static int panel_begin(const struct block *b, int part)
{
    return b->n * part / panel_parts(b);
}

/* A unit of PANEL_OUTS outputs, to[lane][step][output]. */
SIMD_INLINE void decode_panel_unit(const enum k3_dtype dtype, const struct block *b, const struct weights *w,
                                   int64_t unit, float *to, int64_t steps)
{
    float rows[PANEL_OUTS][UNIT];
    for (int o = 0; o < PANEL_OUTS; o++) {
        vec d[UNIT_VECS];
        decode(dtype, b->worker, w[o], unit, d);
        UNROLL
        for (int j = 0; j < UNIT_VECS; j++)
            vec_store(rows[o] + j * LANES, d[j]);
    }
    for (int i = 0; i < UNIT; i += HALF)
        for (int o = 0; o < PANEL_OUTS; o += HALF)
            transpose8(&rows[o][i], UNIT, to + (i % LANES * steps + i / LANES) * PANEL_OUTS + o, steps * PANEL_OUTS);
}

SIMD_INLINE void decode_panel_as(const enum k3_dtype dtype, const struct block *b, const struct weights *w)
{
    int64_t whole = b->cols / UNIT, steps = b->units * UNIT_VECS;
    float *to = b->worker->w;
    for (int64_t unit = 0; unit < whole; unit++, to += UNIT_VECS * PANEL_OUTS)
        decode_panel_unit(dtype, b, w, unit, to, steps);
    if (whole < b->units) {
        struct tail tail[PANEL_OUTS];
        struct weights rest[PANEL_OUTS];
        for (int o = 0; o < PANEL_OUTS; o++)
            rest[o] = tail_of(&tail[o], dtype, w[o], b->cols);
        decode_panel_unit(dtype, b, rest, 0, to, steps);
    }
}

static void decode_panel(const struct block *b, const struct weights *w)
{
    switch (b->w->dtype) {
    case K3_MXFP4:
        decode_panel_as(K3_MXFP4, b, w);
        break;
    case K3_MXFP8:
        decode_panel_as(K3_MXFP8, b, w);
        break;
    case K3_FP8_E4M3:
        decode_panel_as(K3_FP8_E4M3, b, w);
        break;
    case K3_BF16:
        decode_panel_as(K3_BF16, b, w);
        break;
    default:
        decode_panel_as(K3_F32, b, w);
    }
}

/* sum[r][output] of R rows, x[lane][step][row].  Lanes come in the order in which vec_sum() adds them, the tree's left
 * leaf first: one more sum is ready after it as often as its number ends in a binary one. */
SIMD_INLINE void panel_rows(const int R, const float *x, const float *w, int64_t steps, vec *sum)
{
    vec waiting[LANES][PANEL_ROWS * PANEL_VECS];
    int waits = 0;
    for (int leaf = 0; leaf < LANES; leaf++) {
        int lane = 0;
        for (int bit = 1; bit < LANES; bit *= 2)
            lane = 2 * lane + (leaf & bit ? 1 : 0);
        const float *xs = x + lane * steps * R, *ws = w + lane * steps * PANEL_OUTS;
        vec acc[PANEL_ROWS * PANEL_VECS];
        UNROLL
        for (int i = 0; i < R * PANEL_VECS; i++)
            acc[i] = vec_set(0);
        for (int64_t s = 0; s < steps; s++, xs += R, ws += PANEL_OUTS) {
            vec wv[PANEL_VECS];
            UNROLL
            for (int v = 0; v < PANEL_VECS; v++)
                wv[v] = vec_load(ws + v * LANES);
            UNROLL
            for (int r = 0; r < R; r++) {
                vec xv = vec_set(xs[r]);
                UNROLL
                for (int v = 0; v < PANEL_VECS; v++)
                    acc[r * PANEL_VECS + v] = vec_fma(wv[v], xv, acc[r * PANEL_VECS + v]);
            }
        }
        for (int ready = leaf; ready & 1; ready >>= 1) {
            waits--;
            UNROLL
            for (int i = 0; i < R * PANEL_VECS; i++)
                acc[i] += waiting[waits][i];
        }
        UNROLL
        for (int i = 0; i < R * PANEL_VECS; i++)
            waiting[waits][i] = acc[i];
        waits++;
    }
    memcpy(sum, waiting[0], sizeof *sum * (size_t)(R * PANEL_VECS));
}

typedef void (*panel_fn)(const float *x, const float *w, int64_t steps, vec *sum);

#define PANEL(R)                                                                                                       \
    static void panel_##R(const float *x, const float *w, int64_t steps, vec *sum)                                     \
    {                                                                                                                  \
        panel_rows(R <= PANEL_ROWS ? R : 1, x, w, steps, sum);                                                         \
    }
PANEL(1)
PANEL(2)
PANEL(3)
PANEL(4)
PANEL(5)
PANEL(6)
PANEL(7)
PANEL(8)
PANEL(9)
PANEL(10)
PANEL(11)
PANEL(12)

static const panel_fn panel_table[] = {panel_1, panel_2, panel_3, panel_4,  panel_5,  panel_6,
                                       panel_7, panel_8, panel_9, panel_10, panel_11, panel_12};
_Static_assert(PANEL_ROWS <= sizeof panel_table / sizeof *panel_table, "one for every number of rows");

/* Up to PANEL_OUTS outputs.  Where fewer are left, the last one is made again and dropped. */
static void outputs_panel(const struct block *b, int64_t o, int outs)
{
    int64_t row = b->w->stride * unit_bytes(b->w->dtype) / UNIT,
            ahead = o + 2 * PANEL_OUTS <= b->end ? PANEL_OUTS * row : 0, steps = b->units * UNIT_VECS;
    struct weights w[PANEL_OUTS];
    float factor[PANEL_OUTS];
    for (int j = 0; j < PANEL_OUTS; j++) {
        w[j] = weights_of(b, o + (j < outs ? j : outs - 1));
        factor[j] = factor_of(b->w, o + (j < outs ? j : outs - 1));
    }
    decode_panel(b, w);
    for (int j = 0; j < outs; j++)
        for (int64_t i = 0; i < b->units * unit_bytes(b->w->dtype); i += 64)
            __builtin_prefetch((const void *)((uintptr_t)w[j].data + (uintptr_t)(i + ahead)));
    for (int part = 0; part < panel_parts(b); part++) {
        int t = panel_begin(b, part), rows = panel_begin(b, part + 1) - t;
        vec sums[PANEL_ROWS * PANEL_VECS];
        panel_table[rows - 1](b->x + t * steps * LANES, b->worker->w, steps, sums);
        for (int r = 0; r < rows; r++) {
            float sum[PANEL_OUTS];
            memcpy(sum, sums + r * PANEL_VECS, sizeof sum);
            for (int j = 0; j < outs; j++)
                b->y[t + r][o + j] += b->scale[t + r] * factor[j] * sum[j];
        }
    }
}

/* --- rows of fp32 by each other -------------------------------------------------------------------------------- */

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

/* --- the product ------------------------------------------------------------------------------------------------- */

/* Columns k to k + UNIT of one row's block in the order in which weights are decoded, vectors `apart` floats apart. */
static void reordered(const struct block *b, const float *x, int64_t k, float *to, int64_t apart)
{
    float unit[UNIT] = {0};
    const float *from = x + b->k + k;
    if (k + UNIT > b->cols)
        from = memcpy(unit, from, (size_t)(b->cols - k) * sizeof *unit);
    simd_reorder(b->w->dtype, from, to, apart);
}

/* For a few rows: [unit][vector][row]. */
static void pack_few(const struct block *b, const float *const *x)
{
    for (int64_t u = 0; u < b->units; u++)
        for (int t = 0; t < b->n; t++)
            reordered(b, x[t], u * UNIT, b->x + u * b->n * UNIT + t * LANES, b->n * LANES);
}

/* For many: [part][lane][step][row of the part]. */
static void pack_panels(const struct block *b, const float *const *x)
{
    int64_t steps = b->units * UNIT_VECS;
    for (int part = 0; part < panel_parts(b); part++) {
        int t = panel_begin(b, part), rows = panel_begin(b, part + 1) - t;
        float unit[2 * HALF][UNIT] = {{0}}, turned[HALF][2 * HALF];
        float *to = b->x + t * steps * LANES;
        for (int64_t u = 0; u < b->units; u++) {
            for (int r = 0; r < rows; r++)
                reordered(b, x[t + r], u * UNIT, unit[r], LANES);
            for (int i = 0; i < UNIT; i += HALF) {
                float *at = to + (i % LANES * steps + u * UNIT_VECS + i / LANES) * rows;
                for (int r = 0; r < rows; r += HALF)
                    transpose8(&unit[r][i], UNIT, &turned[0][r], 2 * HALF);
                for (int lane = 0; lane < HALF; lane++)
                    if (rows == PANEL_ROWS)
                        memcpy(at + lane * steps * PANEL_ROWS, turned[lane], PANEL_ROWS * sizeof *at);
                    else
                        memcpy(at + lane * steps * rows, turned[lane], (size_t)rows * sizeof *at);
            }
        }
    }
}

static void next_block(struct block *b)
{
    b->cols = b->w->cols - b->k < MATMUL_BLOCK ? b->w->cols - b->k : MATMUL_BLOCK;
    b->units = (b->cols + UNIT - 1) / UNIT;
}

/* As many columns of x as there is room for are packed first, so that of some rows of weights after the others all of
 * these are read from end to end. */
static void few_rows(struct block *b, const float *const *x, int64_t o0, int64_t o1)
{
    int64_t most = CPU_X_FLOATS / b->n / MATMUL_BLOCK * MATMUL_BLOCK, cols = b->w->cols;
    for (int64_t k0 = 0, k1; k0 < cols; k0 = k1) {
        k1 = k0 + most < cols ? k0 + most : cols;
        for (b->k = k0; b->k < k1; b->k += MATMUL_BLOCK) {
            next_block(b);
            b->x = b->worker->x + b->n * (b->k - k0);
            pack_few(b, x);
        }
        for (int64_t o = o0; o < o1; o += DIRECT_OUTS) {
            int outs = o1 - o < DIRECT_OUTS ? (int)(o1 - o) : DIRECT_OUTS;
            int64_t over = o + 2 * DIRECT_OUTS <= o1 ? DIRECT_OUTS * b->w->stride + k0 : 0;
            struct group g;
            group_open(&g, b, o, outs);
            for (b->k = k0; b->k < k1; b->k += MATMUL_BLOCK) {
                next_block(b);
                b->x = b->worker->x + b->n * (b->k - k0);
                group_block(&g, b, o, outs, b->k + MATMUL_BLOCK < k1 ? MATMUL_BLOCK : over > 0 ? over - b->k : 0);
            }
            group_close(&g, b, o, outs);
        }
    }
}

static void many_rows(struct block *b, const float *const *x, int64_t o0, int64_t o1)
{
    b->x = b->worker->x;
    for (; b->k < b->w->cols; b->k += MATMUL_BLOCK) {
        next_block(b);
        pack_panels(b, x);
        for (int64_t o = o0; o < o1; o += PANEL_OUTS)
            outputs_panel(b, o, o1 - o < PANEL_OUTS ? (int)(o1 - o) : PANEL_OUTS);
    }
}

void CPU(matmul)(struct cpu_worker *worker, int n, const float *const *x, const struct k3_tensor *w, int64_t o0,
                 int64_t o1, float *const *y, const float *scale)
{
    static const float ones[CPU_TILE_ROWS] = {[0 ... CPU_TILE_ROWS - 1] = 1};
    struct block b = {.worker = worker, .w = w, .n = n, .end = o1, .y = y, .scale = scale != NULL ? scale : ones};
    if (n > DIRECT_ROWS)
        many_rows(&b, x, o0, o1);
    else if (n > 0)
        few_rows(&b, x, o0, o1);
}
