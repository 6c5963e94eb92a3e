/* loop_test.c - phases of a turn, lifetimes, timers, signals, ZeroMQ sockets that are not drained at once */
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <zmq.h>

#include "common/alloc.h"
#include "common/clock.h"
#include "common/loop.h"

/* What ran, as letters in order. */
struct trace {
    struct loop *loop;
    char text[200];
    int pipe[2];
    struct loop_source *source, *other;
    struct loop_timer *timer;
    void *socket;
    int left;
};

static void note(struct trace *t, char c)
{
    size_t n = strlen(t->text);
    if (n + 1 < sizeof t->text)
        t->text[n] = c;
}

static int start(void **state)
{
    struct trace *t = k3_zalloc(sizeof *t);
    struct k3_error err;
    t->loop = loop_create(&err);
    *state = t;
    return t->loop && pipe(t->pipe) == 0 ? 0 : -1;
}

static int stop(void **state)
{
    struct trace *t = *state;
    loop_destroy(t->loop);
    close(t->pipe[0]);
    close(t->pipe[1]);
    free(t);
    return 0;
}

static void on_deferred_again(void *arg)
{
    note(arg, 'D');
}

static void on_deferred(void *arg)
{
    struct trace *t = arg;
    note(t, 'd');
    loop_defer(t->loop, on_deferred_again, t);
}

static void on_ready(void *arg, short ready)
{
    struct trace *t = arg;
    char c;
    note(t, 'f');
    assert_true(ready & POLLIN);
    assert_int_equal(read(t->pipe[0], &c, 1), 1);
    loop_defer(t->loop, on_deferred, t);
    loop_stop(t->loop);
}

static void on_timer(void *arg)
{
    note(arg, 't');
}

static void on_signal(void *arg, int signo)
{
    note(arg, signo == SIGUSR1 ? 's' : '?');
}

static void after_turn(void *arg)
{
    note(arg, 'a');
}

static void a_turn_keeps_its_order(void **state)
{
    struct trace *t = *state;
    struct k3_error err;
    loop_add_fd(t->loop, t->pipe[0], POLLIN, on_ready, t);
    t->timer = loop_add_timer(t->loop, on_timer, t);
    assert_int_equal(loop_on_signal(t->loop, SIGUSR1, on_signal, t, &err), 0);
    loop_after_turn(t->loop, after_turn, t);
    loop_timer_set(t->timer, 0, 0);
    assert_int_equal(write(t->pipe[1], "x", 1), 1);
    raise(SIGUSR1);
    assert_int_equal(loop_run(t->loop, &err), 0);
    assert_string_equal(t->text, "stfadD");
}

static void on_repeat(void *arg)
{
    struct trace *t = arg;
    note(t, 't');
    if (--t->left == 0)
        loop_stop(t->loop);
}

static void timers_repeat_and_can_be_unset(void **state)
{
    struct trace *t = *state;
    struct k3_error err;
    struct loop_timer *never = loop_add_timer(t->loop, on_timer, t);
    t->timer = loop_add_timer(t->loop, on_repeat, t);
    t->left = 3;
    loop_timer_set(never, 0.001, 0);
    loop_timer_unset(never);
    double before = clock_monotonic();
    loop_timer_set(t->timer, 0.01, 0.02);
    assert_int_equal(loop_run(t->loop, &err), 0);
    assert_string_equal(t->text, "ttt");
    assert_true(clock_monotonic() - before >= 0.05);
}

static void on_rearm(void *arg)
{
    struct trace *t = arg;
    note(t, 't');
    loop_timer_set(t->timer, 0, 0);
    if (--t->left == 0)
        loop_stop(t->loop);
}

static void a_timer_set_to_now_waits_for_the_next_turn(void **state)
{
    struct trace *t = *state;
    struct k3_error err;
    t->left = 3;
    t->timer = loop_add_timer(t->loop, on_rearm, t);
    loop_after_turn(t->loop, after_turn, t);
    loop_timer_set(t->timer, 0, 0);
    assert_int_equal(loop_run(t->loop, &err), 0);
    assert_string_equal(t->text, "tatata");
}

