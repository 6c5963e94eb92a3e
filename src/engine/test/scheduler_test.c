/* scheduler_test.c - random arrivals and cancels against a pretended model
 *
 * The pretended model keeps, as the true one does, what it knows of a sequence in the sequence's pages: a row writes
 * its token into its place, after looking whether every earlier place still holds the sequence's tokens.  A page used
 * twice, lost, misnumbered or given back too early shows as a foreign token. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine/scheduler.h"

enum {
    SLOTS = 4,
    PAGES = 40,
    PAGE_TOKENS = K3_PREFILL_BLOCK,
    ROWS = 3 * K3_PREFILL_BLOCK + SLOTS,
    CHUNK = 2 * K3_PREFILL_BLOCK,
    SEQUENCES = 400,
    MOST = PAGES * PAGE_TOKENS,
    FIRST_ANSWER = 10000000
};

static const struct cache_limits cache_limits = {.slots = SLOTS, .pages = PAGES, .page_tokens = PAGE_TOKENS};
static const struct plan_limits plan_limits = {
    .rows = ROWS, .slots = SLOTS, .pages = PAGES, .slot_pages = PAGES, .page_tokens = PAGE_TOKENS};

/* Deterministic, so that a failure can be repeated. */
static uint32_t seed;
static int32_t random_below(int32_t n)
{
    seed = seed * 1664525u + 1013904223u;
    return (int32_t)((seed >> 8) % (uint32_t)n);
}

struct engine {
    struct cache *cache;
    struct prefix *prefix;
    struct scheduler *scheduler;
    struct plan *plan;
    int32_t memory[MOST];         /* the latent pages */
    int32_t history[SLOTS][MOST]; /* what the sequence in each slot has run */
    int32_t steps, rows, forks;
};

static void engine_start(struct engine *e)
{
    memset(e, 0, sizeof *e);
    e->cache = cache_create(&cache_limits);
    e->prefix = prefix_create(e->cache, 0);
    e->scheduler = scheduler_create(e->cache, e->prefix, SLOTS, CHUNK);
    e->plan = plan_create(&plan_limits);
}

static void engine_stop(struct engine *e)
{
    plan_destroy(e->plan);
    scheduler_destroy(e->scheduler);
    prefix_destroy(e->prefix);
    assert_int_equal(cache_free_slots(e->cache), SLOTS);
    assert_int_equal(cache_free_pages(e->cache), PAGES);
    cache_destroy(e->cache);
}

/* Of each choice but the first, `resumed` tokens more than of the one before are known. */
static struct sequence *choices_of(int32_t n, int32_t choices, int32_t prompt_tokens, int32_t max_tokens,
                                   int32_t resumed)
{
    struct sequence *first = NULL;
    int32_t prompt[MOST], begun[MOST];

    for (int32_t i = 0; i < MOST; i++) {
        prompt[i] = n * 10000 + i;
        begun[i] = n * 10000 + 5000 + i;
    }
    for (int32_t i = 0; i < choices; i++) {
        struct sequence *q = sequence_create(&(struct sequence_args){.lease = (uint64_t)n,
                                                                     .prompt = prompt,
                                                                     .prompt_tokens = prompt_tokens,
                                                                     .resumed = begun,
                                                                     .resumed_tokens = i * resumed,
                                                                     .max_tokens = max_tokens});
        if (first)
            sequence_add_choice(first, q);
        else
            first = q;
    }
    return first;
}

static struct sequence *sequence_of(int32_t n, int32_t prompt_tokens, int32_t max_tokens)
{
    return choices_of(n, 1, prompt_tokens, max_tokens, 0);
}

static void run_row(struct engine *e, const int32_t *pages, int32_t slot, int64_t pos, int32_t token)
{
    for (int64_t i = 0; i < pos; i++)
        assert_int_equal(e->memory[pages[i / PAGE_TOKENS] * PAGE_TOKENS + i % PAGE_TOKENS], e->history[slot][i]);
    e->memory[pages[pos / PAGE_TOKENS] * PAGE_TOKENS + pos % PAGE_TOKENS] = token;
    e->history[slot][pos] = token;
}

static void copy(struct engine *e, const struct forward_copy *c)
{
    assert_int_equal(c->kind, FORWARD_FORK);
    memcpy(e->history[c->to], e->history[c->from], sizeof *e->history);
    if (c->to_page >= 0)
        memcpy(e->memory + c->to_page * PAGE_TOKENS, e->memory + c->from_page * PAGE_TOKENS,
               PAGE_TOKENS * sizeof *e->memory);
    e->forks++;
}

