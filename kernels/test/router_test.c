/* router_test.c - choices, ties, groups, rows that are not finite */
#include "kernels/test/check.h"

struct routing {
    struct k3_tensor logits, bias;
    int topk, groups, topk_group, renormalize;
};

/* y holds the ids, then the weights. */
static int run(void *arg, struct k3_stream *s, int64_t t0, int64_t t1, const struct k3_tensor *y, float *state)
{
    struct routing *r = arg;
    struct k3_tensor logits = tensor_rows(&r->logits, t0, t1);
    int32_t *id = malloc((size_t)((t1 - t0) * r->topk) * sizeof *id);
    float *weight = malloc((size_t)((t1 - t0) * r->topk) * sizeof *weight);
    (void)state;
    int rc = kern_router(
        &(struct router_args){&logits, &r->bias, id, weight, r->topk, r->groups, r->topk_group, r->renormalize, 2.5f},
        s);
    assert_int_equal(kern_sync(s), 0);
    for (int64_t t = 0; t < t1 - t0; t++)
        for (int j = 0; j < r->topk; j++) {
            ref_put(y, t, j, id[t * r->topk + j]);
            ref_put(y, t, r->topk + j, weight[t * r->topk + j]);
        }
    free(id);
    free(weight);
    return rc;
}

static double bound(void *arg, int64_t t, int64_t c, double expected)
{
    struct routing *r = arg;
    (void)t;
    return c < r->topk ? 0 : (2 * 8 + r->topk + 4) * U * fabs(expected);
}

/* Logits are a shuffled ladder with steps far above rounding, so that ids must agree exactly. */
static void routing(int64_t rows, int experts, int topk, int groups, int topk_group)
{
    struct routing r = {
        tensor_random(rows, experts, 3, 0, 0), tensor_random(1, experts, 0, 0, 0), topk, groups, topk_group, topk % 2};
    for (int64_t t = 0; t < rows; t++)
        for (int e = 0; e < experts; e++) {
            int other = random_below(e + 1);
            ref_put(&r.logits, t, e, ref_get(&r.logits, t, other));
            ref_put(&r.logits, t, other, 6.0 * e / experts - 3);
        }
    for (int e = 0; e < experts; e++)
        ref_put(&r.bias, 0, e, 1 + e * 1e-5);
    check_operation(&(struct check){.arg = &r, .units = rows, .cols = 2 * topk, .run = run, .bound = bound});
    tensor_free(&r.logits);
    tensor_free(&r.bias);
}

static void matches_the_reference(void **state)
{
    (void)state;
    routing(1, 1, 1, 1, 1);
    routing(3, 16, 4, 1, 1);
    routing(5, 100, 7, 1, 1);
    routing(2, 896, 16, 1, 1);
    routing(6, 16, 4, 2, 1);
    routing(6, 64, 8, 8, 4);
    routing(4, 8, 3, 8, 5);
}

static void one_row(const char *backend, const float *logits, const float *bias, int experts, int topk, int groups,
                    int32_t *id, float *weight)
{
    struct k3_stream *s = kern_stream_create(backend, 1);
    struct k3_tensor l = {.data = (void *)logits, .dtype = K3_F32, .rows = 1, .cols = experts, .stride = experts};
    struct k3_tensor b = l;
    b.data = (void *)bias;
    assert_int_equal(kern_router(&(struct router_args){&l, &b, id, weight, topk, groups, 1, 0, 1}, s), 0);
    kern_stream_destroy(s);
}

static void chooses_by_bias_and_weighs_without(void **state)
{
    static const char *const backends[] = {"ref", "cpu", "cpu-plain"};
    static const float equal[8] = {0, 0, 0, 0, 0, 0, 0, 0}, bias[8] = {0, 0, 1, 0, 0, 2, 0, 0};
    static const float logits[8] = {3, 3, -9, -9, 2.9f, 2.8f, 2.7f, 2.6f}, none[8] = {0};
    (void)state;
    for (int b = 0; b < 3; b++) {
        int32_t id[4];
        float weight[4];
        one_row(backends[b], equal, bias, 8, 4, 1, id, weight);
        assert_true(id[0] == 5 && id[1] == 2 && id[2] == 0 && id[3] == 1); /* ties: the lower index */
        for (int j = 0; j < 4; j++)
            assert_true(weight[j] == 0.5f);
        one_row(backends[b], logits, none, 8, 2, 1, id, weight);
        assert_true(id[0] == 0 && id[1] == 1);
        one_row(backends[b], logits, none, 8, 2, 2, id, weight); /* two groups: 0.95 + 0.95 beats 0.95 + 0.94 */
        assert_true(id[0] == 0 && id[1] == 1);
        one_row(backends[b], logits, bias, 8, 2, 2, id, weight); /* 5 brings its group in, and 4 with it */
        assert_true(id[0] == 5 && id[1] == 4);
    }
}

static void rows_that_are_not_finite_stay_in_range(void **state)
{
    static const char *const backends[] = {"ref", "cpu", "cpu-plain"};
    static const float bad[3] = {NAN, INFINITY, -INFINITY};
    (void)state;
    for (int b = 0; b < 3; b++)
        for (int i = 0; i < 3; i++)
            for (int groups = 1; groups <= 2; groups++) {
                float logits[10] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, bias[10] = {0}, weight[3];
                int32_t id[3];
                logits[random_below(10)] = bad[i];
                one_row(backends[b], logits, bias, 10, 3, groups, id, weight);
                for (int j = 0; j < 3; j++)
                    assert_true(id[j] == j && isnan(weight[j]));
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matches_the_reference),
        cmocka_unit_test(chooses_by_bias_and_weighs_without),
        cmocka_unit_test(rows_that_are_not_finite_stay_in_range),
    };
    check_seed();
    return cmocka_run_group_tests_name("router", tests, NULL, NULL);
}
