/* kda_test.c - the gated delta rule over packed sequences, from empty and from kept states */
#include "kernels/test/check.h"

enum { SEQS = 5 };
static const int32_t begin[SEQS + 1] = {0, 1, 71, 71, 74, 139};
static const int32_t slot[SEQS] = {3, 0, 5, 1, 4};
static const int64_t pos[SEQS] = {17, 0, 9, 0, 100};

struct delta {
    struct k3_tensor q, k, v, g, beta;
    float *before;
    int heads, slots;
    struct kern_batch batch;
};

static int run(void *arg, struct k3_stream *s, int64_t u0, int64_t u1, const struct k3_tensor *y, float *after)
{
    struct delta *d = arg;
    int64_t size = (int64_t)d->heads * 128 * 128, r0 = begin[u0], r1 = begin[u1];
    int32_t part_begin[SEQS + 1];
    struct kern_batch b = batch_part(&d->batch, u0, u1, part_begin);
    struct k3_tensor q = tensor_rows(&d->q, r0, r1), k = tensor_rows(&d->k, r0, r1), v = tensor_rows(&d->v, r0, r1);
    struct k3_tensor g = tensor_rows(&d->g, r0, r1), beta = tensor_rows(&d->beta, r0, r1);
    float *state = malloc((size_t)(d->slots * size) * sizeof *state);
    memcpy(state, d->before, (size_t)(d->slots * size) * sizeof *state);
    int rc = kern_kda(&(struct kda_args){&q, &k, &v, &g, &beta, y, state, d->heads, &b}, s);
    for (int64_t u = u0; u < u1; u++)
        memcpy(after + (u - u0) * size, state + slot[u] * size, (size_t)size * sizeof *state);
    for (int i = 0; i < d->slots; i++) {
        int used = 0;
        for (int64_t u = u0; u < u1; u++)
            used = used || slot[u] == i;
        if (!used) /* another sequence's */
            assert_memory_equal(state + i * size, d->before + i * size, (size_t)size * sizeof *state);
    }
    free(state);
    return rc;
}

/* Roundings are independent, so they add up as the root of their number; six deviations are allowed.  A value of the
 * state stays near 1 and is rounded three times a token, for at most 70 tokens.  o is its product with q, whose norm is
 * 128^-1/2. */
static double state_bound(void *arg, int64_t u, int64_t j, double expected)
{
    (void)arg, (void)u, (void)j, (void)expected;
    return 6 * sqrt(3 * 70) * U;
}

static double bound(void *arg, int64_t t, int64_t c, double expected)
{
    return state_bound(arg, t, c, expected) / sqrt(128);
}

/* size: of q and k before they are normalised; at 1e-3 the eps under the root counts. */
static void delta(int heads, double g_low, double g_high, double size_qk)
{
    int64_t rows = begin[SEQS], cols = heads * 128, size = (int64_t)heads * 128 * 128;
    struct delta d = {.q = tensor_random(rows, cols, 4, -size_qk, size_qk),
                      .k = tensor_random(rows, cols, 0, -size_qk, size_qk),
                      .v = tensor_random(rows, cols, 8, -1, 1),
                      .g = tensor_random(rows, cols, 1, g_low, g_high),
                      .beta = tensor_random(rows, heads, 2, 0, 1),
                      .heads = heads,
                      .slots = 6,
                      .batch = {.rows = (int32_t)rows, .seqs = SEQS, .begin = begin, .slot = slot, .pos = pos}};
    d.before = malloc((size_t)(d.slots * size) * sizeof(float));
    for (int64_t i = 0; i < d.slots * size; i++)
        d.before[i] = (float)random_uniform(-0.1, 0.1);
    for (int64_t i = 0; i < size; i++) /* sequences 1 and 3 start at position 0: what their slots held is not read */
        d.before[slot[1] * size + i] = d.before[slot[3] * size + i] = NAN;
    check_operation(&(struct check){.arg = &d,
                                    .units = SEQS,
                                    .begin = begin,
                                    .cols = cols,
                                    .state = size,
                                    .run = run,
                                    .bound = bound,
                                    .state_bound = state_bound});
    tensor_free(&d.q);
    tensor_free(&d.k);
    tensor_free(&d.v);
    tensor_free(&d.g);
    tensor_free(&d.beta);
    free(d.before);
}

static void matches_the_reference(void **state)
{
    (void)state;
    delta(1, -5, 0, 1);
    delta(3, -0.01, 0, 1);
    delta(2, -5, -4.9, 1e-3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(matches_the_reference)};
    check_seed();
    return cmocka_run_group_tests_name("kda", tests, NULL, NULL);
}