/* Rows of a prompt begin and end at multiples of the block or at its end, and have none of an answer among them. */
static void check_form(const struct kern_batch *b, int32_t i, const int32_t *token)
{
    int64_t end = b->pos[i] + b->begin[i + 1] - b->begin[i];
    if (b->prefill[i] > 0) {
        assert_int_equal(b->pos[i] % K3_PREFILL_BLOCK, 0);
        assert_true(end == b->prefill[i] || (end < b->prefill[i] && end % K3_PREFILL_BLOCK == 0));
    }
    for (int32_t row = b->begin[i]; row < b->begin[i + 1]; row++) {
        int64_t pos = b->pos[i] + row - b->begin[i];
        assert_int_equal(token[row] < FIRST_ANSWER && token[row] % 10000 == pos, b->prefill[i] > 0);
    }
}

/* One step; 0 when there was nothing to do. */
static int engine_step(struct engine *e)
{
    struct forward_step step;
    struct k3_error err;
    int32_t rows = scheduler_plan(e->scheduler, e->plan);
    if (rows == 0) {
        assert_int_equal(plan_kind(e->plan), PLAN_IDLE);
        return 0;
    }
    assert_int_equal(plan_apply(e->plan, &step, &err), 0);
    for (int32_t i = 0; i < step.copies; i++)
        copy(e, &step.copy[i]);
    assert_int_equal(step.batch.rows, rows);
    assert_in_range(rows, 1, ROWS);
    for (int32_t i = 0, used = 0; i < step.batch.seqs; i++) {
        int32_t slot = step.batch.slot[i];
        assert_false(used & 1 << slot);
        used |= 1 << slot;
        assert_in_range(step.batch.begin[i + 1] - step.batch.begin[i], 1, CHUNK);
        check_form(&step.batch, i, step.token);
        for (int32_t row = step.batch.begin[i]; row < step.batch.begin[i + 1]; row++)
            run_row(e, step.batch.pages + i * step.batch.page_stride, slot,
                    step.batch.pos[i] + row - step.batch.begin[i], step.token[row]);
    }
    scheduler_ran(e->scheduler);
    for (int32_t i = 0, row; i < scheduler_outputs(e->scheduler); i++) {
        struct sequence *q = scheduler_output(e->scheduler, i, &row);
        assert_in_range(row, 0, step.outputs - 1);
        assert_int_equal(sequence_state(q), SEQUENCE_DECODE);
        sequence_append(q, FIRST_ANSWER + step.token[step.output[row]] + 10000 * sequence_choice(q), NULL, NULL);
    }
    e->steps++;
    e->rows += rows;
    return 1;
}

static void random_arrivals_and_cancels_leave_nothing_behind(void **state)
{
    struct engine e;
    int32_t arrived = 0, ended = 0, cancelled = 0, expected[SEQUENCES];
    (void)state;
    seed = 20261130;
    engine_start(&e);
    for (int32_t turn = 0; ended < SEQUENCES; turn++) {
        assert_true(turn < 100000);
        while (arrived < SEQUENCES && random_below(3) == 0) {
            int32_t prompt = 1 + random_below(700), most = 1 + random_below(60);
            int32_t choices = random_below(3) == 0 ? 1 + random_below(SLOTS) : 1, resumed = random_below(3);
            struct cache_need need = {prompt + most, choices - 1, prompt};
            if (!cache_can_hold(&cache_limits, &need) || resumed * (choices - 1) > most)
                continue;
            expected[arrived] = most * choices;
            scheduler_add(e.scheduler, choices_of(arrived++, choices, prompt, most, resumed));
        }
        if (random_below(25) == 0 && arrived > 0) {
            struct sequence *q = scheduler_find(e.scheduler, (uint64_t)random_below(arrived));
            if (q)
                sequence_finish_all(q, END_CANCELLED, NULL);
        }
        for (struct sequence *q; (q = scheduler_reap(e.scheduler)); ended++) {
            int32_t tokens = 0;
            for (const struct sequence *choice = q; choice; choice = sequence_next(choice))
                tokens += sequence_answer_tokens(choice);
            if (sequence_common_end(q) == END_CANCELLED)
                cancelled++;
            else
                assert_int_equal(tokens, expected[sequence_lease(q)]);
            sequence_destroy(q);
        }
        engine_step(&e);
        assert_true(scheduler_running(e.scheduler) <= SLOTS);
    }
    assert_true(cancelled > 20 && cancelled < SEQUENCES / 2);
    assert_true(e.rows > 2 * e.steps); /* steps were shared */
    assert_true(e.forks > 50);
    assert_int_equal(scheduler_running(e.scheduler) + scheduler_waiting(e.scheduler), 0);
    engine_stop(&e);
}

