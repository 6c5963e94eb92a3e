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

    assert_int_equal(sampler_pick(sm, &s, logits, &(struct sampler_text){0}, &err), 1);
    sampler_destroy(sm);
    sampler_destroy(NULL);
}

/* How often each of 8 ids is drawn at 20000 positions. */
static void draw(const struct sampling *s, const float logits[8], int count[8])
{
    struct sampler *sm = sampler_create(8);
    struct k3_error err;

    memset(count, 0, 8 * sizeof *count);
    for (int32_t i = 0; i < 20000; i++) {
        int32_t id = sampler_pick(sm, s, logits, &(struct sampler_text){.count = i}, &err);
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

    /* min-p of 0.4 leaves out what is below 0.12; of the rest's three, or of top-p's two. */
    draw(&(struct sampling){.temperature = 1, .top_p = 1, .min_p = 0.4f, .seed = 9}, logits, count);
    assert_shares(count, (double[8]){[1] = 0.3, [3] = 0.25, [6] = 0.15});
    draw(&(struct sampling){.temperature = 1, .top_p = 0.5f, .min_p = 0.4f, .seed = 10}, logits, count);
    assert_shares(count, (double[8]){[1] = 0.3, [3] = 0.25});
    draw(&(struct sampling){.temperature = 1, .top_p = 1, .min_p = 1, .seed = 11}, logits, count);
    assert_shares(count, (double[8]){[1] = 1});

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
    const struct sampler_text text = {.count = 12};
    const float bad[3][4] = {{0, 1, NAN, 2}, {0, INFINITY, 1, 2}, {-INFINITY, -INFINITY, -INFINITY, -INFINITY}};
    struct k3_error err;
    (void)state;

    for (int i = 0; i < 3; i++) {
        assert_int_equal(sampler_pick(sm, &greedy, bad[i], &text, &err), -1);
        assert_int_equal(sampler_pick(sm, &hot, bad[i], &text, &err), -1);
        assert_non_null(strstr(err.text, "position 12"));
    }
    sampler_destroy(sm);
}

/* --- against a slow and plain sampler ------------------------------------------------------------------------------
 */

enum { VOCAB = 97, TEXT = 60 };

static double unit(uint64_t seed, uint64_t *n)
{
    return random_uniform(seed, (*n)++);
}

static int uses(const struct sampler_text *t, int from, int id)
{
    int n = 0;

    for (int i = from; i < t->count; i++)
        n += t->token[i] == id;
    return n;
}

static void plain_adjust(const struct sampling *s, const struct sampler_text *t, const float *logits, double out[VOCAB])
{
    for (int id = 0; id < VOCAB; id++) {
        float x = logits[id]; /* bias and penalties are fp32 */
        for (int i = 0; i < s->biases; i++)
            if (s->bias[i] == id)
                x += s->bias_value[i];
        if (s->repetition > 0 && uses(t, 0, id) > 0)
            x = x > 0 ? x / s->repetition : x * s->repetition;
        x -= s->frequency * (float)uses(t, t->prompt, id);
        if (uses(t, t->prompt, id) > 0)
            x -= s->presence;
        out[id] = x;
    }
}

/* Share of every id, 0 where it was cut. */
static void plain_shares(const struct sampling *s, const double logit[VOCAB], int order[VOCAB], double share[VOCAB])
{
    double sum = 0, before = 0, best = 0;
    int most = s->top_k > 0 && s->top_k < VOCAB ? s->top_k : VOCAB;

    for (int i = 0; i < VOCAB; i++) { /* rank: how many are better */
        int rank = 0;
        for (int j = 0; j < VOCAB; j++)
            rank += logit[j] > logit[i] || (logit[j] == logit[i] && j < i);
        order[rank] = i;
    }
    for (int r = 0; r < VOCAB; r++)
        share[r] = exp((logit[order[r]] - logit[order[0]]) / s->temperature);
    for (int r = 0; r < most; r++)
        sum += share[r];
    best = share[0];
    for (int r = 0; r < VOCAB; r++) {
        double mine = share[r];
        if (r >= most || before >= s->top_p * sum || mine < s->min_p * best)
            share[r] = 0;
        before += mine;
    }
}

/* The id that u falls on, or -1 when it falls so close to a border that rounding decides. */
static int plain_pick(const int order[VOCAB], const double share[VOCAB], int sorted, double u)
{
    double sum = 0, at = 0, by_id[VOCAB];

    for (int r = 0; r < VOCAB; r++) {
        sum += share[r];
        by_id[order[r]] = share[r];
    }
    for (int i = 0; i < VOCAB; i++) {
        at += (sorted ? share[i] : by_id[i]) / sum;
        if (fabs(u - at) < 1e-12)
            return -1;
        if (u < at)
            return sorted ? order[i] : i;
    }
    return -1;
}

static struct sampling random_settings(uint64_t seed, uint64_t *n, int32_t *bias, float *value)
{
    struct sampling s = {.temperature = (float)(0.3 + 2 * unit(seed, n)), .top_p = 1, .seed = seed};

    if (unit(seed, n) < 0.5)
        s.top_p = (float)(0.05 + 0.95 * unit(seed, n));
    if (unit(seed, n) < 0.5)
        s.top_k = (int32_t)(unit(seed, n) * VOCAB * 1.2);
    if (unit(seed, n) < 0.5)
        s.min_p = (float)(0.2 * unit(seed, n));
    if (unit(seed, n) < 0.5)
        s.repetition = (float)(0.5 + unit(seed, n));
    if (unit(seed, n) < 0.5)
        s.presence = (float)(4 * unit(seed, n) - 2);
    if (unit(seed, n) < 0.5)
        s.frequency = (float)(4 * unit(seed, n) - 2);
    for (s.biases = 0; s.biases < 5 && unit(seed, n) < 0.6; s.biases++) {
        bias[s.biases] = (int32_t)(unit(seed, n) * VOCAB);
        value[s.biases] = (float)(20 * unit(seed, n) - 10);
    }
    s.bias = bias;
    s.bias_value = value;
    return s;
}

static void every_setting_does_as_the_plain_sampler(void **state)
{
    struct sampler *sm = sampler_create(VOCAB);
    struct k3_error err;
    int compared = 0;
    (void)state;

    for (uint64_t seed = 1; seed <= 3000; seed++) {
        float logits[VOCAB], value[5];
        double adjusted[VOCAB], share[VOCAB];
        int32_t token[TEXT], bias[5];
        int order[VOCAB];
        uint64_t n = 1000;
        for (int i = 0; i < VOCAB; i++) /* coarse, so that some are equal */
            logits[i] = (float)floor(40 * unit(seed, &n)) / 4 - 5;
        for (int i = 0; i < TEXT; i++)
            token[i] = (int32_t)(unit(seed, &n) * unit(seed, &n) * VOCAB);
        struct sampling s = random_settings(seed, &n, bias, value);
        struct sampler_text text = {token, (int32_t)(unit(seed, &n) * TEXT), TEXT};
        int sorted = s.top_k > 0 || s.top_p < 1 || s.min_p > 0;

        plain_adjust(&s, &text, logits, adjusted);
        plain_shares(&s, adjusted, order, share);
        int want = plain_pick(order, share, sorted, random_uniform(seed, TEXT));
        int got = sampler_pick(sm, &s, logits, &text, &err);
        if (want >= 0) {
            assert_int_equal(got, want);
            compared++;
        }
        s.temperature = 0;
        assert_int_equal(sampler_pick(sm, &s, logits, &text, &err), order[0]);
    }
    assert_true(compared > 2990);
    sampler_destroy(sm);
}

/* Pearson's statistic over the ids that may come: beyond 5 standard deviations of its law nobody is that unlucky. */
static void frequencies_follow_the_shares(void **state)
{
    struct sampler *sm = sampler_create(VOCAB);
    struct k3_error err;
    (void)state;

    for (uint64_t seed = 1; seed <= 12; seed++) {
        float logits[VOCAB], value[5];
        double adjusted[VOCAB], share[VOCAB], sum = 0, chi = 0;
        int32_t token[40000], bias[5];
        int order[VOCAB], count[VOCAB] = {0}, cells = 0;
        uint64_t n = 1000;
        for (int i = 0; i < VOCAB; i++)
            logits[i] = (float)(3 * unit(seed, &n));
        for (int i = 0; i < 40000; i++)
            token[i] = i < TEXT ? (int32_t)(unit(seed, &n) * VOCAB) : token[i % TEXT];
        struct sampling s = random_settings(seed, &n, bias, value);
        s.frequency = 0; /* the one setting that goes on changing with the position */
        for (int i = 20000; i < 40000; i++)
            count[sampler_pick(sm, &s, logits, &(struct sampler_text){token, 20000 - TEXT, i}, &err)]++;

        plain_adjust(&s, &(struct sampler_text){token, 0, TEXT}, logits, adjusted);
        plain_shares(&s, adjusted, order, share);
        for (int r = 0; r < VOCAB; r++)
            sum += share[r];
        for (int r = 0; r < VOCAB; r++) {
            double want = 20000 * share[r] / sum, off = count[order[r]] - want;
            if (share[r] == 0)
                assert_int_equal(count[order[r]], 0);
            else {
                chi += off * off / want;
                cells++;
            }
        }
        assert_true(chi - (cells - 1) < 5 * sqrt(2 * cells));
    }
    sampler_destroy(sm);
}

static void penalties_count_prompt_and_answer_as_they_should(void **state)
{
    const float logits[4] = {1, 1, -1, 2};
    const int32_t token[] = {3, 0, 0, 2};
    const struct sampler_text asked = {token, 4, 4}, answered = {token, 1, 4}; /* all prompt; the last three answer */
    struct sampling s = {.temperature = 0, .top_p = 1};
    struct sampler *sm = sampler_create(4);
    struct k3_error err;
    (void)state;

    s.presence = 2; /* not of the prompt */
    assert_int_equal(sampler_pick(sm, &s, logits, &asked, &err), 3);
    s.repetition = 4; /* of the prompt too: 2 becomes 0.5, 1 becomes 0.25, -1 becomes -4 */
    s.presence = 0;
    assert_int_equal(sampler_pick(sm, &s, logits, &asked, &err), 1);
    s.repetition = 1;
    s.frequency = -0.6f; /* liked: id 0 was used twice */
    assert_int_equal(sampler_pick(sm, &s, logits, &answered, &err), 0);
    assert_int_equal(sampler_pick(sm, &s, logits, &asked, &err), 3);
    sampler_destroy(sm);
}

static void logprobs_are_the_models_own(void **state)
{
    const float logits[5] = {0, 2, -INFINITY, 2, 1};
    struct sampler *sm = sampler_create(5);
    struct logprob out[4];
    double total = log(1 + 2 * exp(2) + exp(1));
    (void)state;

    sampler_logprobs(sm, logits, 4, 3, out);
    assert_int_equal(out[0].id, 4);
    assert_float_equal(out[0].value, 1 - total, 1e-6);
    assert_int_equal(out[1].id, 1); /* of equals the lower */
    assert_int_equal(out[2].id, 3);
    assert_float_equal(out[2].value, 2 - total, 1e-6);
    assert_int_equal(out[3].id, 4);
    sampler_logprobs(sm, logits, 2, 1, out);
    assert_true(out[0].value == LOGPROB_LEAST);
    assert_int_equal(out[1].id, 1);
    sampler_destroy(sm);
}

static void senseless_settings_are_refused_by_name(void **state)
{
    const struct sampling ok = {.temperature = 1, .top_p = 0.95f};
    struct sampling s;
    struct k3_error err;
    (void)state;

    assert_int_equal(sampling_check(&ok, 8, &err), 0);
    s = ok, s.temperature = NAN;
    assert_int_equal(sampling_check(&s, 8, &err), -1);
    assert_non_null(strstr(err.text, "temperature"));
    s = ok, s.temperature = -1;
    assert_int_equal(sampling_check(&s, 8, &err), -1);
    s = ok, s.top_p = 0;
    assert_int_equal(sampling_check(&s, 8, &err), -1);
    assert_non_null(strstr(err.text, "top-p"));
    s = ok, s.top_k = -1;
    assert_int_equal(sampling_check(&s, 8, &err), -1);
    assert_non_null(strstr(err.text, "top-k"));
    const int32_t id = 8;
    const float value = 100, too_much = 100.5f;
    const struct {
        struct sampling s;
        const char *names;
    } bad[] = {
        {{.top_p = 1, .min_p = 1.1f}, "min-p"},
        {{.top_p = 1, .min_p = -0.1f}, "min-p"},
        {{.top_p = 1, .repetition = -1}, "repetition-penalty"},
        {{.top_p = 1, .repetition = NAN}, "repetition-penalty"},
        {{.top_p = 1, .presence = 2.5f}, "presence-penalty"},
        {{.top_p = 1, .frequency = NAN}, "frequency-penalty"},
        {{.top_p = 1, .logprobs = 21}, "logprobs"},
        {{.top_p = 1, .biases = 1025}, "logit-bias must have at most 1024"},
        {{.top_p = 1, .biases = 1, .bias = &id, .bias_value = &value}, "token id 8 is not below 8"},
        {{.top_p = 1, .biases = 1, .bias = (const int32_t[]){7}, .bias_value = &too_much}, "from -100 to 100"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(sampling_check(&bad[i].s, 8, &err), -1);
        assert_non_null(strstr(err.text, bad[i].names));
    }
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
        cmocka_unit_test(every_setting_does_as_the_plain_sampler),
        cmocka_unit_test(frequencies_follow_the_shares),
        cmocka_unit_test(penalties_count_prompt_and_answer_as_they_should),
        cmocka_unit_test(logprobs_are_the_models_own),
        cmocka_unit_test(senseless_settings_are_refused_by_name),
    };
    return cmocka_run_group_tests_name("sampler", tests, NULL, NULL);
}
