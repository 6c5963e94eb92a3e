/* plan_test.c - rank 0 fills a plan, another rank makes the same step of its bytes */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "engine/plan.h"

static const struct plan_limits limits = {
    .rows = 12, .slots = 3, .pages = 20, .slot_pages = 6, .page_tokens = 4, .checkpoints = 2};

/* What comm_broadcast() does. */
static void send(struct plan *from, struct plan *to)
{
    size_t bytes, same;
    void *message = plan_message(from, &bytes);
    void *copy = plan_message(to, &same);
    assert_int_equal(bytes, same);
    memcpy(copy, message, bytes);
}

static void every_rank_makes_the_same_step(void **state)
{
    struct plan *root = plan_create(&limits), *rank = plan_create(&limits);
    const int32_t prompt[] = {7, 8, 9, 10, 11, 12}, next[] = {99};
    struct forward_step step;
    struct k3_error err;
    (void)state;

    plan_begin(root, PLAN_STEP);
    plan_add_page(root, 2, 0, 5);
    plan_add_page(root, 2, 1, 17);
    plan_add(root, 2, 0, prompt, 6, 0, 0);
    send(root, rank);
    assert_int_equal(plan_apply(rank, &step, &err), 0);
    assert_int_equal(step.outputs, 0);

    /* Later pages join the earlier ones, slot by slot. */
    plan_begin(root, PLAN_STEP);
    plan_add_page(root, 0, 0, 3);
    plan_add(root, 0, 0, next, 1, 0, 1);
    plan_add_page(root, 2, 2, 1);
    plan_add(root, 2, 6, prompt, 3, 9, 1);
    assert_int_equal(plan_room(root), 12 - 4);
    send(root, rank);
    assert_int_equal(plan_kind(rank), PLAN_STEP);
    assert_int_equal(plan_apply(rank, &step, &err), 0);
    assert_int_equal(step.batch.rows, 4);
    assert_int_equal(step.batch.seqs, 2);
    assert_memory_equal(step.token, ((int32_t[]){99, 7, 8, 9}), 4 * sizeof(int32_t));
    assert_memory_equal(step.batch.begin, ((int32_t[]){0, 1, 4}), 3 * sizeof(int32_t));
    assert_memory_equal(step.batch.slot, ((int32_t[]){0, 2}), 2 * sizeof(int32_t));
    assert_memory_equal(step.batch.pos, ((int64_t[]){0, 6}), 2 * sizeof(int64_t));
    assert_memory_equal(step.batch.prefill, ((int32_t[]){0, 9}), 2 * sizeof(int32_t));
    assert_int_equal(step.outputs, 2);
    assert_memory_equal(step.output, ((int32_t[]){0, 3}), 2 * sizeof(int32_t));
    assert_int_equal(step.batch.page_stride, 6);
    assert_int_equal(step.batch.pages[0], 3);
    assert_memory_equal(step.batch.pages + 6, ((int32_t[]){5, 17, 1}), 3 * sizeof(int32_t));
    plan_destroy(root);
    plan_destroy(rank);
}

/* Slot 2's pages outlive it in checkpoint 1, and slot 0 goes on with them. */
static void every_rank_keeps_the_pages_of_a_checkpoint(void **state)
{
    struct plan *root = plan_create(&limits), *rank = plan_create(&limits);
    const int32_t prompt[] = {7, 8, 9, 10, 11, 12, 13, 14, 15};
    struct forward_step step;
    struct k3_error err;
    (void)state;

    plan_begin(root, PLAN_STEP);
    plan_add_page(root, 2, 0, 5);
    plan_add_page(root, 2, 1, 17);
    plan_add(root, 2, 0, prompt, 8, 0, 0);
    send(root, rank);
    assert_int_equal(plan_apply(rank, &step, &err), 0);
    assert_int_equal(step.copies, 0);

    plan_begin(root, PLAN_STEP);
    plan_add_save(root, 2, 1, 2);
    plan_add_load(root, 1, 0, 2);
    plan_add_page(root, 0, 2, 3);
    plan_add(root, 0, 8, prompt, 1, 0, 1);
    send(root, rank);
    assert_int_equal(plan_apply(rank, &step, &err), 0);
    assert_int_equal(step.copies, 2);
    assert_int_equal(step.copy[0].kind, FORWARD_SAVE);
    assert_int_equal(step.copy[0].from, 2);
    assert_int_equal(step.copy[0].to, 1);
    assert_int_equal(step.copy[1].kind, FORWARD_LOAD);
    assert_int_equal(step.copy[1].from, 1);
    assert_int_equal(step.copy[1].to, 0);
    assert_memory_equal(step.batch.pages, ((int32_t[]){5, 17, 3}), 3 * sizeof(int32_t));

    plan_begin(root, PLAN_STEP); /* the third page is not full */
    plan_add_fork(root, 0, 1, 2, 3, 19);
    plan_add(root, 1, 9, prompt, 1, 0, 1);
    send(root, rank);
    assert_int_equal(plan_apply(rank, &step, &err), 0);
    assert_int_equal(step.copy[0].kind, FORWARD_FORK);
    assert_int_equal(step.copy[0].to_page, 19);
    assert_memory_equal(step.batch.pages, ((int32_t[]){5, 17, 19}), 3 * sizeof(int32_t));
    plan_destroy(root);
    plan_destroy(rank);
}

