/* linear_test.c - products with weights of every dtype; the codes of FP8 and MX formats themselves */
#include "kernels/test/check.h"

struct product {
    struct k3_tensor x, w, y0;
    int accumulate;
};

static int run(void *arg, struct k3_stream *s, int64_t t0, int64_t t1, const struct k3_tensor *y, float *state)
{
    struct product *p = arg;
    struct k3_tensor x = tensor_rows(&p->x, t0, t1), y0 = tensor_rows(&p->y0, t0, t1);
    (void)state;
    if (p->accumulate)
        tensor_copy(y, &y0);
    return kern_linear(&(struct linear_args){&x, &p->w, y, p->accumulate}, s);
}

static double bound(void *arg, int64_t t, int64_t o, double expected)
{
    struct product *p = arg;
    double magnitude = p->accumulate ? fabs(ref_get(&p->y0, t, o)) : 0;
    (void)expected;
    for (int64_t i = 0; i < p->x.cols; i++)
        magnitude += fabs(ref_get(&p->x, t, i) * ref_get(&p->w, o, i));
    /* cuda rounds x to BF16, and F32 weights not at all: they stay with F32 products. */
    double x = check_rounds_to_bf16() && p->w.dtype != K3_F32 ? 0x1p-8 : 0, scale = p->w.dtype == K3_FP8_E4M3 ? U : 0;
    return bound_dot(p->x.cols, magnitude) + (x + scale) * magnitude;
}

static int in_blocks(enum k3_dtype dtype)
{
    return dtype == K3_MXFP4 || dtype == K3_MXFP8;
}

static void product(enum k3_dtype dtype, int64_t rows, int64_t in, int64_t out, int accumulate)
{
    struct product p = {.x = tensor_random(rows, in, random_below(2) ? 5 : 8, -1, 1),
                        .w = tensor_weights(dtype, out, in,
                                            in_blocks(dtype)  ? 64
                                            : random_below(2) ? 3
                                                              : 16),
                        .y0 = tensor_random(rows, out, 0, -1, 1),
                        .accumulate = accumulate};
    check_operation(&(struct check){.arg = &p, .units = rows, .cols = out, .run = run, .bound = bound});
    tensor_free(&p.x);
    tensor_free(&p.w);
    tensor_free(&p.y0);
}

static void matches_the_reference(void **state)
{
    static const enum k3_dtype dtypes[] = {K3_F32, K3_BF16, K3_FP8_E4M3, K3_MXFP8, K3_MXFP4};
    static const int64_t rows[] = {1, 2, 3, 9}, outs[] = {1, 5, 37}, ins[] = {1, 31, 32, 96, 112, 1024, 1056, 2085};
    (void)state;
    for (size_t d = 0; d < 5; d++)
        for (size_t r = 0; r < 4; r++)
            for (size_t i = 0; i < 8; i++)
                if ((!in_blocks(dtypes[d]) || ins[i] % 32 == 0) && (!check_emulated() || (d + r + i) % 4 == 0))
                    product(dtypes[d], rows[r], ins[i], outs[(r + i) % 3], (int)(r + i) % 2);
}

/* More rows than one tile, and more than the packed rows of x have room for. */
static void takes_many_rows_and_wide_ones(void **state)
{
    (void)state;
    if (check_emulated()) {
        product(K3_BF16, 70, 40, 7, 0);
        product(K3_FP8_E4M3, 17, 1072, 4, 1);
        product(K3_FP8_E4M3, 66, 40, 131, 1);
        product(K3_MXFP8, 70, 352, 37, 0);
        product(K3_MXFP4, 9, 800, 37, 1);
        return;
    }
    product(K3_BF16, 261, 40, 7, 0);
    product(K3_MXFP4, 258, 1088, 4, 1);
    product(K3_BF16, 9, 33800, 5, 0);
    product(K3_BF16, 17, 1552, 300, 1);
    product(K3_BF16, 150, 800, 200, 0);
    product(K3_MXFP4, 70, 800, 150, 0);
    product(K3_F32, 65, 100, 40, 1);
    product(K3_FP8_E4M3, 258, 1072, 4, 1);
    product(K3_FP8_E4M3, 17, 1552, 300, 1);
    product(K3_FP8_E4M3, 150, 800, 200, 0);
    product(K3_FP8_E4M3, 66, 40, 131, 1);
    product(K3_FP8_E4M3, 9, 33800, 5, 0);
    product(K3_MXFP8, 9, 33792, 5, 0);
    product(K3_MXFP8, 150, 800, 200, 0);
    product(K3_MXFP8, 70, 1568, 37, 1);
}

