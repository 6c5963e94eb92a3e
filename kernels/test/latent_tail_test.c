/* latent_tail_test.c - the end of a mixture's layer, with and without the norm, its matrices in each dtype */
#include "kernels/test/check.h"

struct layer {
    struct k3_tensor sum, norm, up, gate, linear, down;
    int with_norm;
    int64_t mine; /* first column of the sum that goes up */
    struct k3_tensor magnitude;
};

static struct k3_tensor copy(const struct k3_tensor *t, int64_t t0, int64_t t1)
{
    struct k3_tensor from = tensor_rows(t, t0, t1), to = tensor_f32(t1 - t0, t->cols, 0);
    tensor_copy(&to, &from);
    return to;
}

static int run(void *arg, struct k3_stream *s, int64_t t0, int64_t t1, const struct k3_tensor *y, float *state)
{
    struct layer *l = arg;
    struct k3_tensor sum = copy(&l->sum, t0, t1), gate = copy(&l->gate, t0, t1), mine = sum;
    struct k3_tensor linear = tensor_rows(&l->linear, t0, t1);
    (void)state;
    mine.data = (float *)sum.data + l->mine;
    mine.cols = l->up.cols;
    struct latent_tail_args a = {
        .norm = {.x = &sum, .w = l->with_norm ? &l->norm : NULL, .y = &sum, .eps = 1e-5f},
        .up = {.x = &mine, .w = &l->up, .y = y},
        .situ = {.gate = &gate, .up = &linear, .y = &gate, .beta = 4, .linear_beta = 25},
        .down = {.x = &gate, .w = &l->down, .y = y, .accumulate = 1},
    };
    int rc = kern_latent_tail(&a, s);
    assert_int_equal(kern_sync(s), 0);
    tensor_free(&sum);
    tensor_free(&gate);
    return rc;
}

/* Both factors of a product are off by a few units: the norm's sum of squares, SiTU's functions, FP8's scale. */
static double bound(void *arg, int64_t t, int64_t c, double expected)
{
    struct layer *l = arg;
    double relative = bound_dot(l->up.cols + l->down.cols, 1) + bound_dot(l->sum.cols, 0.5) + 25 * U;
    (void)expected;
    return (relative + (check_rounds_to_bf16() ? 0x1p-8 : 0)) * ref_get(&l->magnitude, t, c);
}

static void measure(struct layer *l)
{
    for (int64_t t = 0; t < l->sum.rows; t++) {
        double square = 0, root = 1;
        for (int64_t i = 0; i < l->sum.cols; i++)
            square += ref_get(&l->sum, t, i) * ref_get(&l->sum, t, i);
        if (l->with_norm)
            root = sqrt(square / (double)l->sum.cols + 1e-5);
        for (int64_t o = 0; o < l->up.rows; o++) {
            double sum = 0;
            for (int64_t i = 0; i < l->up.cols; i++) {
                double w = l->with_norm ? ref_get(&l->norm, 0, l->mine + i) : 1;
                sum += fabs(ref_get(&l->up, o, i) * w * ref_get(&l->sum, t, l->mine + i) / root);
            }
            for (int64_t i = 0; i < l->down.cols; i++)
                sum += fabs(ref_get(&l->down, o, i) *
                            ref_situ_of(ref_get(&l->gate, t, i), ref_get(&l->linear, t, i), 4, 25));
            ref_put(&l->magnitude, t, o, sum);
        }
    }
}

static void tail(int64_t rows, int64_t latent, int64_t mine, int64_t width, int64_t shared, int64_t hidden,
                 int with_norm, enum k3_dtype dtype)
{
    struct layer l = {.sum = tensor_random(rows, latent, 0, -2, 2),
                      .norm = tensor_weights(K3_BF16, 1, latent, 0),
                      .up = tensor_weights(dtype, hidden, width, 0),
                      .gate = tensor_random(rows, shared, 0, -3, 3),
                      .linear = tensor_random(rows, shared, 4, -3, 3),
                      .down = tensor_weights(dtype, hidden, shared, 0),
                      .with_norm = with_norm,
                      .mine = mine,
                      .magnitude = tensor_f32(rows, hidden, 0)};
    measure(&l);
    check_operation(&(struct check){.arg = &l, .units = rows, .cols = hidden, .run = run, .bound = bound});
    tensor_free(&l.sum);
    tensor_free(&l.norm);
    tensor_free(&l.up);
    tensor_free(&l.gate);
    tensor_free(&l.linear);
    tensor_free(&l.down);
    tensor_free(&l.magnitude);
}

static void matches_the_reference(void **state)
{
    (void)state;
    tail(1, 64, 0, 64, 32, 40, 1, K3_BF16);
    tail(5, 3584, 224, 224, 384, 72, 1, K3_BF16);
    tail(3, 96, 32, 64, 33, 17, 0, K3_BF16);
    tail(80, 128, 64, 32, 32, 24, 1, K3_BF16);
    tail(5, 3584, 224, 224, 384, 72, 1, K3_FP8_E4M3);
    tail(3, 96, 32, 64, 33, 17, 0, K3_FP8_E4M3);
    tail(80, 128, 64, 32, 48, 24, 1, K3_FP8_E4M3);
    tail(5, 3584, 224, 224, 384, 72, 1, K3_MXFP8);
    tail(80, 128, 64, 32, 96, 24, 0, K3_MXFP8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(matches_the_reference)};
    check_seed();
    return cmocka_run_group_tests_name("latent_tail", tests, NULL, NULL);
}