static void on_ready_removes_both(void *arg, short ready)
{
    struct trace *t = arg;
    (void)ready;
    note(t, 'f');
    loop_source_remove(t->source);
    loop_source_remove(t->other);
    loop_timer_remove(t->timer);
    loop_stop(t->loop);
}

static void what_is_removed_is_not_called_even_if_it_was_ready(void **state)
{
    struct trace *t = *state;
    struct k3_error err;
    int copy = dup(t->pipe[0]);
    t->source = loop_add_fd(t->loop, t->pipe[0], POLLIN, on_ready_removes_both, t);
    t->other = loop_add_fd(t->loop, copy, POLLIN, on_ready_removes_both, t);
    t->timer = loop_add_timer(t->loop, on_timer, t);
    loop_timer_set(t->timer, 5, 0);
    assert_int_equal(write(t->pipe[1], "x", 1), 1);
    assert_int_equal(loop_run(t->loop, &err), 0);
    assert_string_equal(t->text, "f");
    /* Nothing is left to wake up for but the timer of this second run. */
    t->left = 1;
    t->timer = loop_add_timer(t->loop, on_repeat, t);
    loop_timer_set(t->timer, 0.01, 0);
    assert_int_equal(loop_run(t->loop, &err), 0);
    assert_string_equal(t->text, "ft");
    close(copy);
}

static void on_message(void *arg, short ready)
{
    struct trace *t = arg;
    char c;
    assert_true(ready & ZMQ_POLLIN);
    /* One a turn, though all have arrived: an edge would not come again. */
    assert_int_equal(zmq_recv(t->socket, &c, 1, ZMQ_DONTWAIT), 1);
    note(t, c);
    if (--t->left == 0)
        loop_stop(t->loop);
}

static void on_late(void *arg)
{
    loop_stop(arg);
}

static void messages_left_in_a_socket_bring_it_back(void **state)
{
    struct trace *t = *state;
    struct k3_error err;
    void *zmq = zmq_ctx_new(), *peer = zmq_socket(zmq, ZMQ_PAIR);
    t->socket = zmq_socket(zmq, ZMQ_PAIR);
    assert_int_equal(zmq_bind(t->socket, "inproc://loop"), 0);
    assert_int_equal(zmq_connect(peer, "inproc://loop"), 0);
    for (const char *c = "12345"; *c; c++)
        assert_int_equal(zmq_send(peer, c, 1, 0), 1);
    t->left = 5;
    loop_add_socket(t->loop, t->socket, ZMQ_POLLIN, on_message, t);
    loop_timer_set(loop_add_timer(t->loop, on_late, t->loop), 5, 0);
    assert_int_equal(loop_run(t->loop, &err), 0);
    assert_string_equal(t->text, "12345");
    zmq_close(t->socket);
    zmq_close(peer);
    zmq_ctx_term(zmq);
}

static void destroying_the_loop_runs_what_was_deferred(void **state)
{
    struct k3_error err;
    struct trace t = {.loop = loop_create(&err)};
    (void)state;
    loop_defer(t.loop, on_deferred, &t);
    loop_destroy(t.loop);
    loop_destroy(NULL);
    assert_string_equal(t.text, "dD");
}

static void destroying_the_loop_drops_pending_signals(void **state)
{
    struct k3_error err;
    struct loop *loop = loop_create(&err);
    (void)state;
    assert_int_equal(loop_on_signal(loop, SIGUSR1, on_signal, NULL, &err), 0);
    raise(SIGUSR1);
    loop_destroy(loop);
    /* Still alive: the default action of SIGUSR1 would have ended this program. */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_turn_keeps_its_order, start, stop),
        cmocka_unit_test_setup_teardown(timers_repeat_and_can_be_unset, start, stop),
        cmocka_unit_test_setup_teardown(a_timer_set_to_now_waits_for_the_next_turn, start, stop),
        cmocka_unit_test_setup_teardown(what_is_removed_is_not_called_even_if_it_was_ready, start, stop),
        cmocka_unit_test_setup_teardown(messages_left_in_a_socket_bring_it_back, start, stop),
        cmocka_unit_test(destroying_the_loop_runs_what_was_deferred),
        cmocka_unit_test(destroying_the_loop_drops_pending_signals),
    };
    return cmocka_run_group_tests_name("loop", tests, NULL, NULL);
}
