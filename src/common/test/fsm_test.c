/* fsm_test.c - life cycles: only the table's moves happen */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/fsm.h"
#include "common/log.h"

enum { IDLE, BUSY, GONE };
enum { EV_START, EV_FINISH, EV_END };
static const char *const states[] = {"IDLE", "BUSY", "GONE"};
static const char *const events[] = {"start", "finish", "end"};
static const struct fsm_move moves[] = {
    {IDLE, EV_START, BUSY},
    {BUSY, EV_FINISH, IDLE},
    {IDLE, EV_END, GONE},
    {BUSY, EV_END, GONE},
};
static const struct fsm_table table = {"thing", states, events, moves, sizeof moves / sizeof *moves};

static void moves_along_the_table(void **state)
{
    struct fsm f;
    (void)state;
    fsm_init(&f, &table, IDLE);
    assert_int_equal(fsm_step(&f, "1", EV_START), 0);
    assert_int_equal(f.state, BUSY);
    assert_int_equal(fsm_step(&f, "1", EV_FINISH), 0);
    assert_int_equal(f.state, IDLE);
    assert_int_equal(fsm_step(&f, "1", EV_END), 0);
    assert_int_equal(f.state, GONE);
}

static void refuses_every_other_move_and_stays(void **state)
{
    struct fsm f;
    (void)state;
    fsm_init(&f, &table, GONE);
    double since = f.since;
    for (int event = EV_START; event <= EV_END; event++) {
        assert_false(fsm_can(&f, event));
        assert_int_equal(fsm_step(&f, "1", event), -1);
        assert_int_equal(f.state, GONE);
        assert_true(f.since == since);
    }
    fsm_init(&f, &table, IDLE);
    assert_true(fsm_can(&f, EV_START));
    assert_false(fsm_can(&f, EV_FINISH));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(moves_along_the_table),
        cmocka_unit_test(refuses_every_other_move_and_stays),
    };
    k3_log_init("fsm_test", LOG_EMERG);
    return cmocka_run_group_tests_name("fsm", tests, NULL, NULL);
}
