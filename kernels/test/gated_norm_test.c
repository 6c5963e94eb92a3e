/* gated_norm_test.c - the norm a head and its gate, in place too */
#include "kernels/test/check.h"

struct gated {
    struct k3_tensor o, gate, w;
    int in_place;
};

static int run(void *arg, struct k3_stream *s, int64_t t0, int64_t t1, const struct k3_tensor *y, float *state)
{
    struct gated *a = arg;
    struct k3_tensor o = tensor_rows(&a->o, t0, t1), gate = tensor_rows(&a->gate, t0, t1);
    (void)state;
    if (a->in_place)
        tensor_copy(y, &o);
    return kern_gated_norm(&(struct gated_norm_args){a->in_place ? y : &o, &gate, &a->w, y, 1e-5f}, s);
}

static double bound(void *arg, int64_t t, int64_t c, double expected)
{
    (void)arg, (void)t, (void)c;
    return (bound_dot(128, 0.5) + (6 + 8 + 1) * U) * fabs(expected);
}

static void matches_the_reference(void **state)
{
    (void)state;
    for (int heads = 0; heads < 4; heads++) {
        struct gated a = {tensor_random(7, heads * 128, 5, -9, 9), tensor_random(7, heads * 128, 0, -9, 9),
                          tensor_random(1, 128, 0, -2, 2), heads % 2};
        check_operation(&(struct check){.arg = &a, .units = 7, .cols = heads * 128, .run = run, .bound = bound});
        tensor_free(&a.o);
        tensor_free(&a.gate);
        tensor_free(&a.w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(matches_the_reference)};
    check_seed();
    return cmocka_run_group_tests_name("gated_norm", tests, NULL, NULL);
}
