/* fmath_test.c - exp, tanh and sigmoid on lanes against libm in fp64, over all exponents of fp32 */
#include "kernels/cpu/fmath.h"
#include "kernels/test/check.h"

#include <stdio.h>

/* Units in the last place of an fp32 result near y, with subnormal spacing below 2^-126. */
static double ulp(double y)
{
    int e;
    frexp(y, &e);
    return ldexp(1, (e < -125 ? -125 : e) - 24);
}

static double sigmoid(double x)
{
    return x < 0 ? exp(x) / (1 + exp(x)) : 1 / (1 + exp(-x));
}

static void holds(const char *name, void (*apply)(float *x), double (*exact)(double), double allowed)
{
    double worst = 0;
    float at = 0;
    uint32_t bits = random_bits() % 1009;
    for (int64_t left = ((int64_t)1 << 32) / 1009 / LANES; left > 0; left--) {
        float x[LANES], y[LANES];
        for (int i = 0; i < LANES; i++, bits += 1009)
            memcpy(&x[i], &bits, sizeof bits);
        memcpy(y, x, sizeof y);
        apply(y);
        for (int i = 0; i < LANES; i++) {
            double e = exact(x[i]);
            if (isnan(x[i])) {
                assert_true(isnan(y[i]));
                continue;
            }
            if (fabs(e) > 0x1.ffffffp127) {
                assert_true(isinf(y[i]));
                continue;
            }
            double error = fabs(y[i] - e) / ulp(e);
            at = error > worst ? x[i] : at;
            worst = error > worst ? error : worst;
        }
    }
    printf("# %s: %.2f ulp at %.9g\n", name, worst, at);
    assert_true(worst <= allowed);
}

#define APPLY(name)                                                                                                    \
    static void apply_##name(float *x)                                                                                 \
    {                                                                                                                  \
        vec_store(x, vec_##name(vec_load(x)));                                                                         \
    }
APPLY(exp)
APPLY(tanh)
APPLY(sigmoid)

static void errors_are_a_few_ulp(void **state)
{
    (void)state;
    holds("exp", apply_exp, exp, 2);
    holds("tanh", apply_tanh, tanh, 4);
    holds("sigmoid", apply_sigmoid, sigmoid, 4);
}

static void exp_of_zero_is_one_and_far_below_is_zero(void **state)
{
    float x[LANES] = {0, -0.0f, -INFINITY, -200, INFINITY, -104, 89, 1e30f};
    (void)state;
    apply_exp(x);
    assert_true(x[0] == 1 && x[1] == 1 && x[2] == 0 && x[3] == 0 && isinf(x[4]) && x[5] == 0 && isinf(x[6]) &&
                isinf(x[7]));
}

int main(void)
{
    /* Not made here: that alone may take instructions which this machine has to be asked for first. */
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(errors_are_a_few_ulp),
        cmocka_unit_test(exp_of_zero_is_one_and_far_below_is_zero),
    };
#ifdef __AVX512F__
    if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512dq") ||
        !__builtin_cpu_supports("avx512bw") || !__builtin_cpu_supports("avx512vl")) {
        printf("1..0 # SKIP this machine has no AVX-512\n");
        return 0;
    }
#elif defined(__AVX2__)
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) {
        printf("1..0 # SKIP this machine has no AVX2\n");
        return 0;
    }
#endif
    check_seed();
    return cmocka_run_group_tests_name("fmath", tests, NULL, NULL);
}
