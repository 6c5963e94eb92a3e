/* sampler_test.c - the generator's published answers; every cut of the sampler; logits that are no numbers */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "engine/random.h"
#include "engine/sampler.h"

/* Known answers that the authors publish with their code (Random123, kat_vectors, philox4x32 10 rounds). */
static void philox_gives_the_published_answers(void **state)
{
    static const struct {
        uint32_t counter[4], key[2], out[4];
    } known[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         {0xffffffff, 0xffffffff},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    (void)state;

    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        uint32_t out[4];
        random_philox(known[i].counter, known[i].key, out);
        assert_memory_equal(out, known[i].out, sizeof out);
    }
}

static void uniform_fills_the_unit_interval(void **state)
{
    int below[10] = {0};
    (void)state;

    for (uint64_t i = 0; i < 10000; i++) {
        double u = random_uniform(7, i);
        assert_true(u >= 0 && u < 1);
        below[(int)(u * 10)]++;
    }
    for (int i = 0; i < 10; i++)
        assert_in_range(below[i], 850, 1150); /* 1000, standard deviation 30 */
    assert_true(random_uniform(7, 1) != random_uniform(8, 1));
    assert_true(random_uniform(7, 1) != random_uniform(7, UINT64_C(1) << 32 | 1));
}

static void temperature_zero_takes_the_largest_and_the_lower_of_equals(void **state)
{
    const float logits[5] = {-1, 3, -INFINITY, 3, 2};
    const struct sampling s = {.temperature = 0, .top_p = 1};
    struct sampler *sm = sampler_create(5);
    struct k3_error err;
    (void)state;

    assert_int_equal(sampler_pick(sm, &s, logits, 0, &err), 1);
    sampler_destroy(sm);
    sampler_destroy(NULL);
}

/* How often each of 8 ids is drawn at 20000 positions. */
static void draw(const struct sampling *s, const float logits[8], int count[8])
{
    struct sampler *sm = sampler_create(8);
    struct k3_error err;

    memset(count, 0, 8 * sizeof *count);
    for (uint64_t i = 0; i < 20000; i++) {
        int32_t id = sampler_pick(sm, s, logits, i, &err);
        assert_in_range(id, 0, 7);
        count[id]++;
    }
    sampler_destroy(sm);
}

/* Draws must follow share (which need not sum to 1) within five standard deviations. */
static void assert_shares(const int count[8], const double share[8])
{
    double sum = 0;

    for (int i = 0; i < 8; i++)
        sum += share[i];
    for (int i = 0; i < 8; i++) {
        double p = share[i] / sum, want = 20000 * p;
        if (p == 0)
            assert_int_equal(count[i], 0);
        else
            assert_true(fabs(count[i] - want) < 5 * sqrt(want));
    }
}

static const double share[8] = {0.05, 0.3, 0.02, 0.25, 0.1, 0.08, 0.15, 0.05};

