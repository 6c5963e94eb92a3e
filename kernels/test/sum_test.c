/* sum_test.c - parts are added in their order */
#include "kernels/test/check.h"

/* One unit: its rows are the parts, its y the only row. */
static int run(void *arg, struct k3_stream *s, int64_t u0, int64_t u1, const struct k3_tensor *y, float *state)
{
    (void)u0, (void)u1, (void)state;
    return kern_sum(&(struct sum_args){arg, y}, s);
}

/* A chain of as many roundings as there are parts. */
static double bound(void *arg, int64_t t, int64_t c, double expected)
{
    struct k3_tensor *x = arg;
    double magnitude = 0;
    (void)t, (void)expected;
    for (int64_t p = 0; p < x->rows; p++)
        magnitude += fabs(ref_get(x, p, c));
    return (double)x->rows * U * magnitude;
}

static void matches_the_reference(void **state)
{
    static const int64_t parts[] = {1, 2, 16}, cols[] = {1, 77, 1000};
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        struct k3_tensor x = tensor_random(parts[i], cols[i], 5, -1, 1);
        check_operation(&(struct check){.arg = &x, .units = 1, .cols = cols[i], .run = run, .bound = bound});
        tensor_free(&x);
    }
}

/* 2^24 + 1 - 2^24 is 0 in this order and 1 in the other. */
static void adds_the_first_part_first(void **state)
{
    static const char *const backends[] = {"cpu", "cpu-plain", "cuda"};
    static const float value[3] = {0x1p24f, 1, -0x1p24f};
    (void)state;
    for (int b = 0; b < 3; b++) {
        struct k3_stream *s = kern_stream_create(backends[b], 1);
        if (s == NULL)
            continue;
        struct k3_tensor x = tensor_f32(3, 1, 0), y = tensor_f32(1, 1, 0);
        for (int p = 0; p < 3; p++)
            ref_put(&x, p, 0, value[p]);
        assert_int_equal(kern_sum(&(struct sum_args){&x, &y}, s), 0);
        assert_int_equal(kern_sync(s), 0);
        assert_true(ref_get(&y, 0, 0) == 0);
        tensor_free(&x);
        tensor_free(&y);
        kern_stream_destroy(s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matches_the_reference),
        cmocka_unit_test(adds_the_first_part_first),
    };
    check_seed();
    return cmocka_run_group_tests_name("sum", tests, NULL, NULL);
}
