/* loop.h - one loop, one thread
 *
 * A turn has these phases, always in this order:
 *   1. wait for a socket, a file descriptor, a signal or the next timer
 *   2. signals
 *   3. timers that were due when the wait ended, earliest first
 *   4. sockets and file descriptors found ready, in the order they were added
 *   5. after-turn callbacks, in the order they were added: group commit, flushing
 *   6. deferred calls: the one place where objects that callbacks may still hold are freed
 *
 * Callbacks are short and never wait.
 *
 * ZeroMQ's own descriptor is edge-triggered, but the loop asks the sockets themselves (zmq_poll): a callback may take
 * one message or many, what it leaves brings it back in the next turn.  It should stop after a bounded number, for the
 * others' sake.
 *
 * Lifetimes:
 *   1. A source or timer is the caller's from _add_ to _remove, and dies with the loop at the latest.
 *   2. _remove may be called from any callback, the source's own too; no callback of it runs afterwards.
 *   3. Sockets and descriptors are borrowed: remove the source, then close.
 *   4. arg is borrowed for as long as the source lives.  To free it inside a callback, use loop_defer(). */
#ifndef K3_COMMON_LOOP_H
#define K3_COMMON_LOOP_H

#include "common/error.h"

struct loop;
struct loop_source;
struct loop_timer;

struct loop *loop_create(struct k3_error *err);
/* Runs the deferred calls, then forgets all sources and gives the signals back, without those that are pending.
 * Accepts NULL. */
void loop_destroy(struct loop *l);

/* Turn until loop_stop(); 0, or -1 when waiting failed.  Can be run again. */
int loop_run(struct loop *l, struct k3_error *err);
/* The present turn is the last one; it is completed. */
void loop_stop(struct loop *l);

/* events and ready: ZMQ_POLLIN and ZMQ_POLLOUT for a socket; POLLIN, POLLOUT, POLLERR, POLLPRI of <poll.h> for a
 * descriptor. */
struct loop_source *loop_add_socket(struct loop *l, void *zmq_socket, short events, void (*fn)(void *arg, short ready),
                                    void *arg);
struct loop_source *loop_add_fd(struct loop *l, int fd, short events, void (*fn)(void *arg, short ready), void *arg);
/* Ask for other events from the next wait on; 0: none for now. */
void loop_source_events(struct loop_source *s, short events);
void loop_source_remove(struct loop_source *s);

/* A timer that is not set. */
struct loop_timer *loop_add_timer(struct loop *l, void (*fn)(void *arg), void *arg);
/* Fire once after so many seconds, then every `again` seconds (0: no more).  Replaces an earlier setting. */
void loop_timer_set(struct loop_timer *t, double after, double again);
void loop_timer_unset(struct loop_timer *t);
void loop_timer_remove(struct loop_timer *t);

/* Take a signal through the loop: it is blocked for this thread and those it starts later, so call this before
 * libraries start theirs.  A child that is to get the signal must unblock it before exec.  -1: the kernel refused. */
int loop_on_signal(struct loop *l, int signo, void (*fn)(void *arg, int signo), void *arg, struct k3_error *err);

/* Call fn at the end of every turn, for ever. */
void loop_after_turn(struct loop *l, void (*fn)(void *arg), void *arg);

/* Call fn(arg) in phase 6 of this turn (or of the next, outside a turn).  What a deferred call defers runs in the
 * same phase. */
void loop_defer(struct loop *l, void (*fn)(void *arg), void *arg);

#endif
