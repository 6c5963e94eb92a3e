/* conv_test.c - the short convolution over packed sequences; cut anywhere it gives the same bits */
#include "kernels/test/check.h"

enum { SEQS = 6 };
static const int32_t begin[SEQS + 1] = {0, 1, 2, 4, 4, 9, 30};
static const int32_t slot[SEQS] = {3, 0, 5, 1, 4, 2};
static const int64_t pos[SEQS] = {17, 0, 9, 3, 0, 100};

struct filter {
    struct k3_tensor x, w;
    float *before;
    struct kern_batch batch;
};

static int run(void *arg, struct k3_stream *s, int64_t u0, int64_t u1, const struct k3_tensor *y, float *after)
{
    struct filter *f = arg;
    int64_t size = 3 * f->x.cols;
    struct kern_batch b = batch_part(&f->batch, u0, u1);
    struct k3_tensor x = tensor_rows(&f->x, begin[u0], begin[u1]);
    float *state = malloc((size_t)(6 * size) * sizeof *state);
    memcpy(state, f->before, (size_t)(6 * size) * sizeof *state);
    int rc = kern_conv(&(struct conv_args){&x, &f->w, y, state, &b}, s);
    assert_int_equal(kern_sync(s), 0);
    for (int64_t u = u0; u < u1; u++)
        memcpy(after + (u - u0) * size, state + slot[u] * size, (size_t)size * sizeof *state);
    free(state);
    return rc;
}

/* Four terms of at most 1, then SiLU, whose slope is below 1.1 and which rounds by 8 units. */
static double bound(void *arg, int64_t t, int64_t c, double expected)
{
    (void)arg, (void)t, (void)c;
    return 1.1 * 4 * 4 * U + 8 * U * fabs(expected);
}

static double exact(void *arg, int64_t u, int64_t j, double expected)
{
    (void)arg, (void)u, (void)j, (void)expected;
    return 0;
}

static void matches_the_reference(void **state)
{
    static const int64_t channels[] = {1, 8, 65, 200};
    (void)state;
    for (size_t i = 0; i < 4; i++) {
        int64_t n = channels[i], size = 3 * n;
        struct filter f = {.x = tensor_random(begin[SEQS], n, 2, -1, 1),
                           .w = tensor_random(n, 4, 1, -1, 1),
                           .before = malloc((size_t)(6 * size) * sizeof(float)),
                           .batch = {.rows = begin[SEQS], .seqs = SEQS, .begin = begin, .slot = slot, .pos = pos}};
        for (int64_t j = 0; j < 6 * size; j++)
            f.before[j] = (float)random_uniform(-1, 1);
        for (int64_t j = 0; j < size; j++)
            f.before[slot[1] * size + j] = f.before[slot[4] * size + j] = NAN;
        check_operation(&(struct check){.arg = &f,
                                        .units = SEQS,
                                        .begin = begin,
                                        .cols = n,
                                        .state = size,
                                        .run = run,
                                        .bound = bound,
                                        .state_bound = exact});
        tensor_free(&f.x);
        tensor_free(&f.w);
        free(f.before);
    }
}

static void cuts_leave_no_trace(void **state)
{
    enum { ROWS = 20, N = 70 };
    static const char *const backends[] = {"ref", "cpu", "cpu-plain"};
    struct k3_tensor x = tensor_random(ROWS, N, 0, -1, 1), w = tensor_random(N, 4, 0, -1, 1);
    (void)state;
    for (int b = 0; b < 3; b++) {
        struct k3_stream *s = kern_stream_create(backends[b], 1);
        struct k3_tensor y[2] = {tensor_f32(ROWS, N, 0), tensor_f32(ROWS, N, 0)};
        for (int way = 0; way < 2; way++) {
            float kept[3 * N];
            int32_t zero = 0;
            memset(kept, 0xff, sizeof kept);
            for (int64_t t = 0, n; t < ROWS; t += n) {
                n = way == 0 ? ROWS : 1 + random_below(5);
                n = t + n < ROWS ? n : ROWS - t;
                int32_t rows[2] = {0, (int32_t)n};
                struct kern_batch batch = {.rows = (int32_t)n, .seqs = 1, .begin = rows, .slot = &zero, .pos = &t};
                struct k3_tensor x_part = tensor_rows(&x, t, t + n), y_part = tensor_rows(&y[way], t, t + n);
                assert_int_equal(kern_conv(&(struct conv_args){&x_part, &w, &y_part, kept, &batch}, s), 0);
            }
        }
        assert_memory_equal(y[0].data, y[1].data, sizeof(float) * ROWS * N);
        tensor_free(&y[0]);
        tensor_free(&y[1]);
        kern_stream_destroy(s);
    }
    tensor_free(&x);
    tensor_free(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matches_the_reference),
        cmocka_unit_test(cuts_leave_no_trace),
    };
    check_seed();
    return cmocka_run_group_tests_name("conv", tests, NULL, NULL);
}