static void shares_follow_the_settings(void **state)
{
    float logits[8];
    int count[8];
    (void)state;

    for (int i = 0; i < 8; i++)
        logits[i] = (float)log(share[i]) - 3;
    draw(&(struct sampling){.temperature = 1, .top_p = 1, .seed = 1}, logits, count);
    assert_shares(count, share);

    double sharp[8];
    for (int i = 0; i < 8; i++)
        sharp[i] = share[i] * share[i];
    draw(&(struct sampling){.temperature = 0.5f, .top_p = 1, .seed = 2}, logits, count);
    assert_shares(count, sharp);

    draw(&(struct sampling){.temperature = 1, .top_p = 1, .top_k = 3, .seed = 3}, logits, count);
    assert_shares(count, (double[8]){[1] = 0.3, [3] = 0.25, [6] = 0.15});

    /* 0.3 + 0.25 is not yet 0.6: the id that crosses the border is kept. */
    draw(&(struct sampling){.temperature = 1, .top_p = 0.6f, .seed = 4}, logits, count);
    assert_shares(count, (double[8]){[1] = 0.3, [3] = 0.25, [6] = 0.15});

    /* Of the best four (0.8 in all) 0.6 is 0.48: two are enough. */
    draw(&(struct sampling){.temperature = 1, .top_p = 0.6f, .top_k = 4, .seed = 5}, logits, count);
    assert_shares(count, (double[8]){[1] = 0.3, [3] = 0.25});

    draw(&(struct sampling){.temperature = 1, .top_p = 1e-9f, .seed = 6}, logits, count);
    assert_shares(count, (double[8]){[1] = 1});

    /* A k larger than the vocabulary keeps all; ties at the border go to the lower id (0 and 7 are equal). */
    draw(&(struct sampling){.temperature = 1, .top_p = 1, .top_k = 100, .seed = 7}, logits, count);
    assert_shares(count, share);
    draw(&(struct sampling){.temperature = 1, .top_p = 1, .top_k = 6, .seed = 8}, logits, count);
    assert_shares(count, (double[8]){0.05, 0.3, 0, 0.25, 0.1, 0.08, 0.15, 0});
}

static void a_masked_id_is_never_drawn(void **state)
{
    float logits[8] = {0, 0, 0, -INFINITY, 0, 0, 0, -INFINITY};
    int count[8];
    (void)state;

    draw(&(struct sampling){.temperature = 1, .top_p = 1, .seed = 1}, logits, count);
    assert_shares(count, (double[8]){1, 1, 1, 0, 1, 1, 1, 0});
    draw(&(struct sampling){.temperature = 1, .top_p = 0.9999f, .seed = 1}, logits, count);
    assert_shares(count, (double[8]){1, 1, 1, 0, 1, 1, 1, 0});
}

static void what_is_not_a_number_fails(void **state)
{
    const struct sampling greedy = {.temperature = 0, .top_p = 1}, hot = {.temperature = 1, .top_p = 0.9f};
    struct sampler *sm = sampler_create(4);
    const float bad[3][4] = {{0, 1, NAN, 2}, {0, INFINITY, 1, 2}, {-INFINITY, -INFINITY, -INFINITY, -INFINITY}};
    struct k3_error err;
    (void)state;

    for (int i = 0; i < 3; i++) {
        assert_int_equal(sampler_pick(sm, &greedy, bad[i], 12, &err), -1);
        assert_int_equal(sampler_pick(sm, &hot, bad[i], 12, &err), -1);
        assert_non_null(strstr(err.text, "position 12"));
    }
    sampler_destroy(sm);
}

static void senseless_settings_are_refused_by_name(void **state)
{
    const struct sampling ok = {.temperature = 1, .top_p = 0.95f};
    struct sampling s;
    struct k3_error err;
    (void)state;

    assert_int_equal(sampling_check(&ok, &err), 0);
    s = ok, s.temperature = NAN;
    assert_int_equal(sampling_check(&s, &err), -1);
    assert_non_null(strstr(err.text, "temperature"));
    s = ok, s.temperature = -1;
    assert_int_equal(sampling_check(&s, &err), -1);
    s = ok, s.top_p = 0;
    assert_int_equal(sampling_check(&s, &err), -1);
    assert_non_null(strstr(err.text, "top-p"));
    s = ok, s.top_k = -1;
    assert_int_equal(sampling_check(&s, &err), -1);
    assert_non_null(strstr(err.text, "top-k"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(philox_gives_the_published_answers),
        cmocka_unit_test(uniform_fills_the_unit_interval),
        cmocka_unit_test(temperature_zero_takes_the_largest_and_the_lower_of_equals),
        cmocka_unit_test(shares_follow_the_settings),
        cmocka_unit_test(a_masked_id_is_never_drawn),
        cmocka_unit_test(what_is_not_a_number_fails),
        cmocka_unit_test(senseless_settings_are_refused_by_name),
    };
    return cmocka_run_group_tests_name("sampler", tests, NULL, NULL);
}
