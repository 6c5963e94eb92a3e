/* profile_test.c - what a profile counts, and that it changes nothing */
#include "kernels/test/check.h"

#include "kernels/profile.h"

static const struct kern_profile_row *row_of(const struct kern_profile *p, const char *name)
{
    int count;
    const struct kern_profile_row *row = kern_profile_rows(p, &count);
    for (int i = 0; i < count; i++)
        if (strcmp(row[i].name, name) == 0)
            return &row[i];
    return NULL;
}

static void calls_and_their_cost_are_counted_while_it_runs(void **state)
{
    struct k3_stream *s = kern_stream_create("cpu", 2);
    struct kern_profile *p = kern_profile_create();
    struct k3_tensor x = tensor_random(3, 64, 0, -1, 1), w = tensor_weights(K3_MXFP4, 5, 64, 0);
    struct k3_tensor plain = tensor_f32(3, 5, 0), timed = tensor_f32(3, 5, 0);
    const struct linear_args a = {.x = &x, .w = &w, .y = &plain}, b = {.x = &x, .w = &w, .y = &timed};
    (void)state;

    assert_int_equal(kern_linear(&a, s), 0);
    kern_profile_start(p, s);
    assert_int_equal(kern_linear(&b, s), 0);
    assert_int_equal(kern_linear(&b, s), 0);
    kern_profile_stop(p, s);
    assert_int_equal(kern_linear(&b, s), 0);

    const struct kern_profile_row *row = row_of(p, "linear");
    assert_int_equal(row->calls, 2);
    assert_int_equal(row->bytes, 2 * (5 * 64 / 2 + 5 * 2)); /* two codes a byte, a scale for 32 of them */
    assert_int_equal(row->flops, 2 * 2 * 3 * 5 * 64);
    assert_true(row->seconds > 0);
    assert_true(kern_profile_seconds(p) > row->seconds);
    assert_int_equal(row_of(p, "add")->calls, 0);
    assert_memory_equal(plain.data, timed.data, 3 * 5 * sizeof(float));
    kern_profile_reset(p);
    assert_int_equal(row->calls, 0);
    assert_int_equal(row->bytes, 0);

    tensor_free(&x);
    tensor_free(&w);
    tensor_free(&plain);
    tensor_free(&timed);
    kern_profile_destroy(p);
    kern_profile_destroy(NULL);
    kern_stream_destroy(s);
}

static void bytes_are_those_of_codes_and_scales(void **state)
{
    static const struct {
        enum k3_dtype dtype;
        uint64_t bytes;
    } forms[] = {{K3_F32, 5 * 64 * 4}, {K3_BF16, 5 * 64 * 2}, {K3_FP8_E4M3, 5 * (64 + 4)}, {K3_MXFP8, 5 * (64 + 2)}};
    struct k3_stream *s = kern_stream_create("cpu", 1);
    struct kern_profile *p = kern_profile_create();
    struct k3_tensor x = tensor_random(3, 64, 0, -1, 1), y = tensor_f32(3, 5, 0);
    (void)state;

    kern_profile_start(p, s);
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        struct k3_tensor w = tensor_weights(forms[i].dtype, 5, 64, 32);
        kern_profile_reset(p);
        assert_int_equal(kern_linear(&(struct linear_args){&x, &w, &y, 0}, s), 0);
        assert_int_equal(row_of(p, "linear")->bytes, forms[i].bytes);
        tensor_free(&w);
    }
    kern_profile_stop(p, s);
    tensor_free(&x);
    tensor_free(&y);
    kern_profile_destroy(p);
    kern_stream_destroy(s);
}

static struct kern_expert_matrix three_experts(struct k3_tensor *all, int64_t out, int64_t in)
{
    struct kern_expert_matrix m = {*all, out * in / 2, out * in / K3_MX_BLOCK};
    m.first.rows = out;
    return m;
}

static void an_expert_that_several_rows_chose_is_read_once(void **state)
{
    struct k3_stream *s = kern_stream_create("cpu", 1);
    struct kern_profile *p = kern_profile_create();
    struct k3_tensor z = tensor_random(2, 32, 0, -1, 1), y = tensor_f32(2, 32, 0);
    struct k3_tensor w1 = tensor_weights(K3_MXFP4, 3 * 64, 32, 0), w3 = tensor_weights(K3_MXFP4, 3 * 64, 32, 0);
    struct k3_tensor w2 = tensor_weights(K3_MXFP4, 3 * 32, 64, 0);
    struct kern_expert_matrix m1 = three_experts(&w1, 64, 32), m3 = three_experts(&w3, 64, 32),
                              m2 = three_experts(&w2, 32, 64);
    const int32_t id[] = {2, 0, 0, 2};
    const float weight[] = {0.5f, 0.5f, 0.5f, 0.5f};
    (void)state;

    kern_profile_start(p, s);
    assert_int_equal(kern_experts(&(struct experts_args){.z = &z,
                                                         .id = id,
                                                         .weight = weight,
                                                         .topk = 2,
                                                         .experts = 3,
                                                         .held = 3,
                                                         .w1 = &m1,
                                                         .w3 = &m3,
                                                         .w2 = &m2,
                                                         .y = &y,
                                                         .beta = 4,
                                                         .linear_beta = 25},
                                  s),
                     0);
    kern_profile_stop(p, s);
    assert_int_equal(row_of(p, "experts")->bytes, 2 * 3 * (64 * 32 / 2 + 64 * 32 / 32));
    assert_int_equal(row_of(p, "experts")->flops, 2 * (2 * 2) * 3 * 64 * 32);

    tensor_free(&z);
    tensor_free(&y);
    tensor_free(&w1);
    tensor_free(&w2);
    tensor_free(&w3);
    kern_profile_destroy(p);
    kern_stream_destroy(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_and_their_cost_are_counted_while_it_runs),
        cmocka_unit_test(bytes_are_those_of_codes_and_scales),
        cmocka_unit_test(an_expert_that_several_rows_chose_is_read_once),
    };
    check_seed();
    return cmocka_run_group_tests_name("profile", tests, NULL, NULL);
}