static void idle_and_stop_are_told_apart(void **state)
{
    struct plan *root = plan_create(&limits), *rank = plan_create(&limits);
    (void)state;
    plan_begin(root, PLAN_IDLE);
    send(root, rank);
    assert_int_equal(plan_kind(rank), PLAN_IDLE);
    plan_begin(root, PLAN_STOP);
    send(root, rank);
    assert_int_equal(plan_kind(rank), PLAN_STOP);
    plan_destroy(root);
    plan_destroy(rank);
}

/* A rank that agreed on nothing must not write where the message says. */
static void a_plan_out_of_bounds_is_refused(void **state)
{
    const int32_t token[] = {1};
    const struct {
        int32_t slot, index, page;
        int64_t pos;
    } bad[] = {{3, 0, 0, 0},  {-1, 0, 0, 0}, {0, 6, 0, 0},  {0, -1, 0, 0},
               {0, 0, 20, 0}, {0, 0, -1, 0}, {0, 0, 0, -1}, {0, 0, 0, 24}};
    struct forward_step step;
    struct k3_error err;
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct plan *p = plan_create(&limits);
        plan_begin(p, PLAN_STEP);
        plan_add_page(p, bad[i].slot, bad[i].index, bad[i].page);
        plan_add(p, bad[i].slot, bad[i].pos, token, 1, 0, 0);
        errno = 0;
        assert_int_equal(plan_apply(p, &step, &err), -1);
        assert_int_equal(errno, EPROTO);
        plan_destroy(p);
    }
    static const struct {
        int32_t slot, checkpoint, pages;
    } nowhere[] = {{3, 0, 1}, {-1, 0, 1}, {0, 2, 1}, {0, -1, 1}, {0, 0, 7}, {0, 0, -1}};
    for (size_t i = 0; i < sizeof nowhere / sizeof *nowhere; i++) {
        struct plan *p = plan_create(&limits);
        plan_begin(p, PLAN_STEP);
        plan_add_save(p, nowhere[i].slot, nowhere[i].checkpoint, nowhere[i].pages);
        plan_add(p, 0, 0, token, 1, 0, 0);
        errno = 0;
        assert_int_equal(plan_apply(p, &step, &err), -1);
        assert_int_equal(errno, EPROTO);
        plan_destroy(p);
    }
    static const int32_t lost[][5] = {{3, 0, 1, 0, 0},  {0, 3, 1, 0, 0},  {0, -1, 1, 0, 0}, {0, 1, 6, 0, 0},
                                      {0, 1, 1, 20, 0}, {0, 1, 1, -1, 0}, {0, 1, 1, 0, 20}, {0, 1, 1, 0, -2}};
    for (size_t i = 0; i < sizeof lost / sizeof *lost; i++) {
        struct plan *p = plan_create(&limits);
        plan_begin(p, PLAN_STEP);
        plan_add_fork(p, lost[i][0], lost[i][1], lost[i][2], lost[i][3], lost[i][4]);
        plan_add(p, 0, 0, token, 1, 0, 0);
        assert_int_equal(plan_apply(p, &step, &err), -1);
        plan_destroy(p);
    }
    struct plan *p = plan_create(&limits);
    plan_begin(p, PLAN_STEP);
    plan_add_page(p, 2, 5, 19);
    plan_add(p, 2, 23, token, 1, 0, 0); /* the last position there is */
    assert_int_equal(plan_apply(p, &step, &err), 0);
    plan_begin(p, PLAN_STEP); /* no rows at all */
    assert_int_equal(plan_apply(p, &step, &err), -1);
    plan_destroy(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_rank_makes_the_same_step),
        cmocka_unit_test(every_rank_keeps_the_pages_of_a_checkpoint),
        cmocka_unit_test(idle_and_stop_are_told_apart),
        cmocka_unit_test(a_plan_out_of_bounds_is_refused),
    };
    return cmocka_run_group_tests_name("plan", tests, NULL, NULL);
}
