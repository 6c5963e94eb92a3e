/* attnres_test.c - the mixture of 0 ... 16 snapshots; against a direct transcription of SPEC 4.3 as well */
#include "kernels/test/check.h"

struct mix {
    struct k3_tensor p, snapshot[K3_MAX_SNAPSHOTS], norm, proj;
    struct k3_tensor branch, out; /* of joined() alone */
    int snapshots;
};

static int run(void *arg, struct k3_stream *s, int64_t t0, int64_t t1, const struct k3_tensor *y, float *state)
{
    struct mix *m = arg;
    struct k3_tensor p = tensor_rows(&m->p, t0, t1), snapshot[K3_MAX_SNAPSHOTS];
    (void)state;
    for (int i = 0; i < m->snapshots; i++)
        snapshot[i] = tensor_rows(&m->snapshot[i], t0, t1);
    return kern_attnres(&(struct attnres_args){&p, snapshot, m->snapshots, &m->norm, &m->proj, y, 1e-5f, NULL, NULL},
                        s);
}

/* Roundings are independent, so they add up as the root of their number; six deviations are allowed.  With factors
 * uniform in [-1, 1), a score is a sum of n products of deviation 3^-3/2 on sixteen lanes, over a root mean square of
 * 3^-1/2; its error moves the mixture of values below 1 by twice as much. */
static double bound(void *arg, int64_t t, int64_t c, double expected)
{
    struct mix *m = arg;
    double n = (double)m->p.cols, dot = sqrt(n / 27);
    double score = 6 * U * (sqrt(n / 16 + 8) * dot + 4 * dot) / sqrt(1. / 3);
    (void)t, (void)c, (void)expected;
    return m->snapshots == 0 ? 0 : 2 * score + (m->snapshots + 12) * U;
}

/* Candidates as a list, the weights from the definition. */
static double transcribed(const struct mix *m, int64_t t, int64_t d)
{
    double top = 0, bottom = 0;
    for (int i = 0; i <= m->snapshots; i++) {
        const struct k3_tensor *v = i < m->snapshots ? &m->snapshot[i] : &m->p;
        double mean = 0, s = 0;
        for (int64_t j = 0; j < v->cols; j++)
            mean += pow(ref_get(v, t, j), 2) / (double)v->cols;
        for (int64_t j = 0; j < v->cols; j++)
            s += ref_get(v, t, j) / sqrt(mean + (double)1e-5f) * ref_get(&m->norm, 0, j) * ref_get(&m->proj, 0, j);
        top += exp(s) * ref_get(v, t, d);
        bottom += exp(s);
    }
    return top / bottom;
}

static void mix(int64_t rows, int64_t cols, int snapshots, enum k3_dtype dtype)
{
    struct mix m = {.p = tensor_random(rows, cols, 2, -1, 1),
                    .norm = tensor_weights(dtype, 1, cols, 0),
                    .proj = tensor_weights(dtype, 1, cols, 0),
                    .snapshots = snapshots};
    struct k3_tensor y = tensor_f32(rows, cols, 0);
    struct k3_stream *s = kern_stream_create("ref", 1);
    for (int i = 0; i < snapshots; i++)
        m.snapshot[i] = tensor_random(rows, cols, i, -1, 1);
    check_operation(&(struct check){.arg = &m, .units = rows, .cols = cols, .run = run, .bound = bound});
    assert_int_equal(run(&m, s, 0, rows, &y, NULL), 0);
    for (int64_t t = 0; t < rows; t++)
        for (int64_t d = 0; d < cols; d++) {
            double e = snapshots == 0 ? ref_get(&m.p, t, d) : transcribed(&m, t, d);
            assert_true(fabs(ref_get(&y, t, d) - e) <= U * fabs(e) + 1e-12);
        }
    kern_stream_destroy(s);
    tensor_free(&y);
    tensor_free(&m.p);
    tensor_free(&m.norm);
    tensor_free(&m.proj);
    for (int i = 0; i < snapshots; i++)
        tensor_free(&m.snapshot[i]);
}