static void takes_empty_shards(void **state)
{
    (void)state;
    product(K3_BF16, 3, 0, 5, 0);
    product(K3_BF16, 3, 0, 5, 1);
    product(K3_BF16, 3, 64, 0, 0);
    product(K3_MXFP4, 2, 0, 3, 0);
    product(K3_FP8_E4M3, 3, 0, 5, 1);
    product(K3_FP8_E4M3, 70, 0, 5, 0);
    product(K3_FP8_E4M3, 3, 64, 0, 0);
    product(K3_MXFP8, 2, 0, 3, 0);
    product(K3_BF16, 0, 64, 5, 0);
}

/* Every byte of codes under every scale, against the table of SPEC 3.3 written out. */
static void decodes_every_byte_and_scale(void **state)
{
    static const float value[16] = {0, .5f, 1, 1.5f, 2, 3, 4, 6, -0.f, -.5f, -1, -1.5f, -2, -3, -4, -6};
    static const char *const backends[] = {"ref", "cpu-avx512", "cpu-avx2", "cpu-plain", "cuda"};
    uint8_t(*codes)[16] = malloc(32 * sizeof *codes), *scales = malloc(32);
    (void)state;
    for (int b = 0; b < 5; b++) {
        if (!check_has(backends[b]) || (check_emulated() && b < 4))
            continue;
        struct k3_stream *s = kern_stream_create(backends[b], 1);
        for (int scale = 0; scale < 256; scale += check_emulated() ? 15 : 1)
            for (int part = 0; part < 8; part++) { /* 32 rows of one block each, all of their bytes equal */
                for (int r = 0; r < 32; r++)
                    memset(codes[r], part * 32 + r, 16);
                memset(scales, scale, 32);
                struct k3_tensor w = {codes, scales, K3_MXFP4, K3_ROW_MAJOR, 32, 32, 32};
                struct k3_tensor x = tensor_f32(32, 32, 0), y = tensor_f32(32, 32, 0);
                for (int r = 0; r < 32; r++) /* x is the unit matrix: y[i][o] = w[o][i] */
                    for (int i = 0; i < 32; i++)
                        ref_put(&x, r, i, r == i);
                assert_int_equal(kern_linear(&(struct linear_args){&x, &w, &y, 0}, s), 0);
                assert_int_equal(kern_sync(s), 0);
                for (int o = 0; o < 32; o++)
                    for (int i = 0; i < 32; i++) {
                        int byte = part * 32 + o;
                        double even = ldexp(value[byte & 15], scale - 127), odd = ldexp(value[byte >> 4], scale - 127);
                        double got = ref_get(&y, i, o);
                        if (scale == 255)
                            assert_true(isnan(got));
                        else if (fabs(even) < 0x1p128 && fabs(odd) < 0x1p128) /* 0 times infinity spoils the row */
                            assert_true(got == (i % 2 ? odd : even));
                    }
                tensor_free(&x);
                tensor_free(&y);
            }
        kern_stream_destroy(s);
    }
    free(codes);
    free(scales);
}

/* Columns [first, first + cols) of w: the same bits as of a copy of them. */
static void view(enum k3_dtype dtype, int64_t rows, int64_t first, int64_t cols)
{
    struct k3_tensor w = tensor_weights(dtype, 19, first + cols, 0), part = w,
                     alone = tensor_weights(dtype, 19, cols, 0);
    struct k3_tensor x = tensor_random(rows, cols, 0, -1, 1), y = tensor_f32(rows, 19, 0), z = tensor_f32(rows, 19, 0);
    static const char *const backends[] = {"ref", "cpu-avx512", "cpu-avx2", "cpu-plain", "cuda"};
    part.cols = cols;
    part.data = (uint8_t *)w.data + first;
    if (dtype == K3_MXFP8)
        part.scale = (uint8_t *)w.scale + first / K3_MX_BLOCK;
    for (int64_t r = 0; r < 19; r++) {
        memcpy((uint8_t *)alone.data + r * cols, (uint8_t *)part.data + r * w.stride, (size_t)cols);
        if (dtype == K3_MXFP8)
            memcpy((uint8_t *)alone.scale + r * (cols / K3_MX_BLOCK),
                   (uint8_t *)part.scale + r * (w.stride / K3_MX_BLOCK), (size_t)(cols / K3_MX_BLOCK));
        else
            ((float *)alone.scale)[r] = ((float *)w.scale)[r];
    }
    for (int b = 0; b < 5; b++) {
        if (!check_has(backends[b]))
            continue;
        struct k3_stream *s = kern_stream_create(backends[b], 1);
        assert_int_equal(kern_linear(&(struct linear_args){&x, &part, &y, 0}, s), 0);
        assert_int_equal(kern_linear(&(struct linear_args){&x, &alone, &z, 0}, s), 0);
        assert_int_equal(kern_sync(s), 0);
        assert_memory_equal(y.data, z.data, (size_t)(rows * 19) * sizeof(float));
        kern_stream_destroy(s);
    }
    tensor_free(&w);
    tensor_free(&alone);
    tensor_free(&x);
    tensor_free(&y);
    tensor_free(&z);
}

