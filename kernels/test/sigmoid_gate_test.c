/* sigmoid_gate_test.c - o times sigmoid(gate), in place too */
#include "kernels/test/check.h"

struct gating {
    struct k3_tensor o, gate;
    int in_place;
};

static int run(void *arg, struct k3_stream *s, int64_t t0, int64_t t1, const struct k3_tensor *y, float *state)
{
    struct gating *a = arg;
    struct k3_tensor o = tensor_rows(&a->o, t0, t1), gate = tensor_rows(&a->gate, t0, t1);
    (void)state;
    if (a->in_place)
        tensor_copy(y, &o);
    return kern_sigmoid_gate(&(struct sigmoid_gate_args){a->in_place ? y : &o, &gate, y}, s);
}

static double bound(void *arg, int64_t t, int64_t c, double expected)
{
    (void)arg, (void)t, (void)c;
    return (8 + 1) * U * fabs(expected) + 0x1p-120;
}

static void matches_the_reference(void **state)
{
    static const int64_t cols[] = {1, 9, 64, 333};
    (void)state;
    for (size_t i = 0; i < 4; i++)
        for (int in_place = 0; in_place < 2; in_place++) {
            double range = in_place ? 3 : 120;
            struct gating a = {tensor_random(6, cols[i], 1, -1, 1), tensor_random(6, cols[i], 0, -range, range),
                               in_place};
            check_operation(&(struct check){.arg = &a, .units = 6, .cols = cols[i], .run = run, .bound = bound});
            tensor_free(&a.o);
            tensor_free(&a.gate);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(matches_the_reference)};
    check_seed();
    return cmocka_run_group_tests_name("sigmoid_gate", tests, NULL, NULL);
}
