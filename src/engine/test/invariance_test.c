/* invariance_test.c - a request's tokens, and the bits of the logits behind them, do not depend on who else is there
 *
 * K3_TEST_SEED repeats a run; without it the seed is fixed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine/test/tiny.h"

enum { REQUESTS = 24, CHOICES = 3, ROUNDS = 6, SLOTS = 8, PAGES = 40, PAGE_TOKENS = 64 };

/* Alone a prompt runs in one step; among others it is cut to what they leave room for. */
static const struct tiny_limits alone = {
    .rows = TINY_CONTEXT, .slots = 1, .pages = 10, .page_tokens = PAGE_TOKENS, .chunk = TINY_CONTEXT, .threads = 1};
static const struct tiny_limits among_others[] = {
    {.rows = 200, .slots = SLOTS, .pages = PAGES, .page_tokens = PAGE_TOKENS, .chunk = 128, .threads = 1},
    {.rows = 72, .slots = SLOTS, .pages = PAGES, .page_tokens = PAGE_TOKENS, .chunk = 64, .threads = 2},
};

static struct tiny_request request[REQUESTS];
static struct tiny_answer expected[REQUESTS][CHOICES], got[REQUESTS][CHOICES];
static uint32_t seed = 20261130;

/* One choice, as a request of its own. */
static void answer_choice(const struct tiny_request *r, int32_t choice, struct tiny_answer *answer)
{
    struct tiny *t = tiny_create(&alone);
    struct tiny_request one = *r;

    one.choices = 1;
    one.sampling.seed += (uint64_t)choice;
    tiny_add(t, &one, answer);
    tiny_finish(t);
    tiny_destroy(t);
}

static int answer_alone(void **state)
{
    if (getenv("K3_TEST_SEED"))
        seed = (uint32_t)strtoul(getenv("K3_TEST_SEED"), NULL, 0);
    printf("# K3_TEST_SEED=%u\n", seed);
    if (tiny_load(state) < 0)
        return -1;
    for (int32_t i = 0; i < REQUESTS; i++) {
        tiny_random_request(&seed, &request[i]);
        request[i].choices = i % 3 == 0 ? CHOICES : 1;
        for (int32_t c = 0; c < request[i].choices; c++)
            answer_choice(&request[i], c, &expected[i][c]);
    }
    return 0;
}

static void shuffle(int32_t *order)
{
    for (int32_t i = 0; i < REQUESTS; i++)
        order[i] = i;
    for (int32_t i = REQUESTS - 1; i > 0; i--) {
        int32_t j = tiny_below(&seed, i + 1), moved = order[i];
        order[i] = order[j];
        order[j] = moved;
    }
}

/* One that was cancelled has the beginning of its answer, any other the whole. */
static void check(int32_t which, enum sequence_end end)
{
    for (int32_t c = 0; c < request[which].choices; c++) {
        const struct tiny_answer *want = &expected[which][c], *have = &got[which][c];
        if (end != END_CANCELLED)
            assert_int_equal(have->count, want->count);
        for (int32_t i = 0; i < have->count; i++)
            if (have->token[i] != want->token[i] || have->logits[i] != want->logits[i])
                fail_msg("request %d, choice %d differs at token %d", which, c, i);
    }
}

/* All requests in a random order, at random times, some of them cancelled on the way.  Returns how many were. */
static int32_t one_round(const struct tiny_limits *limits)
{
    struct tiny *t = tiny_create(limits);
    int32_t order[REQUESTS], arrived = 0, ended = 0, cancelled = 0;
    enum sequence_end end;
    uint64_t lease;

    shuffle(order);
    while (ended < REQUESTS) {
        while (arrived < REQUESTS && tiny_below(&seed, 4) == 0) {
            tiny_add(t, &request[order[arrived]], got[order[arrived]]);
            arrived++;
        }
        struct sequence *q = NULL;
        if (arrived > 0 && tiny_below(&seed, 20) == 0)
            q = scheduler_find(t->scheduler, (uint64_t)tiny_below(&seed, arrived));
        if (q)
            sequence_finish_all(q, END_CANCELLED, NULL);
        for (; tiny_reap(t, &lease, &end); ended++) {
            check(order[lease], end);
            cancelled += end == END_CANCELLED;
        }
        tiny_step(t);
    }
    assert_true(t->rows > 3 * t->steps); /* steps were shared */
    tiny_destroy(t);
    return cancelled;
}

static void alone_or_in_a_batch_of_8_the_bits_are_the_same(void **state)
{
    int32_t cancelled = 0;

    (void)state;
    for (int32_t i = 0; i < ROUNDS; i++)
        cancelled += one_round(&among_others[i % 2]);
    assert_in_range(cancelled, ROUNDS, ROUNDS * REQUESTS / 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(alone_or_in_a_batch_of_8_the_bits_are_the_same),
    };
    return cmocka_run_group_tests_name("invariance", tests, answer_alone, tiny_unload);
}