static void takes_a_part_of_the_columns(void **state)
{
    (void)state;
    for (int64_t rows = 1; rows <= 81; rows += check_emulated() ? 40 : 20) {
        view(K3_FP8_E4M3, rows, 5, 93);
        view(K3_FP8_E4M3, rows, 16, 1040);
        view(K3_MXFP8, rows, 32, 96);
        view(K3_MXFP8, rows, 96, 1056);
    }
}

/* e4m3 from its definition: 2^(exponent - 7) times 1 and eighths, eighths of 2^-6 where the exponent is 0. */
static double e4m3(int code)
{
    int exponent = code / 8 % 16, eighths = code % 8;
    double v = exponent == 0 ? eighths / 8. * 0x1p-6 : (1 + eighths / 8.) * exp2(exponent - 7);
    return code % 128 == 127 ? (double)NAN : code >= 128 ? -v : v;
}

enum { CODES = 32, MOST_ROWS = 70 };

struct decoder {
    struct k3_stream *s;
    struct k3_tensor x, w, y;
    int rounds; /* what a BF16 number cannot say */
};

/* Codes 32 part ... 32 part + 31 in column `at` of as many rows of weights, zeros in the others; x has ones there and
 * zeros beside. */
static void check_codes(struct decoder *d, int64_t rows, int part, int at, double scale)
{
    double least = d->rounds && d->w.dtype == K3_MXFP8 ? 0x1p-126 : 0;
    memset(d->w.data, 0, CODES * K3_MX_BLOCK);
    for (int o = 0; o < CODES; o++)
        ((uint8_t *)d->w.data)[o * K3_MX_BLOCK + at] = (uint8_t)(part * CODES + o);
    d->x.rows = d->y.rows = rows;
    for (int64_t t = 0; t < rows; t++)
        for (int i = 0; i < K3_MX_BLOCK; i++)
            ref_put(&d->x, t, i, i == at);
    assert_int_equal(kern_linear(&(struct linear_args){&d->x, &d->w, &d->y, 0}, d->s), 0);
    assert_int_equal(kern_sync(d->s), 0);
    for (int64_t t = 0; t < rows; t++)
        for (int o = 0; o < CODES; o++) {
            double expected = e4m3(part * CODES + o) * scale, got = ref_get(&d->y, t, o);
            if (isnan(expected))
                assert_true(isnan(got));
            else if (fabs(expected) < least) /* half of BF16's least number */
                assert_true(fabs(got - expected) <= 0x1p-134);
            else if (fabs(expected) < 0x1p128)
                assert_true(got == (float)expected);
        }
}

static void check_fp8(struct decoder *d, float scale, int64_t rows)
{
    for (int o = 0; o < CODES; o++)
        ((float *)d->w.scale)[o] = scale;
    for (int part = 0; part < 8; part++)
        for (int at = 0; at < K3_MX_BLOCK; at += check_emulated() ? 5 : 1)
            check_codes(d, rows, part, at, scale);
}

static void check_mxfp8(struct decoder *d, int scale, int64_t rows)
{
    memset(d->w.scale, scale, CODES);
    for (int part = 0; part < 8; part++)
        check_codes(d, rows, part, (scale + part) % K3_MX_BLOCK, scale == 255 ? (double)NAN : ldexp(1, scale - 127));
}

/* Every e4m3 code, NaN and subnormal ones included, in every place of a block, for few and many rows; and under every
 * scale of MXFP8. */
static void decodes_every_code_of_e4m3(void **state)
{
    static const char *const backends[] = {"ref", "cpu-avx512", "cpu-avx2", "cpu-plain", "cuda"};
    (void)state;
    for (int b = 0; b < 5; b++) {
        if (!check_has(backends[b]) || (check_emulated() && b < 4))
            continue;
        struct decoder d = {.s = kern_stream_create(backends[b], 1),
                            .x = tensor_f32(MOST_ROWS, K3_MX_BLOCK, 0),
                            .y = tensor_f32(MOST_ROWS, CODES, 0),
                            .w = tensor_weights(K3_FP8_E4M3, CODES, K3_MX_BLOCK, 0),
                            .rounds = b == 4};
        check_fp8(&d, 0.75f, 1);
        check_fp8(&d, 0x1.234p-20f, 9);
        check_fp8(&d, 0x1.fp100f, MOST_ROWS);
        tensor_free(&d.w);
        d.w = tensor_weights(K3_MXFP8, CODES, K3_MX_BLOCK, 0);
        for (int scale = 0; scale < 256; scale += check_emulated() ? 15 : 1) {
            check_mxfp8(&d, scale, 1);
            check_mxfp8(&d, scale, scale % 64 == 0 ? MOST_ROWS : 9);
        }
        tensor_free(&d.x);
        tensor_free(&d.y);
        tensor_free(&d.w);
        kern_stream_destroy(d.s);
    }
}

