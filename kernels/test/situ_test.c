/* situ_test.c - SiTU over its whole range, in place too */
#include "kernels/test/check.h"

struct activation {
    struct k3_tensor gate, up;
    int in_place;
};

static int run(void *arg, struct k3_stream *s, int64_t t0, int64_t t1, const struct k3_tensor *y, float *state)
{
    struct activation *a = arg;
    struct k3_tensor gate = tensor_rows(&a->gate, t0, t1), up = tensor_rows(&a->up, t0, t1);
    (void)state;
    if (a->in_place)
        tensor_copy(y, &gate);
    return kern_situ(&(struct situ_args){a->in_place ? y : &gate, &up, y, 4, 25}, s);
}

/* tanh, tanh and sigmoid round by at most 4 ulp (8 U) each, their arguments and the products by 1 U each. */
static double bound(void *arg, int64_t t, int64_t c, double expected)
{
    (void)arg, (void)t, (void)c;
    return (3 * 8 + 8) * U * fabs(expected) + 0x1p-120;
}

static void matches_the_reference(void **state)
{
    static const int64_t cols[] = {1, 9, 64, 333};
    static const double range[] = {1e-3, 1, 20, 200};
    (void)state;
    for (size_t i = 0; i < 4; i++)
        for (size_t r = 0; r < 4; r++) {
            struct activation a = {tensor_random(6, cols[i], 1, -range[r], range[r]),
                                   tensor_random(6, cols[i], 0, -range[r], range[r]), (int)r % 2};
            check_operation(&(struct check){.arg = &a, .units = 6, .cols = cols[i], .run = run, .bound = bound});
            tensor_free(&a.gate);
            tensor_free(&a.up);
        }
}

static void passes_nan_on(void **state)
{
    static const char *const backends[] = {"ref", "cpu", "cpu-plain", "cuda"};
    (void)state;
    for (int b = 0; b < 4; b++) {
        if (!check_has(backends[b]))
            continue;
        struct k3_stream *s = kern_stream_create(backends[b], 1);
        struct k3_tensor gate = tensor_random(1, 3, 0, 1, 2), up = tensor_random(1, 3, 0, 1, 2),
                         y = tensor_f32(1, 3, 0);
        ref_put(&gate, 0, 0, NAN);
        ref_put(&up, 0, 2, NAN);
        assert_int_equal(kern_situ(&(struct situ_args){&gate, &up, &y, 4, 25}, s), 0);
        assert_int_equal(kern_sync(s), 0);
        assert_true(isnan(ref_get(&y, 0, 0)) && isfinite(ref_get(&y, 0, 1)) && isnan(ref_get(&y, 0, 2)));
        kern_stream_destroy(s);
        tensor_free(&gate);
        tensor_free(&up);
        tensor_free(&y);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(matches_the_reference), cmocka_unit_test(passes_nan_on)};
    check_seed();
    return cmocka_run_group_tests_name("situ", tests, NULL, NULL);
}
