/* gather_test.c - rows picked by number, numbers out of range refused */
#include "kernels/test/check.h"

static void picks_rows(void **state)
{
    static const char *const backends[] = {"ref", "cpu", "cpu-plain", "cuda"};
    static const int32_t row[] = {4, 0, 4, 2};
    (void)state;
    for (int b = 0; b < 4; b++) {
        if (!check_has(backends[b]))
            continue;
        struct k3_stream *s = kern_stream_create(backends[b], 1);
        struct k3_tensor x = tensor_random(5, 13, 2, -1, 1), y = tensor_f32(4, 13, 3);
        assert_int_equal(kern_gather(&(struct gather_args){&x, check_list(row, 4), &y}, s), 0);
        assert_int_equal(kern_sync(s), 0);
        for (int i = 0; i < 4; i++) {
            for (int d = 0; d < 13; d++)
                assert_true(ref_get(&y, i, d) == ref_get(&x, row[i], d));
            assert_true(isnan(ref_get(&y, i, 13)));
        }
        for (int32_t bad = -1; kern_is_host(s) && bad <= 5; bad += 6) {
            struct k3_tensor one = tensor_rows(&y, 0, 1);
            assert_int_equal(kern_gather(&(struct gather_args){&x, &bad, &one}, s), -1);
            assert_int_equal(errno, EINVAL);
        }
        kern_stream_destroy(s);
        tensor_free(&x);
        tensor_free(&y);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(picks_rows)};
    check_seed();
    return cmocka_run_group_tests_name("gather", tests, NULL, NULL);
}
