/* rmsnorm_test.c - RMS norm, in place too, of rows of any length */
#include "kernels/test/check.h"

struct norm {
    struct k3_tensor x, w;
    int in_place;
};

static int run(void *arg, struct k3_stream *s, int64_t t0, int64_t t1, const struct k3_tensor *y, float *state)
{
    struct norm *a = arg;
    struct k3_tensor x = tensor_rows(&a->x, t0, t1);
    (void)state;
    if (a->in_place)
        tensor_copy(y, &x);
    return kern_rmsnorm(&(struct rmsnorm_args){a->in_place ? y : &x, &a->w, y, 1e-5f}, s);
}

/* The mean of squares is a sum of positive terms, and only its root counts. */
static double bound(void *arg, int64_t t, int64_t c, double expected)
{
    struct norm *a = arg;
    (void)t, (void)c;
    return (bound_dot(a->x.cols, 0.5) + 6 * U) * fabs(expected);
}

static void matches_the_reference(void **state)
{
    static const int64_t cols[] = {1, 7, 8, 31, 128, 1001};
    (void)state;
    for (size_t i = 0; i < 6; i++)
        for (int in_place = 0; in_place < 2; in_place++) {
            double size = pow(10, random_uniform(-3, 3));
            struct norm a = {tensor_random(5, cols[i], 3, -size, size),
                             tensor_weights(in_place ? K3_F32 : K3_BF16, 1, cols[i], 0), in_place};
            check_operation(&(struct check){.arg = &a, .units = 5, .cols = cols[i], .run = run, .bound = bound});
            tensor_free(&a.x);
            tensor_free(&a.w);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(matches_the_reference)};
    check_seed();
    return cmocka_run_group_tests_name("rmsnorm", tests, NULL, NULL);
}