static void a_long_prompt_does_not_stop_those_who_decode(void **state)
{
    struct engine e;
    (void)state;
    engine_start(&e);
    scheduler_add(e.scheduler, sequence_of(1, 2, 30));
    assert_true(engine_step(&e));
    scheduler_add(e.scheduler, sequence_of(2, 10 * CHUNK, 2));
    int32_t decoded = sequence_answer_tokens(scheduler_find(e.scheduler, 1));
    for (int32_t i = 0; i < 10; i++) {
        assert_int_equal(sequence_answer_tokens(scheduler_find(e.scheduler, 2)), 0);
        assert_true(engine_step(&e));
        assert_int_equal(sequence_answer_tokens(scheduler_find(e.scheduler, 1)), ++decoded);
    }
    assert_int_equal(sequence_answer_tokens(scheduler_find(e.scheduler, 2)), 1);
    engine_stop(&e);
}

static void choices_run_their_prompt_once(void **state)
{
    struct engine e;
    int32_t tokens = 0;
    (void)state;
    engine_start(&e);
    scheduler_add(e.scheduler, choices_of(1, SLOTS, 450, 150, 0));
    for (; engine_step(&e); sequence_destroy(scheduler_reap(e.scheduler)))
        if (e.steps == 450 / CHUNK + 1) { /* all have their first token */
            struct sequence *q = scheduler_find(e.scheduler, 1);
            for (; q; q = sequence_next(q))
                tokens += sequence_answer_tokens(q);
            assert_int_equal(tokens, SLOTS);
            assert_int_equal(e.rows, 450);
            assert_int_equal(cache_free_pages(e.cache), PAGES - 7 - SLOTS * 3);
        }
    assert_int_equal(e.rows, 450 + SLOTS * 149); /* the last token of each needs no step */
    assert_int_equal(e.forks, SLOTS - 1);
    engine_stop(&e);
}

static void a_cancel_frees_all_choices(void **state)
{
    (void)state;
    for (int32_t steps = 0; steps < 12; steps++) { /* before the fork, at it, and after it */
        struct engine e;
        engine_start(&e);
        scheduler_add(e.scheduler, choices_of(1, SLOTS - 1, 450, 150, 0));
        for (int32_t i = 0; i < steps; i++)
            assert_true(engine_step(&e));
        sequence_finish_all(scheduler_find(e.scheduler, 1), END_CANCELLED, NULL);
        sequence_destroy(scheduler_reap(e.scheduler));
        assert_int_equal(cache_free_pages(e.cache), PAGES);
        assert_int_equal(cache_free_slots(e.cache), SLOTS);
        assert_false(engine_step(&e));
        engine_stop(&e);
    }
}

static void nobody_overtakes_one_that_waits_for_pages(void **state)
{
    struct engine e;
    (void)state;
    engine_start(&e);
    scheduler_add(e.scheduler, sequence_of(1, 960, 640)); /* 25 of 40 pages */
    scheduler_add(e.scheduler, sequence_of(2, 960, 640)); /* has to wait */
    scheduler_add(e.scheduler, sequence_of(3, 1, 1));     /* would fit */
    assert_true(engine_step(&e));
    assert_int_equal(scheduler_running(e.scheduler), 1);
    assert_int_equal(scheduler_waiting(e.scheduler), 2);
    sequence_finish(scheduler_find(e.scheduler, 1), END_CANCELLED, NULL);
    sequence_destroy(scheduler_reap(e.scheduler));
    assert_true(engine_step(&e));
    assert_int_equal(scheduler_running(e.scheduler), 2);
    engine_stop(&e);
}

static void returning_takes_back_those_who_wait_and_then_all(void **state)
{
    struct engine e;
    int32_t returned = 0;
    (void)state;
    engine_start(&e);
    for (int32_t i = 0; i < SLOTS + 2; i++)
        scheduler_add(e.scheduler, sequence_of(i, 5, 5));
    assert_true(engine_step(&e));
    scheduler_finish_waiting(e.scheduler, END_RETURNED);
    for (struct sequence *q; (q = scheduler_reap(e.scheduler)); returned++) {
        assert_int_equal(sequence_end(q), END_RETURNED);
        sequence_destroy(q);
    }
    assert_int_equal(returned, 2);
    assert_true(engine_step(&e));
    scheduler_finish_all(e.scheduler, END_RETURNED);
    for (struct sequence *q; (q = scheduler_reap(e.scheduler)); returned++)
        sequence_destroy(q);
    assert_int_equal(returned, SLOTS + 2);
    assert_false(engine_step(&e));
    engine_stop(&e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_arrivals_and_cancels_leave_nothing_behind),
        cmocka_unit_test(a_long_prompt_does_not_stop_those_who_decode),
        cmocka_unit_test(choices_run_their_prompt_once),
        cmocka_unit_test(a_cancel_frees_all_choices),
        cmocka_unit_test(nobody_overtakes_one_that_waits_for_pages),
        cmocka_unit_test(returning_takes_back_those_who_wait_and_then_all),
    };
    return cmocka_run_group_tests_name("scheduler", tests, NULL, NULL);
}
