/* kda_gate_test.c - decays stay inside (-5, 0); a_log is a value a head, however many entries it has */
#include "kernels/test/check.h"

struct gate {
    struct k3_tensor r, a_log, dt_bias, b;
    int in_place;
};

/* y holds g and then beta. */
static int run(void *arg, struct k3_stream *s, int64_t t0, int64_t t1, const struct k3_tensor *y, float *state)
{
    struct gate *a = arg;
    int64_t heads = a->b.cols;
    struct k3_tensor r = tensor_rows(&a->r, t0, t1), b = tensor_rows(&a->b, t0, t1), g = *y, beta = *y;
    (void)state;
    g.cols = heads * 128;
    beta.cols = heads;
    beta.data = (float *)y->data + heads * 128;
    if (a->in_place) {
        tensor_copy(&g, &r);
        tensor_copy(&beta, &b);
    }
    return kern_kda_gate(
        &(struct kda_gate_args){a->in_place ? &g : &r, &a->a_log, &a->dt_bias, a->in_place ? &beta : &b, &g, &beta, -5},
        s);
}

/* An error of the sigmoid's argument x counts by x at most (where sigmoid' x / sigmoid is largest): the rate's exp
 * rounds by 2 ulp, the sum and the product by 1 U each, but for cancellation of r + dt_bias. */
static double bound(void *arg, int64_t t, int64_t c, double expected)
{
    struct gate *a = arg;
    if (c >= a->r.cols)
        return 9 * U * fabs(expected);
    double rate = exp(ref_get(&a->a_log, 0, c / 128));
    double x = rate * (fabs(ref_get(&a->r, t, c)) + fabs(ref_get(&a->dt_bias, 0, c)));
    return (9 + 8 * x) * U * fabs(expected) + 0x1p-120;
}

static void matches_the_reference(void **state)
{
    (void)state;
    for (int heads = 1; heads < 12; heads += 5)
        for (int in_place = 0; in_place < 2; in_place++) {
            struct gate a = {.r = tensor_random(5, heads * 128, 3, -4, 4),
                             .a_log = tensor_random(1, heads + 4, 0, 0, 2.8),
                             .dt_bias = tensor_random(1, heads * 128, 0, -5, 1),
                             .b = tensor_random(5, heads, 1, -6, 6),
                             .in_place = in_place};
            for (int h = heads; h < heads + 4; h++)
                ref_put(&a.a_log, 0, h, NAN);
            check_operation(&(struct check){.arg = &a, .units = 5, .cols = heads * 129, .run = run, .bound = bound});
            tensor_free(&a.r);
            tensor_free(&a.a_log);
            tensor_free(&a.dt_bias);
            tensor_free(&a.b);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(matches_the_reference)};
    check_seed();
    return cmocka_run_group_tests_name("kda_gate", tests, NULL, NULL);
}
