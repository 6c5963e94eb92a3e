/* command_test.c - programs run beside the loop */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/clock.h"
#include "common/command.h"

struct seen {
    struct loop *loop;
    int calls, status;
    char output[COMMAND_OUTPUT + 1];
};

static void note(void *arg, int status, const char *output)
{
    struct seen *s = arg;

    s->calls++;
    s->status = status;
    strcpy(s->output, output);
    loop_stop(s->loop);
}

/* Run it to its end. */
static struct seen *run(struct seen *s, const char *script, double limit_sec)
{
    char *argv[] = {(char *)"sh", (char *)"-c", (char *)script, NULL};
    struct k3_error err;

    memset(s, 0, sizeof *s);
    assert_non_null(s->loop = loop_create(&err));
    assert_non_null(command_start(s->loop, argv, limit_sec, note, s, &err));
    assert_int_equal(loop_run(s->loop, &err), 0);
    loop_destroy(s->loop);
    assert_int_equal(s->calls, 1);
    return s;
}

static struct seen seen;

static void test_output_and_status(void **state)
{
    (void)state;
    run(&seen, "echo one; echo two >&2; read line || echo nothing to read; exit 3", 10);
    assert_int_equal(seen.status, 3);
    assert_string_equal(seen.output, "one\ntwo\nnothing to read\n");
}

static void test_a_signal_is_no_status(void **state)
{
    (void)state;
    assert_int_equal(run(&seen, "kill -9 $$", 10)->status, -1);
}

static void test_the_time_is_limited(void **state)
{
    double start = clock_monotonic();

    (void)state;
    run(&seen, "echo begun; exec sleep 20", 0.2);
    assert_int_equal(seen.status, -1);
    assert_string_equal(seen.output, "begun\n");
    assert_true(clock_monotonic() - start < 10);
}

static void test_much_output_is_cut(void **state)
{
    (void)state;
    run(&seen, "i=0; while [ $i -lt 3000 ]; do echo 0123456789012345678901234567890123456789; i=$((i + 1)); done", 10);
    assert_int_equal(seen.status, 0);
    assert_int_equal(strlen(seen.output), COMMAND_OUTPUT);
}

/* Its child keeps the pipe open. */
static void test_a_grandchild_holds_nothing_up(void **state)
{
    double start = clock_monotonic();

    (void)state;
    assert_string_equal(run(&seen, "sleep 3 & echo done", 20)->output, "done\n");
    assert_true(clock_monotonic() - start < 2.5);
}

static void test_what_cannot_be_started(void **state)
{
    char *argv[] = {(char *)"there-is-no-such-program", NULL};
    struct k3_error err;
    struct loop *loop;

    (void)state;
    assert_true(command_exists("sh"));
    assert_false(command_exists(argv[0]));
    assert_non_null(loop = loop_create(&err));
    assert_null(command_start(loop, argv, 10, note, &seen, &err));
    assert_int_equal(errno, ENOENT);
    assert_string_equal(err.text, "there-is-no-such-program: No such file or directory");
    loop_destroy(loop);
}

static void stop(void *arg)
{
    loop_stop(arg);
}

static void test_stopped_it_says_nothing(void **state)
{
    char *argv[] = {(char *)"true", NULL};
    struct k3_error err;
    struct loop *loop;
    struct loop_timer *timer;

    (void)state;
    memset(&seen, 0, sizeof seen);
    assert_non_null(loop = loop_create(&err));
    command_stop(command_start(loop, argv, 10, note, &seen, &err));
    timer = loop_add_timer(loop, stop, loop);
    loop_timer_set(timer, 0.2, 0);
    assert_int_equal(loop_run(loop, &err), 0);
    assert_int_equal(seen.calls, 0);
    loop_destroy(loop);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_output_and_status),
        cmocka_unit_test(test_a_signal_is_no_status),
        cmocka_unit_test(test_the_time_is_limited),
        cmocka_unit_test(test_much_output_is_cut),
        cmocka_unit_test(test_a_grandchild_holds_nothing_up),
        cmocka_unit_test(test_what_cannot_be_started),
        cmocka_unit_test(test_stopped_it_says_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
