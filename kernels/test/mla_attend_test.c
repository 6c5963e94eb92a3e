/* mla_attend_test.c - append, then attention over scattered pages, absorbed and expanded, which are equal */
#include "kernels/test/check.h"

enum { MOST_SEQS = 4, PAGE = 16 };
static const int32_t slot[MOST_SEQS] = {0, 1, 2, 3};

static const struct steps {
    int seqs, pages; /* of a sequence */
    int32_t begin[MOST_SEQS + 1];
    int64_t pos[MOST_SEQS];
    int32_t prefill[MOST_SEQS];
} near_start = {4, 20, {0, 1, 70, 71, 73}, {0, 3, 129, 190}, {0}}, far_on = {2, 1100, {0, 1, 3}, {17500, 16383}, {0}},
  /* Expanded: all rows, the first rows of a prompt's, none of a prompt's, none of an answer's; positions reach past two
   * spans of cpu/mla_expand.c. */
    prompts = {4, 35, {0, 64, 207, 210, 213}, {448, 128, 256, 190}, {512, 271, 259, 0}};
static const float scale = 0.07216878364870322f; /* 192^-1/2 */

struct attention {
    const struct steps *steps;
    struct k3_tensor q, kv_b;
    float *cache;
    int heads;
    struct kern_batch batch;
};

static int run(void *arg, struct k3_stream *s, int64_t u0, int64_t u1, const struct k3_tensor *y, float *state)
{
    struct attention *a = arg;
    struct kern_batch b = batch_part(&a->batch, u0, u1);
    struct kern_latents cache = check_latents(s, a->cache, a->steps->seqs * a->steps->pages * PAGE, PAGE);
    struct k3_tensor q = tensor_rows(&a->q, a->steps->begin[u0], a->steps->begin[u1]);
    (void)state;
    int rc = kern_mla_attend(&(struct mla_attend_args){&q, &a->kv_b, y, &cache, &b, a->heads, scale}, s);
    assert_int_equal(kern_sync(s), 0);
    free(cache.data);
    return rc;
}

static const float *latent(const struct attention *a, int i, int64_t p)
{
    return a->cache + (a->batch.pages[i * a->steps->pages + p / PAGE] * PAGE + p % PAGE) * K3_CACHE_DIM;
}

/* Roundings are independent, so they add up as the root of their number; six deviations are allowed.  With factors
 * uniform in [-1, 1), a product's deviation is 1/3: qa_d is a sum of 128 products, a score's dot one of 576 products of
 * qa_d and c_d on eight lanes, a value of UV c one of 512.  A score's error moves o by twice as much, relatively.
 * Expanded, a score is made of the same products, added in another order.  cuda rounds q, qa, the weights of positions
 * and cbar to BF16, which has a relative deviation of 2^-9. */
static double bound(void *arg, int64_t t, int64_t c, double expected)
{
    const struct attention *a = arg;
    double qa = sqrt(128) / 3, dot = sqrt(576. / 3) * qa, value = sqrt(512) / 3, n = (double)a->steps->pages * PAGE;
    double score = 6 * U * (sqrt(512. / 3) * sqrt(128) * qa + sqrt(576. / 8 + 8) * dot) * scale;
    double rounded = check_rounds_to_bf16() ? 6 * 0x1p-9 : 0;
    (void)t, (void)c, (void)expected;
    return (2 * (score + sqrt(2) * rounded * dot * scale) + sqrt(2) * rounded + 6 * U * sqrt(n + 512. / 8)) * value;
}

