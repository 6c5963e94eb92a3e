/* add_test.c - y += x */
#include "kernels/test/check.h"

struct sum {
    struct k3_tensor x, y0;
};

static int run(void *arg, struct k3_stream *s, int64_t t0, int64_t t1, const struct k3_tensor *y, float *state)
{
    struct sum *a = arg;
    struct k3_tensor x = tensor_rows(&a->x, t0, t1), y0 = tensor_rows(&a->y0, t0, t1);
    (void)state;
    tensor_copy(y, &y0);
    return kern_add(&(struct add_args){&x, y}, s);
}

static double exact(void *arg, int64_t t, int64_t c, double expected)
{
    (void)arg, (void)t, (void)c, (void)expected;
    return 0;
}

static void matches_the_reference(void **state)
{
    static const int64_t cols[] = {1, 16, 77};
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        struct sum a = {tensor_random(4, cols[i], 1, -1, 1), tensor_random(4, cols[i], 0, -1, 1)};
        check_operation(&(struct check){.arg = &a, .units = 4, .cols = cols[i], .run = run, .bound = exact});
        tensor_free(&a.x);
        tensor_free(&a.y0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(matches_the_reference)};
    check_seed();
    return cmocka_run_group_tests_name("add", tests, NULL, NULL);
}