/* With the branch that joins p, and the norm behind the mixture; p is left behind. */
static int run_joined(void *arg, struct k3_stream *s, int64_t t0, int64_t t1, const struct k3_tensor *y, float *after)
{
    struct mix *m = arg;
    struct k3_tensor before = tensor_rows(&m->p, t0, t1), p = tensor_f32(t1 - t0, m->p.cols, 1);
    struct k3_tensor snapshot[K3_MAX_SNAPSHOTS], branch = tensor_rows(&m->branch, t0, t1);
    tensor_copy(&p, &before);
    for (int i = 0; i < m->snapshots; i++)
        snapshot[i] = tensor_rows(&m->snapshot[i], t0, t1);
    struct attnres_args a = {&p, snapshot, m->snapshots, &m->norm, &m->proj, y, 1e-5f, &m->out, &branch};
    int rc = kern_attnres(&a, s);
    assert_int_equal(kern_sync(s), 0);
    for (int64_t t = 0; t < t1 - t0; t++)
        for (int64_t d = 0; d < p.cols; d++)
            after[t * p.cols + d] = (float)ref_get(&p, t, d);
    tensor_free(&p);
    return rc;
}

/* The mixture's error is at most twice that of bound(), p being twice as large, and is divided by a root mean square
 * that is above 1/8; the norm itself adds what a sum of n squares and four roundings do. */
static double bound_joined(void *arg, int64_t t, int64_t c, double expected)
{
    struct mix *m = arg;
    double mixture = m->snapshots == 0 ? U : 2 * bound(arg, t, c, 0);
    return 8 * mixture * fabs(ref_get(&m->out, 0, c)) + (bound_dot(m->p.cols, 0.5) + 6 * U) * fabs(expected);
}

static double exact(void *arg, int64_t u, int64_t j, double expected)
{
    (void)arg, (void)u, (void)j, (void)expected;
    return 0;
}

static void joined(int64_t rows, int64_t cols, int snapshots)
{
    struct mix m = {.p = tensor_random(rows, cols, 2, -1, 1),
                    .norm = tensor_weights(K3_BF16, 1, cols, 0),
                    .proj = tensor_weights(K3_BF16, 1, cols, 0),
                    .branch = tensor_random(rows, cols, 0, -1, 1),
                    .out = tensor_weights(K3_BF16, 1, cols, 0),
                    .snapshots = snapshots};
    for (int i = 0; i < snapshots; i++)
        m.snapshot[i] = tensor_random(rows, cols, i, -1, 1);
    check_operation(&(struct check){.arg = &m,
                                    .units = rows,
                                    .cols = cols,
                                    .state = cols,
                                    .run = run_joined,
                                    .bound = bound_joined,
                                    .state_bound = exact});
    tensor_free(&m.p);
    tensor_free(&m.norm);
    tensor_free(&m.proj);
    tensor_free(&m.branch);
    tensor_free(&m.out);
    for (int i = 0; i < snapshots; i++)
        tensor_free(&m.snapshot[i]);
}

static void the_branch_joins_and_a_norm_follows(void **state)
{
    (void)state;
    joined(1, 64, 0);
    joined(3, 131, 1);
    joined(5, 1000, 8);
    joined(80, 1000, 8);
}

static void matches_the_reference(void **state)
{
    (void)state;
    mix(3, 40, 0, K3_BF16);
    mix(1, 8, 1, K3_F32);
    mix(5, 131, 2, K3_BF16);
    mix(4, 256, 8, K3_BF16);
    mix(80, 1000, 8, K3_BF16); /* rows enough for another way of cuda, with the same bits */
    mix(2, 9, K3_MAX_SNAPSHOTS, K3_F32);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(matches_the_reference),
                                       cmocka_unit_test(the_branch_joins_and_a_norm_follows)};
    check_seed();
    return cmocka_run_group_tests_name("attnres", tests, NULL, NULL);
}