/* The published form: keys and values of every head expanded from the latents (SPEC 4.5 step 3 and 4). */
static void expanded(const struct attention *a, const struct k3_tensor *y)
{
    const struct steps *st = a->steps;
    for (int i = 0; i < st->seqs; i++)
        for (int64_t t = st->begin[i]; t < st->begin[i + 1]; t++)
            for (int h = 0; h < a->heads; h++) {
                double sum = 0, o[128] = {0};
                for (int64_t p = 0; p <= st->pos[i] + t - st->begin[i]; p++) {
                    const float *c = latent(a, i, p);
                    double score = 0;
                    for (int d = 0; d < 64; d++)
                        score += ref_get(&a->q, t, h * 192 + 128 + d) * c[512 + d];
                    double v[128];
                    for (int d = 0; d < 128; d++) {
                        double kn = 0;
                        v[d] = 0;
                        for (int l = 0; l < 512; l++) {
                            kn += ref_get(&a->kv_b, h * 256 + d, l) * c[l];
                            v[d] += ref_get(&a->kv_b, h * 256 + 128 + d, l) * c[l];
                        }
                        score += ref_get(&a->q, t, h * 192 + d) * kn;
                    }
                    double w = exp(score * scale);
                    sum += w;
                    for (int d = 0; d < 128; d++)
                        o[d] += w * v[d];
                }
                for (int d = 0; d < 128; d++)
                    ref_put(y, t, h * 128 + d, o[d] / sum);
            }
}

