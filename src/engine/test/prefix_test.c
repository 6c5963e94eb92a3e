/* prefix_test.c - a prompt that begins behind a checkpoint gets the bits that it would have got without */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine/test/tiny.h"

enum { PAGE = 64, KEPT = K3_EXPAND_BLOCK, VOCABULARY = 1024 };

static const struct tiny_limits without = {
    .rows = 704, .slots = 8, .pages = 40, .page_tokens = PAGE, .chunk = TINY_CONTEXT, .threads = 1};
static const struct tiny_limits with = {
    .rows = 136, .slots = 8, .pages = 40, .page_tokens = PAGE, .chunk = 64, .threads = 1, .checkpoints = 12};

static uint32_t seed = 20261130;

/* The n tokens of text number `text`, then tokens of nobody else's. */
static struct tiny_request request_of(int32_t text, int32_t n, int32_t own, int32_t max_tokens)
{
    struct tiny_request r = {.prompt_tokens = n + own, .max_tokens = max_tokens, .sampling = {.top_p = 1}};

    for (int32_t i = 0; i < n; i++)
        r.prompt[i] = (text * 389 + i * i * 7 + i * 31) % VOCABULARY;
    for (int32_t i = 0; i < own; i++)
        r.prompt[n + i] = tiny_below(&seed, VOCABULARY);
    return r;
}

static void assert_same(const struct tiny_answer *got, const struct tiny_answer *want)
{
    assert_int_equal(got->count, want->count);
    assert_memory_equal(got->token, want->token, (size_t)want->count * sizeof *want->token);
    assert_memory_equal(got->logits, want->logits, (size_t)want->count * sizeof *want->logits);
}

/* The answer of an engine that has seen nothing. */
static struct tiny_answer fresh(const struct tiny_request *r)
{
    static struct tiny *t;
    struct tiny_answer a;

    t = tiny_create(&without);
    tiny_add(t, r, &a);
    tiny_finish(t);
    tiny_destroy(t);
    return a;
}

/* One more request on t, alone.  Returns how many tokens of its prompt were there. */
static int32_t ask(struct tiny *t, const struct tiny_request *r, struct tiny_answer *a)
{
    struct tiny_answer want = fresh(r);

    tiny_add(t, r, a);
    tiny_finish(t);
    assert_same(a, &want);
    return a->cached;
}

static void a_hit_is_a_miss_at_every_boundary(void **state)
{
    struct tiny_answer a;

    (void)state;
    for (int32_t page = 1; page <= 4; page++)
        for (int32_t n = page * PAGE - 1; n <= page * PAGE + 1; n++) {
            struct tiny *t = tiny_create(&with);
            struct tiny_request r = request_of(page, n, 0, 3), again = request_of(page, n, 5, 3);
            int32_t kept = (n - 1) / KEPT * KEPT;
            assert_int_equal(ask(t, &r, &a), 0);
            assert_int_equal(ask(t, &r, &a), kept);
            assert_int_equal(ask(t, &again, &a), kept); /* nothing of the answer, be it over the boundary */
            tiny_destroy(t);
        }
}

/* The n-th turn of a talk: what was said, the answer, and something new. */
static void continue_talk(struct tiny_request *r, const struct tiny_answer *a, int32_t own)
{
    memcpy(r->prompt + r->prompt_tokens, a->token, (size_t)a->count * sizeof *a->token);
    r->prompt_tokens += a->count;
    for (int32_t i = 0; i < own; i++)
        r->prompt[r->prompt_tokens++] = tiny_below(&seed, VOCABULARY);
}

/* What was an answer runs anew as a part of the prompt. */
static void a_talk_goes_on_behind_the_last_prompt(void **state)
{
    struct tiny *t = tiny_create(&with);
    struct tiny_request r = request_of(9, 100, 0, 0);
    struct tiny_answer a;
    int32_t kept = 0;

    (void)state;
    for (int32_t turn = 0; turn < 5; turn++) {
        r.max_tokens = 60 + 7 * turn;
        assert_int_equal(ask(t, &r, &a), kept);
        kept = (r.prompt_tokens - 1) / KEPT * KEPT;
        continue_talk(&r, &a, 3);
    }
    tiny_destroy(t);
}

static void a_third_prompt_begins_where_two_went_apart(void **state)
{
    struct tiny *t = tiny_create(&with);
    struct tiny_answer a;

    (void)state;
    for (int32_t i = 0; i < 4; i++) {
        struct tiny_request r = request_of(3, 270, 140, 2);
        assert_int_equal(ask(t, &r, &a), i < 2 ? 0 : 256);
    }
    tiny_destroy(t);
}

static void nothing_is_shared_with_another_user(void **state)
{
    struct tiny *t = tiny_create(&with);
    struct tiny_request r = request_of(3, 140, 0, 2);
    struct tiny_answer a;

    (void)state;
    assert_int_equal(ask(t, &r, &a), 0);
    r.key[3] = 1;
    assert_int_equal(ask(t, &r, &a), 0);
    assert_int_equal(ask(t, &r, &a), 128);
    tiny_destroy(t);
}

