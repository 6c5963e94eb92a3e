/* kda_block_test.c - a whole KDA layer between its matrix products: prompts and single tokens in one step */
#include "kernels/test/check.h"

enum { SEQS = 7, SLOTS = 8, ROWS = 240, STATE = 128 * 128, KEPT = 3, LONGEST = 150 };
static const int32_t begin[SEQS + 1] = {0, 1, 2, 66, 70, 85, 90, ROWS};
static const int32_t slot[SEQS] = {4, 0, 2, 7, 1, 3, 6};
static const int64_t pos[SEQS] = {9, 64, 0, 0, 128, 31, 192};
static const int32_t prefill[SEQS] = {0, 65, 300, 0, 143, 0, 4000};

struct layer {
    struct k3_tensor x[3], w[3], low, decay, r, a_log, dt_bias, b, gate, norm;
    float *kept[3], *before;
    int heads;
    struct kern_batch batch;
};

/* What a sequence leaves behind: its state, then the inputs that each convolution keeps. */
static int64_t left(const struct layer *l)
{
    return (int64_t)l->heads * (STATE + 3 * KEPT * 128);
}

static float *copy(const float *from, int64_t n)
{
    return memcpy(malloc((size_t)n * sizeof *from), from, (size_t)n * sizeof *from);
}

static int run(void *arg, struct k3_stream *s, int64_t u0, int64_t u1, const struct k3_tensor *y, float *after)
{
    struct layer *l = arg;
    int64_t cols = l->heads * 128, size = (int64_t)l->heads * STATE, kept = KEPT * cols, r0 = begin[u0], r1 = begin[u1];
    struct kern_batch b = batch_part(&l->batch, u0, u1);
    struct k3_tensor x[3], mid[3], given = tensor_rows(&l->r, r0, r1), beta = tensor_rows(&l->b, r0, r1);
    struct k3_tensor gate = tensor_rows(&l->gate, r0, r1), g = tensor_f32(r1 - r0, cols, 4);
    struct k3_tensor made = tensor_f32(r1 - r0, l->heads, 1), r = tensor_f32(r1 - r0, cols, 1);
    struct k3_tensor low = tensor_rows(&l->low, r0, r1);
    struct conv_args conv[3];
    float *state = copy(l->before, SLOTS * size);
    for (int i = 0; i < 3; i++) {
        x[i] = tensor_rows(&l->x[i], r0, r1);
        mid[i] = tensor_f32(r1 - r0, cols, i);
        conv[i] = (struct conv_args){&x[i], &l->w[i], &mid[i], copy(l->kept[i], SLOTS * kept), &b};
    }
    tensor_copy(&r, &given);
    struct kda_block_args a = {
        .decay = {&low, &l->decay, &r, 1},
        .q = conv[0],
        .k = conv[1],
        .v = conv[2],
        .gate = {&r, &l->a_log, &l->dt_bias, &beta, &g, &made, -5},
        .delta = {&mid[0], &mid[1], &mid[2], &g, &made, y, state, l->heads, &b},
        .norm = {y, &gate, &l->norm, y, 1e-5f},
    };
    int rc = kern_kda_block(&a, s);
    assert_int_equal(kern_sync(s), 0);
    for (int64_t u = u0; u < u1; u++) {
        memcpy(after, state + slot[u] * size, (size_t)size * sizeof *after);
        after += size;
        for (int i = 0; i < 3; i++, after += kept)
            memcpy(after, (float *)conv[i].state + slot[u] * kept, (size_t)kept * sizeof *after);
    }
    for (int i = 0; i < 3; i++) {
        free(conv[i].state);
        tensor_free(&mid[i]);
    }
    free(state);
    tensor_free(&g);
    tensor_free(&made);
    tensor_free(&r);
    return rc;
}

/* As in kda_test.c: roundings add up as the root of their number, six deviations are allowed, and cuda makes the
 * factors of a chunk of two BF16 numbers each.  The decay's product (of numbers that are BF16 as they are), the
 * convolution and the gate before add a few units. */
