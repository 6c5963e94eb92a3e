/* kda_test.c - the gated delta rule over packed sequences, from empty and from kept states, token by token and in
 * chunks */
#include "kernels/test/check.h"

enum { MOST_SEQS = 9, CHUNK = 16, STATE = 128 * 128 };

static const struct steps {
    int seqs, slots, longest;
    int32_t begin[MOST_SEQS + 1], slot[MOST_SEQS];
    int64_t pos[MOST_SEQS];
    int32_t prefill[MOST_SEQS];
} recurrent = {5, 6, 70, {0, 1, 71, 71, 74, 139}, {3, 0, 5, 1, 4}, {17, 0, 9, 0, 100}, {0}},
  chunked = {9,
             10,
             200,
             {0, 1, 16, 32, 49, 112, 115, 179, 244, 444},
             {2, 0, 5, 1, 4, 9, 3, 6, 8},
             {0, 64, 128, 0, 64, 77, 640, 0, 64},
             {1, 79, 144, 17, 127, 0, 2000, 65, 264}};

struct delta {
    const struct steps *steps;
    struct k3_tensor q, k, v, g, beta;
    float *before;
    int heads;
    double off; /* of a decay over a chunk, in U */
    struct kern_batch batch;
};

static int run(void *arg, struct k3_stream *s, int64_t u0, int64_t u1, const struct k3_tensor *y, float *after)
{
    struct delta *d = arg;
    const struct steps *st = d->steps;
    int64_t size = (int64_t)d->heads * STATE, r0 = st->begin[u0], r1 = st->begin[u1];
    struct kern_batch b = batch_part(&d->batch, u0, u1);
    struct k3_tensor q = tensor_rows(&d->q, r0, r1), k = tensor_rows(&d->k, r0, r1), v = tensor_rows(&d->v, r0, r1);
    struct k3_tensor g = tensor_rows(&d->g, r0, r1), beta = tensor_rows(&d->beta, r0, r1);
    float *state = malloc((size_t)(st->slots * size) * sizeof *state);
    memcpy(state, d->before, (size_t)(st->slots * size) * sizeof *state);
    int rc = kern_kda(&(struct kda_args){&q, &k, &v, &g, &beta, y, state, d->heads, &b}, s);
    assert_int_equal(kern_sync(s), 0);
    for (int64_t u = u0; u < u1; u++)
        memcpy(after + (u - u0) * size, state + st->slot[u] * size, (size_t)size * sizeof *state);
    for (int i = 0; i < st->slots; i++) {
        int used = 0;
        for (int64_t u = u0; u < u1; u++)
            used = used || st->slot[u] == i;
        if (!used) /* another sequence's */
            assert_memory_equal(state + i * size, d->before + i * size, (size_t)size * sizeof *state);
    }
    free(state);
    return rc;
}

/* Roundings are independent, so they add up as the root of their number; six deviations are allowed.  A value of the
 * state stays near 1 and is rounded three times a token; in the chunked form its decays are off, too, and cuda makes
 * each factor of a chunk's products of two BF16 numbers, which has a relative deviation of 2^-17.  o is its product
 * with q, whose norm is 128^-1/2. */
static double state_bound(void *arg, int64_t u, int64_t j, double expected)
{
    struct delta *d = arg;
    double chunks = check_rounds_to_bf16() && d->steps != &recurrent ? d->steps->longest / CHUNK + 1 : 0;
    (void)u, (void)j, (void)expected;
    return 6 * ((sqrt(3 * d->steps->longest) + d->off) * U + sqrt(chunks) * 0x1p-17);
}

static double bound(void *arg, int64_t t, int64_t c, double expected)
{
    return state_bound(arg, t, c, expected) / sqrt(128);
}

/* A chunk's decays are made of sums G of up to CHUNK gates, rounded by U |G| at each token.  The rounding at a token
 * reaches what came before that token and has decayed by its e^g at least, and less of it with every token that
 * follows. */
static double chunk_off(const struct k3_tensor *g)
{
    double lowest = 0, decay2 = 0, sum = 0;
    for (int64_t t = 0; t < g->rows; t++)
        for (int64_t c = 0; c < g->cols; c++) {
            lowest = fmin(lowest, ref_get(g, t, c));
            decay2 += exp(2 * ref_get(g, t, c)) / (double)(g->rows * g->cols);
        }
    for (int i = 1; i < CHUNK; i++)
        sum += pow(decay2, i);
    return CHUNK * -lowest * sqrt(sum);
}

/* gates of [low, high), of which every other token's are 0 if `stop` says so; size_qk: of q and k before they are
 * normalised, at 1e-3 the eps under the root counts. */