static void what_failed_leaves_nothing_behind(void **state)
{
    struct tiny *t = tiny_create(&with);
    struct tiny_request r = request_of(3, 140, 0, 40);
    struct tiny_answer a;

    (void)state;
    uint64_t lease = tiny_add(t, &r, &a);
    for (int32_t i = 0; i < 10; i++)
        assert_true(tiny_step(t));
    sequence_finish(scheduler_find(t->scheduler, lease), END_FAILED, NULL);
    tiny_finish(t);
    assert_int_equal(ask(t, &r, &a), 0);
    assert_int_equal(ask(t, &r, &a), 128);
    tiny_destroy(t);
}

/* Pages that checkpoints keep are there for who needs them; the least recently used beginning goes first. */
static void what_is_kept_makes_room(void **state)
{
    struct tiny_limits few = with;
    struct tiny_request a = request_of(1, 257, 0, 1), b = request_of(2, 257, 0, 1), large = request_of(3, 300, 0, 28);
    struct tiny_answer answer;

    (void)state;
    few.pages = 12;
    struct tiny *t = tiny_create(&few);
    assert_int_equal(ask(t, &a, &answer), 0);
    assert_int_equal(ask(t, &b, &answer), 0);
    assert_int_equal(cache_free_pages(t->cache), 12 - 2 * 4);
    assert_int_equal(ask(t, &a, &answer), 256);
    assert_int_equal(ask(t, &large, &answer), 0); /* 6 pages, 4 are free */
    assert_int_equal(ask(t, &a, &answer), 256);
    assert_int_equal(ask(t, &b, &answer), 0);
    tiny_destroy(t);

    few.checkpoints = 1;
    t = tiny_create(&few);
    assert_int_equal(ask(t, &a, &answer), 0);
    assert_int_equal(ask(t, &b, &answer), 0);
    assert_int_equal(ask(t, &b, &answer), 256);
    assert_int_equal(ask(t, &a, &answer), 0);
    tiny_destroy(t);
}

/* Talks of several users that branch, at random times, with cancels, in a cache that is too small for them all. */
static void whatever_is_shared_the_bits_are_the_same(void **state)
{
    enum { REQUESTS = 48 };
    static struct tiny_request request[REQUESTS];
    static struct tiny_answer expected[REQUESTS], got[REQUESTS];
    struct tiny_limits tight = with;
    enum sequence_end end;
    int32_t arrived = 0, ended = 0, cancelled = 0;
    int64_t prompts = 0, cached = 0;
    uint64_t lease;

    (void)state;
    printf("# seed %u\n", seed);
    for (int32_t i = 0; i < REQUESTS; i++) {
        request[i] = request_of(tiny_below(&seed, 3), 1 + tiny_below(&seed, 400), tiny_below(&seed, 60),
                                1 + tiny_below(&seed, 40));
        if (i > 0 && tiny_below(&seed, 2) == 0) {
            int32_t before = tiny_below(&seed, i);
            if (request[before].prompt_tokens + expected[before].count < 500) {
                request[i] = request[before];
                continue_talk(&request[i], &expected[before], tiny_below(&seed, 20));
            }
        }
        request[i].key[0] = (uint8_t)tiny_below(&seed, 2);
        request[i].sampling.temperature = tiny_below(&seed, 2) ? 1 : 0;
        request[i].sampling.seed = (uint64_t)i;
        expected[i] = fresh(&request[i]);
        prompts += request[i].prompt_tokens;
    }
    tight.pages = 30;
    tight.checkpoints = 8;
    struct tiny *t = tiny_create(&tight);
    while (ended < REQUESTS) {
        while (arrived < REQUESTS && tiny_below(&seed, 6) == 0) {
            tiny_add(t, &request[arrived], &got[arrived]);
            arrived++;
        }
        struct sequence *q = NULL;
        if (arrived > 0 && tiny_below(&seed, 25) == 0)
            q = scheduler_find(t->scheduler, (uint64_t)tiny_below(&seed, arrived));
        if (q)
            sequence_finish(q, END_CANCELLED, NULL);
        for (; tiny_reap(t, &lease, &end); ended++) {
            struct tiny_answer *a = &got[lease];
            cached += a->cached;
            cancelled += end == END_CANCELLED;
            if (end == END_CANCELLED)
                expected[lease].count = a->count;
            assert_same(a, &expected[lease]);
        }
        tiny_step(t);
    }
    print_message("# %lld of %lld prompt tokens were there, %d requests cancelled\n", (long long)cached,
                  (long long)prompts, cancelled);
    assert_true(cached > prompts / 10 && cancelled > 0);
    tiny_destroy(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_hit_is_a_miss_at_every_boundary),
        cmocka_unit_test(a_talk_goes_on_behind_the_last_prompt),
        cmocka_unit_test(a_third_prompt_begins_where_two_went_apart),
        cmocka_unit_test(nothing_is_shared_with_another_user),
        cmocka_unit_test(what_failed_leaves_nothing_behind),
        cmocka_unit_test(what_is_kept_makes_room),
        cmocka_unit_test(whatever_is_shared_the_bits_are_the_same),
    };
    return cmocka_run_group_tests_name("prefix", tests, tiny_load, tiny_unload);
}
