/* mla_append_test.c - a token's values land in its page and nowhere else */
#include "kernels/test/check.h"

enum { SEQS = 3, PAGE = 8, STRIDE = 4, PAGES = 12 };
static const int32_t begin[SEQS + 1] = {0, 1, 11, 12};
static const int32_t slot[SEQS] = {0, 1, 2};
static const int64_t pos[SEQS] = {0, 5, 31};
static const int32_t pages[SEQS * STRIDE] = {7, 0, 1, 2, 3, 11, 5, 6, 4, 8, 9, 10};

struct rows {
    struct k3_tensor kv, w;
    struct kern_batch batch;
};

static int run(void *arg, struct k3_stream *s, int64_t u0, int64_t u1, const struct k3_tensor *y, float *state)
{
    static float nothing[PAGES * PAGE * K3_CACHE_DIM];
    struct rows *a = arg;
    int64_t written = 0;
    struct kern_batch b = batch_part(&a->batch, u0, u1);
    struct k3_tensor kv = tensor_rows(&a->kv, begin[u0], begin[u1]);
    (void)state;
    memset(nothing, 0xff, sizeof nothing);
    struct kern_latents cache = check_latents(s, nothing, PAGES * PAGE, PAGE);
    int rc = kern_mla_append(&(struct mla_append_args){&kv, &a->w, &cache, &b, 1e-6f}, s);
    assert_int_equal(kern_sync(s), 0);
    for (int64_t u = u0; u < u1; u++)
        for (int64_t t = begin[u]; t < begin[u + 1]; t++) {
            int64_t p = pos[u] + t - begin[u];
            for (int d = 0; d < K3_CACHE_DIM; d++)
                ref_put(y, t - begin[u0], d, check_latent(&cache, pages[u * STRIDE + p / PAGE] * PAGE + p % PAGE, d));
        }
    for (int64_t i = 0; i < PAGES * PAGE; i++)
        for (int d = 0; d < K3_CACHE_DIM; d++)
            written += !isnan(check_latent(&cache, i, d));
    assert_int_equal(written, (begin[u1] - begin[u0]) * K3_CACHE_DIM);
    free(cache.data);
    return rc;
}

static double bound(void *arg, int64_t t, int64_t c, double expected)
{
    (void)arg, (void)t;
    double rounding = check_rounds_to_bf16() ? 0x1p-8 : 0; /* the cache keeps BF16 */
    return (c >= K3_LATENT_DIM ? rounding : bound_dot(512, 0.5) + 6 * U + rounding) * fabs(expected);
}

static void matches_the_reference(void **state)
{
    struct rows a = {tensor_random(begin[SEQS], K3_CACHE_DIM, 7, -3, 3),
                     tensor_weights(K3_BF16, 1, 512, 0),
                     {begin[SEQS], SEQS, begin, slot, pos, pages, STRIDE, NULL}};
    (void)state;
    check_operation(
        &(struct check){.arg = &a, .units = SEQS, .begin = begin, .cols = K3_CACHE_DIM, .run = run, .bound = bound});
    tensor_free(&a.kv);
    tensor_free(&a.w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(matches_the_reference)};
    check_seed();
    return cmocka_run_group_tests_name("mla_append", tests, NULL, NULL);
}
