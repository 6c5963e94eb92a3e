/* columns_test.c - uneven and empty parts come side by side, in order */
#include "kernels/test/check.h"

enum { MOST = K3_MAX_PARTS };

/* `parts` parts of these widths, over and over, in rows of y that are wider than the columns. */
static void lay(struct k3_stream *s, int64_t rows, const int64_t *width, int widths, int parts)
{
    float *data[MOST];
    int64_t begin[MOST + 1] = {0};

    for (int p = 0; p < parts; p++) {
        int64_t n = width[p % widths];
        begin[p + 1] = begin[p] + n;
        data[p] = malloc((size_t)(rows * n + 1) * sizeof(float));
        for (int64_t i = 0; i < rows * n; i++)
            data[p][i] = (float)random_uniform(-1, 1);
    }
    struct k3_tensor y = tensor_f32(rows, begin[parts], 3);
    assert_int_equal(kern_columns(&(struct columns_args){(const float *const *)data, begin, parts, &y}, s), 0);
    assert_int_equal(kern_sync(s), 0);
    for (int64_t t = 0; t < rows; t++) {
        for (int p = 0; p < parts; p++)
            for (int64_t i = 0; i < width[p % widths]; i++)
                assert_true(ref_get(&y, t, begin[p] + i) == (double)data[p][t * width[p % widths] + i]);
        assert_true(isnan(ref_get(&y, t, begin[parts])));
    }
    for (int p = 0; p < parts; p++)
        free(data[p]);
    tensor_free(&y);
}

static void lie_side_by_side(void **state)
{
    static const char *const backends[] = {"ref", "cpu", "cpu-plain", "cuda"};
    static const int64_t even[] = {224}, uneven[] = {3, 0, 1, 700}, lead[] = {0, 5};
    (void)state;
    for (int b = 0; b < 4; b++) {
        if (!check_has(backends[b]))
            continue;
        struct k3_stream *s = kern_stream_create(backends[b], 1);
        for (int64_t rows = 1; rows <= 9; rows += 4) {
            lay(s, rows, even, 1, 16);
            lay(s, rows, even, 1, 1);
            lay(s, rows, uneven, 4, 7);
            lay(s, rows, uneven, 4, MOST);
            lay(s, rows, lead, 2, 5);
        }
        kern_stream_destroy(s);
    }
}

static void unsound_parts_are_refused(void **state)
{
    struct k3_stream *s = kern_stream_create("ref", 1);
    struct k3_tensor y = tensor_f32(2, 4, 0);
    const float *part[2] = {y.data, y.data};
    static const int64_t shrinking[] = {0, 5, 4}, late[] = {1, 2, 4}, little[] = {0, 1, 3};
    static const int64_t *const bad[] = {shrinking, late, little};
    (void)state;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(kern_columns(&(struct columns_args){part, bad[i], 2, &y}, s), -1);
        assert_int_equal(errno, EINVAL);
    }
    assert_int_equal(kern_columns(&(struct columns_args){part, shrinking, 0, &y}, s), -1);
    assert_int_equal(kern_columns(&(struct columns_args){part, shrinking, MOST + 1, &y}, s), -1);
    tensor_free(&y);
    kern_stream_destroy(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lie_side_by_side),
        cmocka_unit_test(unsound_parts_are_refused),
    };
    check_seed();
    return cmocka_run_group_tests_name("columns", tests, NULL, NULL);
}
