/* embed_test.c - rows of the table, zeros outside the shard */
#include "kernels/test/check.h"

struct lookup {
    struct k3_tensor table;
    const int32_t *token;
};

static int run(void *arg, struct k3_stream *s, int64_t t0, int64_t t1, const struct k3_tensor *y, float *state)
{
    struct lookup *l = arg;
    (void)state;
    return kern_embed(&(struct embed_args){check_list(l->token + t0, t1 - t0), &l->table, 100, y}, s);
}

static double exact(void *arg, int64_t t, int64_t c, double expected)
{
    (void)arg, (void)t, (void)c, (void)expected;
    return 0;
}

static void finds_its_rows_and_zeros_elsewhere(void **state)
{
    static const int32_t token[] = {100, 0, 106, 99, 107, 103, INT32_MAX, 100};
    static const int64_t width[] = {1, 8, 77};
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        struct lookup l = {tensor_weights(K3_BF16, 7, width[i], 3), token};
        struct k3_tensor y = tensor_f32(8, width[i], 0);
        struct k3_stream *s = kern_stream_create("ref", 1);
        check_operation(&(struct check){.arg = &l, .units = 8, .cols = width[i], .run = run, .bound = exact});
        assert_int_equal(run(&l, s, 0, 8, &y, NULL), 0);
        for (int t = 0; t < 8; t++)
            for (int64_t d = 0; d < width[i]; d++)
                assert_true(ref_get(&y, t, d) ==
                            (token[t] >= 100 && token[t] < 107 ? ref_get(&l.table, token[t] - 100, d) : 0));
        kern_stream_destroy(s);
        tensor_free(&y);
        tensor_free(&l.table);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(finds_its_rows_and_zeros_elsewhere)};
    check_seed();
    return cmocka_run_group_tests_name("embed", tests, NULL, NULL);
}