static struct delta delta(const struct steps *st, int heads, double low, double high, int stop, double size_qk)
{
    int64_t rows = st->begin[st->seqs], cols = heads * 128, size = (int64_t)heads * STATE;
    struct delta d = {.steps = st,
                      .q = tensor_random(rows, cols, 4, -size_qk, size_qk),
                      .k = tensor_random(rows, cols, 0, -size_qk, size_qk),
                      .v = tensor_random(rows, cols, 8, -1, 1),
                      .g = tensor_random(rows, cols, 1, low, high),
                      .beta = tensor_random(rows, heads, 2, 0, 1),
                      .before = malloc((size_t)(st->slots * size) * sizeof(float)),
                      .heads = heads,
                      .batch = {.rows = (int32_t)rows,
                                .seqs = st->seqs,
                                .begin = st->begin,
                                .slot = st->slot,
                                .pos = st->pos,
                                .prefill = st->prefill}};
    for (int64_t t = 1; t < rows && stop; t += 2)
        memset((float *)d.g.data + t * d.g.stride, 0, (size_t)cols * sizeof(float));
    d.off = st == &chunked ? chunk_off(&d.g) : 0;
    for (int64_t i = 0; i < st->slots * size; i++)
        d.before[i] = (float)random_uniform(-0.1, 0.1);
    for (int u = 0; u < st->seqs; u++) /* what their slots held is not read */
        for (int64_t i = 0; i < size && st->pos[u] == 0; i++)
            d.before[st->slot[u] * size + i] = NAN;
    return d;
}

static void delta_free(struct delta *d)
{
    tensor_free(&d->q);
    tensor_free(&d->k);
    tensor_free(&d->v);
    tensor_free(&d->g);
    tensor_free(&d->beta);
    free(d->before);
}

static void check_delta(struct delta d)
{
    check_operation(&(struct check){.arg = &d,
                                    .units = d.steps->seqs,
                                    .begin = d.steps->begin,
                                    .cols = d.heads * 128,
                                    .state = (int64_t)d.heads * STATE,
                                    .run = run,
                                    .bound = bound,
                                    .state_bound = state_bound});
    delta_free(&d);
}

static void token_by_token(void **state)
{
    (void)state;
    check_delta(delta(&recurrent, 1, -5, 0, 0, 1));
    check_delta(delta(&recurrent, 3, -0.01, 0, 0, 1));
    check_delta(delta(&recurrent, 2, -5, -4.9, 0, 1e-3));
}

static void in_chunks(void **state)
{
    (void)state;
    check_delta(delta(&chunked, 1, -5, 0, 0, 1));
    check_delta(delta(&chunked, 2, -0.01, 0, 0, 1));
    check_delta(delta(&chunked, 1, -5, -4.99, 0, 1e-3));
    check_delta(delta(&chunked, 1, -5, -4.99, 1, 1));
}

/* A prompt of 200 tokens in one step gives the bits of the same prompt cut at multiples of the block. */
static void cut_on(const char *backend)
{
    static const struct steps whole = {1, 1, 200, {0, 200}, {0}, {64}, {264}};
    struct delta d = delta(&whole, 2, -5, 0, 0, 1);
    struct k3_tensor expected = tensor_f32(200, 256, 0), y = tensor_f32(200, 256, 0);
    float *after = malloc(sizeof(float) * 2 * STATE), *cut = malloc(sizeof(float) * 2 * STATE);
    struct k3_stream *s = kern_stream_create(backend, 1);
    assert_int_equal(run(&d, s, 0, 1, &expected, after), 0);
    for (int first = 64; first <= 192; first += 64)
        for (int second = first; second <= 192; second += 64) {
            const int32_t end[4] = {0, first, second, 200};
            memcpy(cut, d.before, sizeof(float) * 2 * STATE);
            for (int i = 0; i < 3; i++) {
                const int32_t begin[2] = {0, end[i + 1] - end[i]}, slot = 0, prompt = 264;
                const int64_t pos = 64 + end[i];
                struct kern_batch all = {begin[1], 1, begin, &slot, &pos, NULL, 0, &prompt}, b = batch_part(&all, 0, 1);
                struct k3_tensor q = tensor_rows(&d.q, end[i], end[i + 1]), k = tensor_rows(&d.k, end[i], end[i + 1]);
                struct k3_tensor v = tensor_rows(&d.v, end[i], end[i + 1]), g = tensor_rows(&d.g, end[i], end[i + 1]);
                struct k3_tensor beta = tensor_rows(&d.beta, end[i], end[i + 1]),
                                 o = tensor_rows(&y, end[i], end[i + 1]);
                assert_int_equal(kern_kda(&(struct kda_args){&q, &k, &v, &g, &beta, &o, cut, 2, &b}, s), 0);
                assert_int_equal(kern_sync(s), 0);
            }
            assert_memory_equal(y.data, expected.data, sizeof(float) * 200 * 256);
            assert_memory_equal(cut, after, sizeof(float) * 2 * STATE);
        }
    kern_stream_destroy(s);
    tensor_free(&expected);
    tensor_free(&y);
    free(after);
    free(cut);
    delta_free(&d);
}

static void cuts_leave_no_trace(void **state)
{
    (void)state;
    cut_on("cpu");
    if (check_has("cuda"))
        cut_on("cuda");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(token_by_token),
        cmocka_unit_test(in_chunks),
        cmocka_unit_test(cuts_leave_no_trace),
    };
    check_seed();
    return cmocka_run_group_tests_name("kda", tests, NULL, NULL);
}