static double state_bound(void *arg, int64_t u, int64_t j, double expected)
{
    const struct layer *l = arg;
    double chunks = check_rounds_to_bf16() && prefill[u] != 0 ? LONGEST / 16 + 1 : 0;
    (void)expected;
    if (j >= l->heads * STATE) /* inputs are only moved */
        return 0;
    return 6 * (sqrt(20 * LONGEST) * U + (prefill[u] != 0 ? 80 * U : 0) + sqrt(chunks) * 0x1p-17);
}

/* The norm brings o to the size of 1, whatever its own: its terms may have cancelled to a 64th of theirs, and their sum
 * is that many times more off. */
static double bound(void *arg, int64_t t, int64_t c, double expected)
{
    int64_t u = 0;
    while (begin[u + 1] <= t)
        u++;
    (void)c;
    return 64 * state_bound(arg, u, 0, expected);
}

static void block(int heads, enum k3_dtype dtype, int64_t low)
{
    int64_t cols = heads * 128, size = (int64_t)heads * STATE;
    struct layer l = {
        .low = tensor_random(ROWS, low, 4, -1, 1),
        .decay = tensor_weights(dtype, cols, low, 0),
        .r = tensor_random(ROWS, cols, 1, -3, 3),
        .a_log = tensor_random(1, heads + 2, 0, -1, 1),
        .dt_bias = tensor_random(1, cols, 0, -2, 2),
        .b = tensor_random(ROWS, heads, 2, -3, 3),
        .gate = tensor_random(ROWS, cols, 4, -3, 3),
        .norm = tensor_random(1, 128, 0, -1, 1),
        .before = malloc((size_t)(SLOTS * size) * sizeof(float)),
        .heads = heads,
        .batch = {.rows = ROWS, .seqs = SEQS, .begin = begin, .slot = slot, .pos = pos, .prefill = prefill}};
    for (int64_t t = 0; t < ROWS; t++)
        for (int64_t i = 0; i < low; i++)
            ref_put(&l.low, t, i, rint(8 * ref_get(&l.low, t, i)) / 8);
    for (int64_t j = 0; j < SLOTS * size; j++)
        l.before[j] = (float)random_uniform(-1, 1);
    for (int i = 0; i < 3; i++) {
        l.x[i] = tensor_random(ROWS, cols, 3 - i, -2, 2);
        l.w[i] = tensor_random(cols, K3_TAPS, i, -1, 1);
        l.kept[i] = malloc((size_t)(SLOTS * KEPT * cols) * sizeof(float));
        for (int64_t j = 0; j < SLOTS * KEPT * cols; j++)
            l.kept[i][j] = (float)random_uniform(-2, 2);
    }
    check_operation(&(struct check){.arg = &l,
                                    .units = SEQS,
                                    .begin = begin,
                                    .cols = cols,
                                    .state = left(&l),
                                    .run = run,
                                    .bound = bound,
                                    .state_bound = state_bound});
    for (int i = 0; i < 3; i++) {
        tensor_free(&l.x[i]);
        tensor_free(&l.w[i]);
        free(l.kept[i]);
    }
    free(l.before);
    tensor_free(&l.low);
    tensor_free(&l.decay);
    tensor_free(&l.r);
    tensor_free(&l.a_log);
    tensor_free(&l.dt_bias);
    tensor_free(&l.b);
    tensor_free(&l.gate);
    tensor_free(&l.norm);
}

static void matches_the_reference(void **state)
{
    (void)state;
    block(1, K3_BF16, 0);
    block(3, K3_BF16, 24);
    block(1, K3_FP8_E4M3, 24);
    block(1, K3_MXFP8, 32);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(matches_the_reference)};
    check_seed();
    return cmocka_run_group_tests_name("kda_block", tests, NULL, NULL);
}