static float random_bf16(void)
{
    float f = (float)random_uniform(-1, 1);
    uint32_t bits;
    memcpy(&bits, &f, sizeof f);
    bits &= 0xffff0000u;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static struct attention attention(const struct steps *st, int heads)
{
    int count = st->seqs * st->pages;
    int32_t *pages = malloc((size_t)count * sizeof *pages), rows = st->begin[st->seqs];
    struct attention a = {.steps = st,
                          .q = tensor_random(rows, heads * 192, 4, -1, 1),
                          .kv_b = tensor_weights(K3_BF16, heads * 256, 512, 16),
                          .cache = malloc(sizeof(float) * (size_t)count * PAGE * K3_CACHE_DIM),
                          .heads = heads,
                          .batch = {rows, st->seqs, st->begin, slot, st->pos, pages, st->pages, st->prefill}};
    for (int i = 0; i < count; i++)
        pages[i] = i;
    for (int i = count - 1; i > 0; i--) {
        int j = random_below(i + 1), kept = pages[i];
        pages[i] = pages[j];
        pages[j] = kept;
    }
    memset(a.cache, 0xff, sizeof(float) * (size_t)count * PAGE * K3_CACHE_DIM);
    for (int i = 0; i < st->seqs; i++)
        for (int64_t p = 0; p < st->pos[i] + st->begin[i + 1] - st->begin[i]; p++)
            for (int d = 0; d < K3_CACHE_DIM; d++)
                ((float *)latent(&a, i, p))[d] = random_bf16();
    return a;
}

static void attention_free(struct attention *a)
{
    tensor_free(&a->q);
    tensor_free(&a->kv_b);
    free(a->cache);
    free((void *)a->batch.pages);
}

static void attend(const struct steps *st, int heads)
{
    struct attention a = attention(st, heads);
    check_operation(&(struct check){
        .arg = &a, .units = st->seqs, .begin = st->begin, .cols = heads * 128, .run = run, .bound = bound});
    attention_free(&a);
}

static void matches_the_reference(void **state)
{
    (void)state;
    attend(&near_start, 1);
    if (check_emulated()) {
        attend(&prompts, 1);
        return;
    }
    attend(&near_start, 3);
    attend(&near_start, 7);
    attend(&near_start, 18);
    attend(&far_on, 2);
    attend(&prompts, 1);
    attend(&prompts, 3);
}

static void absorbed_equals_expanded(void **state)
{
    struct attention a = attention(&near_start, 1);
    int32_t rows = near_start.begin[near_start.seqs];
    struct k3_stream *s = kern_stream_create("ref", 1);
    struct k3_tensor got = tensor_f32(rows, 128, 0), expected = tensor_f32(rows, 128, 0);
    (void)state;
    assert_int_equal(run(&a, s, 0, near_start.seqs, &got, NULL), 0);
    expanded(&a, &expected);
    for (int64_t t = 0; t < rows; t++)
        for (int d = 0; d < 128; d++) /* both in fp64, rounded once */
            assert_true(fabs(ref_get(&got, t, d) - ref_get(&expected, t, d)) <=
                        2 * U * fabs(ref_get(&expected, t, d)) + 1e-7);
    kern_stream_destroy(s);
    tensor_free(&got);
    tensor_free(&expected);
    attention_free(&a);
}

/* A prompt in one step gives the bits of the same prompt in many, whatever pages it got: cut anywhere as rows of an
 * answer, at multiples of the block as a prompt's. */
static void prompt_in_pieces(const char *backend, int32_t prompt)
{
    enum { ROWS = 275, HEADS = 3, STRIDE = ROWS / PAGE + 1 };
    struct k3_stream *s = kern_stream_create(backend, 2);
    struct k3_tensor q = tensor_random(ROWS, HEADS * 192, 0, -1, 1),
                     kv_b = tensor_weights(K3_BF16, HEADS * 256, 512, 0);
    struct k3_tensor kv = tensor_random(ROWS, K3_CACHE_DIM, 0, -1, 1), w = tensor_weights(K3_BF16, 1, 512, 0);
    struct k3_tensor y[2] = {tensor_f32(ROWS, HEADS * 128, 0), tensor_f32(ROWS, HEADS * 128, 0)};
    float *nothing = malloc(sizeof(float) * STRIDE * PAGE * K3_CACHE_DIM);
    memset(nothing, 0xff, sizeof(float) * STRIDE * PAGE * K3_CACHE_DIM);
    for (int way = 0; way < 2; way++) {
        struct kern_latents cache = check_latents(s, nothing, STRIDE * PAGE, PAGE);
        int32_t pages[STRIDE];
        for (int i = 0; i < STRIDE; i++)
            pages[i] = way == 0 ? i : (i * 7 + 3) % STRIDE; /* STRIDE is 18, which 7 does not divide */
        for (int64_t t = 0, n; t < ROWS; t += n) {
            n = way == 0 ? ROWS : prompt > 0 ? 64 * (1 + random_below(2)) : 1 + random_below(40);
            n = t + n < ROWS ? n : ROWS - t;
            int32_t rows[2] = {0, (int32_t)n};
            struct kern_batch all = {(int32_t)n, 1, rows, slot, &t, pages, STRIDE, &prompt};
            struct kern_batch b = batch_part(&all, 0, 1);
            struct k3_tensor kv_part = tensor_rows(&kv, t, t + n), q_part = tensor_rows(&q, t, t + n);
            struct k3_tensor y_part = tensor_rows(&y[way], t, t + n);
            assert_int_equal(kern_mla_append(&(struct mla_append_args){&kv_part, &w, &cache, &b, 1e-6f}, s), 0);
            assert_int_equal(
                kern_mla_attend(&(struct mla_attend_args){&q_part, &kv_b, &y_part, &cache, &b, HEADS, 0.0722f}, s), 0);
            assert_int_equal(kern_sync(s), 0);
        }
        free(cache.data);
    }
    assert_memory_equal(y[0].data, y[1].data, sizeof(float) * ROWS * HEADS * 128);
    kern_stream_destroy(s);
    free(nothing);
    tensor_free(&q);
    tensor_free(&kv_b);
    tensor_free(&kv);
    tensor_free(&w);
    tensor_free(&y[0]);
    tensor_free(&y[1]);
}

static void cuts_and_pages_leave_no_trace(void **state)
{
    (void)state;
    static const char *const backends[] = {"cpu", "cuda"};
    for (int i = 0; i < 2; i++) {
        if (!check_has(backends[i]) || (check_emulated() && i == 0))
            continue;
        prompt_in_pieces(backends[i], 0);
        for (int turn = 0; turn < (check_emulated() ? 1 : 4); turn++)
            prompt_in_pieces(backends[i], 275);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matches_the_reference),
        cmocka_unit_test(absorbed_equals_expanded),
        cmocka_unit_test(cuts_and_pages_leave_no_trace),
    };
    check_seed();
    return cmocka_run_group_tests_name("mla_attend", tests, NULL, NULL);
}