/* So many tiles of rows and outputs that cuda takes its large ones: the bits of a few rows at a time, which the other
 * tests hold against ref. */
static void large_tiles_are_as_few_rows(void **state)
{
    static const enum k3_dtype dtypes[] = {K3_BF16, K3_FP8_E4M3, K3_MXFP8};
    enum { IN = 352 };
    const int64_t rows = check_emulated() ? 150 : 1500, out = check_emulated() ? 270 : 1700;
    (void)state;
    if (!check_has("cuda"))
        return;
    struct k3_stream *s = kern_stream_create("cuda", 1);
    struct k3_tensor x = tensor_random(rows, IN, 0, -1, 1), y = tensor_f32(rows, out, 0), z = tensor_f32(rows, out, 0);
    for (int i = 0; i < 3; i++) {
        struct k3_tensor w = tensor_weights(dtypes[i], out, IN, 0);
        assert_int_equal(kern_linear(&(struct linear_args){&x, &w, &y, 0}, s), 0);
        for (int64_t t = 0; t < rows; t += 50) {
            struct k3_tensor few = tensor_rows(&x, t, t + 50), part = tensor_rows(&z, t, t + 50);
            assert_int_equal(kern_linear(&(struct linear_args){&few, &w, &part, 0}, s), 0);
        }
        assert_int_equal(kern_sync(s), 0);
        assert_memory_equal(y.data, z.data, (size_t)(rows * out) * sizeof(float));
        tensor_free(&w);
    }
    tensor_free(&x);
    tensor_free(&y);
    tensor_free(&z);
    kern_stream_destroy(s);
}

static void refuses_what_it_cannot_do(void **state)
{
    struct k3_stream *s = kern_stream_create("cpu", 1);
    struct k3_tensor x = tensor_random(2, 33, 0, -1, 1), w = tensor_weights(K3_F32, 4, 33, 0), y = tensor_f32(2, 4, 0);
    struct k3_tensor bad = w;
    (void)state;
    bad.dtype = K3_FP8_E4M3; /* no scales */
    assert_int_equal(kern_linear(&(struct linear_args){&x, &bad, &y, 0}, s), -1);
    bad.dtype = K3_U8;
    assert_int_equal(kern_linear(&(struct linear_args){&x, &bad, &y, 0}, s), -1);
    assert_int_equal(errno, EINVAL);
    bad = w;
    bad.cols = 32;
    assert_int_equal(kern_linear(&(struct linear_args){&x, &bad, &y, 0}, s), -1);
    bad = w;
    bad.scale = y.data;
    bad.dtype = K3_MXFP4; /* 33 is not whole blocks */
    assert_int_equal(kern_linear(&(struct linear_args){&x, &bad, &y, 0}, s), -1);
    bad.dtype = K3_MXFP8;
    assert_int_equal(kern_linear(&(struct linear_args){&x, &bad, &y, 0}, s), -1);
    errno = 0;
    bad.stride = 48; /* nor is 48 */
    struct k3_tensor block = x;
    block.cols = bad.cols = 32;
    assert_int_equal(kern_linear(&(struct linear_args){&block, &bad, &y, 0}, s), -1);
    assert_int_equal(errno, EINVAL);
    assert_int_equal(kern_linear(&(struct linear_args){&x, &w, &y, 0}, s), 0);
    assert_null(kern_stream_create("abacus", 1));
    assert_int_equal(errno, ENOTSUP);
    assert_null(kern_stream_create("cpu", 0));
    assert_int_equal(errno, EINVAL);
    kern_stream_destroy(NULL);
    kern_stream_destroy(s);
    tensor_free(&x);
    tensor_free(&w);
    tensor_free(&y);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matches_the_reference),       cmocka_unit_test(takes_many_rows_and_wide_ones),
        cmocka_unit_test(takes_empty_shards),          cmocka_unit_test(decodes_every_byte_and_scale),
        cmocka_unit_test(takes_a_part_of_the_columns), cmocka_unit_test(decodes_every_code_of_e4m3),
        cmocka_unit_test(large_tiles_are_as_few_rows), cmocka_unit_test(refuses_what_it_cannot_do),
    };
    check_seed();
    return cmocka_run_group_tests_name("linear", tests, NULL, NULL);
}
