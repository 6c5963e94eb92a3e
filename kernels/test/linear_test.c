/* linear_test.c - products with F32, BF16 and MXFP4 weights; the MXFP4 code itself */
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
    return bound_dot(p->x.cols, magnitude) + (check_rounds_to_bf16() && p->w.dtype != K3_F32 ? 0x1p-8 * magnitude : 0);
}

static void product(enum k3_dtype dtype, int64_t rows, int64_t in, int64_t out, int accumulate)
{
    struct product p = {.x = tensor_random(rows, in, random_below(2) ? 5 : 8, -1, 1),
                        .w = tensor_weights(dtype, out, in,
                                            dtype == K3_MXFP4 ? 64
                                            : random_below(2) ? 3
                                                              : 8),
                        .y0 = tensor_random(rows, out, 0, -1, 1),
                        .accumulate = accumulate};
    check_operation(&(struct check){.arg = &p, .units = rows, .cols = out, .run = run, .bound = bound});
    tensor_free(&p.x);
    tensor_free(&p.w);
    tensor_free(&p.y0);
}

static void matches_the_reference(void **state)
{
    static const enum k3_dtype dtypes[] = {K3_F32, K3_BF16, K3_MXFP4};
    static const int64_t rows[] = {1, 2, 3, 9}, outs[] = {1, 5, 37}, ins[] = {1, 31, 32, 96, 100, 1024, 1056, 2085};
    (void)state;
    for (size_t d = 0; d < 3; d++)
        for (size_t r = 0; r < 4; r++)
            for (size_t i = 0; i < 8; i++)
                if (dtypes[d] != K3_MXFP4 || ins[i] % 32 == 0)
                    product(dtypes[d], rows[r], ins[i], outs[(r + i) % 3], (int)(r + i) % 2);
}

/* More rows than one tile, and more than the packed rows of x have room for. */
static void takes_many_rows_and_wide_ones(void **state)
{
    (void)state;
    product(K3_BF16, 261, 40, 7, 0);
    product(K3_MXFP4, 258, 1088, 4, 1);
    product(K3_BF16, 9, 33800, 5, 0);
    product(K3_BF16, 17, 1552, 300, 1);
    product(K3_BF16, 150, 800, 200, 0);
    product(K3_MXFP4, 70, 800, 150, 0);
    product(K3_F32, 65, 100, 40, 1);
}

static void takes_empty_shards(void **state)
{
    (void)state;
    product(K3_BF16, 3, 0, 5, 0);
    product(K3_BF16, 3, 0, 5, 1);
    product(K3_BF16, 3, 64, 0, 0);
    product(K3_MXFP4, 2, 0, 3, 0);
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
        if (!check_has(backends[b]))
            continue;
        struct k3_stream *s = kern_stream_create(backends[b], 1);
        for (int scale = 0; scale < 256; scale++)
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

static void refuses_what_it_cannot_do(void **state)
{
    struct k3_stream *s = kern_stream_create("cpu", 1);
    struct k3_tensor x = tensor_random(2, 33, 0, -1, 1), w = tensor_weights(K3_F32, 4, 33, 0), y = tensor_f32(2, 4, 0);
    struct k3_tensor bad = w;
    (void)state;
    bad.dtype = K3_FP8_E4M3;
    assert_int_equal(kern_linear(&(struct linear_args){&x, &bad, &y, 0}, s), -1);
    assert_int_equal(errno, EINVAL);
    bad = w;
    bad.cols = 32;
    assert_int_equal(kern_linear(&(struct linear_args){&x, &bad, &y, 0}, s), -1);
    bad = w;
    bad.dtype = K3_MXFP4; /* 33 is not whole blocks */
    assert_int_equal(kern_linear(&(struct linear_args){&x, &bad, &y, 0}, s), -1);
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
        cmocka_unit_test(matches_the_reference),     cmocka_unit_test(takes_many_rows_and_wide_ones),
        cmocka_unit_test(takes_empty_shards),        cmocka_unit_test(decodes_every_byte_and_scale),
        cmocka_unit_test(refuses_what_it_cannot_do),
    };
    check_seed();
    return cmocka_run_group_tests_name("linear", tests, NULL, NULL);
}
