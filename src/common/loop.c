#include "common/loop.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <zmq.h>

#include "common/alloc.h"
#include "common/clock.h"

struct loop_source {
    struct loop *loop;
    void *socket; /* NULL: fd counts */
    int fd;
    short events;
    void (*fn)(void *arg, short ready); /* NULL: removed, freed in phase 6 */
    void *arg;
};

struct loop_timer {
    struct loop *loop;
    double due; /* INFINITY: not set */
    double again;
    bool armed_now;        /* set during the timers' phase, so not before the next turn */
    void (*fn)(void *arg); /* NULL: removed */
    void *arg;
};

struct call {
    void (*fn)(void *arg);
    void *arg;
};

struct calls {
    struct call *v;
    size_t n;
};

struct loop {
    struct loop_source **sources;
    size_t source_count;
    struct loop_timer **timers;
    size_t timer_count;
    zmq_pollitem_t *items; /* [0] is signal_fd */
    size_t item_room;
    struct calls after, deferred;
    int signal_fd;
    sigset_t signals, old_mask;
    struct {
        void (*fn)(void *arg, int signo);
        void *arg;
    } handlers[NSIG];
    bool stopping;
    bool removals; /* something was removed: sweep in phase 6 */
};

static void add_call(struct calls *c, void (*fn)(void *arg), void *arg)
{
    c->v = k3_reallocarray(c->v, c->n + 1, sizeof *c->v);
    c->v[c->n++] = (struct call){fn, arg};
}

struct loop *loop_create(struct k3_error *err)
{
    struct loop *l = k3_zalloc(sizeof *l);

    sigemptyset(&l->signals);
    pthread_sigmask(SIG_SETMASK, NULL, &l->old_mask);
    if ((l->signal_fd = signalfd(-1, &l->signals, SFD_CLOEXEC | SFD_NONBLOCK)) < 0) {
        k3_errorf(err, "signalfd: %s", strerror(errno));
        loop_destroy(l);
        return NULL;
    }
    return l;
}

/* Free what was removed during the turn. */
static void sweep(struct loop *l)
{
    size_t kept = 0;

    for (size_t i = 0; i < l->source_count; i++)
        if (l->sources[i]->fn)
            l->sources[kept++] = l->sources[i];
        else
            free(l->sources[i]);
    l->source_count = kept;
    kept = 0;
    for (size_t i = 0; i < l->timer_count; i++)
        if (l->timers[i]->fn)
            l->timers[kept++] = l->timers[i];
        else
            free(l->timers[i]);
    l->timer_count = kept;
    l->removals = false;
}

static void run_deferred(struct loop *l)
{
    /* By index: a call may defer another one and move the array. */
    for (size_t i = 0; i < l->deferred.n; i++) {
        struct call call = l->deferred.v[i];
        call.fn(call.arg);
    }
    l->deferred.n = 0;
    if (l->removals)
        sweep(l);
}

void loop_destroy(struct loop *l)
{
    struct signalfd_siginfo late;
    int saved = errno;

    if (!l)
        return;
    run_deferred(l);
    for (size_t i = 0; i < l->source_count; i++)
        free(l->sources[i]);
    for (size_t i = 0; i < l->timer_count; i++)
        free(l->timers[i]);
    /* One that is still pending was meant for the loop; given back with the mask it would kill the program. */
    while (read(l->signal_fd, &late, sizeof late) == sizeof late)
        ;
    if (l->signal_fd >= 0)
        close(l->signal_fd);
    pthread_sigmask(SIG_SETMASK, &l->old_mask, NULL);
    free(l->sources);
    free(l->timers);
    free(l->items);
    free(l->after.v);
    free(l->deferred.v);
    free(l);
    errno = saved;
}

static struct loop_source *add_source(struct loop *l, struct loop_source source)
{
    struct loop_source *s = k3_zalloc(sizeof *s);

    *s = source;
    l->sources = k3_reallocarray(l->sources, l->source_count + 1, sizeof *l->sources);
    l->sources[l->source_count++] = s;
    return s;
}

struct loop_source *loop_add_socket(struct loop *l, void *zmq_socket, short events, void (*fn)(void *arg, short ready),
                                    void *arg)
{
    return add_source(l, (struct loop_source){l, zmq_socket, -1, events, fn, arg});
}

struct loop_source *loop_add_fd(struct loop *l, int fd, short events, void (*fn)(void *arg, short ready), void *arg)
{
    return add_source(l, (struct loop_source){l, NULL, fd, events, fn, arg});
}

void loop_source_events(struct loop_source *s, short events)
{
    s->events = events;
}

void loop_source_remove(struct loop_source *s)
{
    if (!s)
        return;
    s->fn = NULL;
    s->events = 0;
    s->loop->removals = true;
}

struct loop_timer *loop_add_timer(struct loop *l, void (*fn)(void *arg), void *arg)
{
    struct loop_timer *t = k3_zalloc(sizeof *t);

    *t = (struct loop_timer){.loop = l, .due = INFINITY, .fn = fn, .arg = arg};
    l->timers = k3_reallocarray(l->timers, l->timer_count + 1, sizeof *l->timers);
    l->timers[l->timer_count++] = t;
    return t;
}

void loop_timer_set(struct loop_timer *t, double after, double again)
{
    t->due = clock_monotonic() + after;
    t->again = again;
    t->armed_now = true;
}

void loop_timer_unset(struct loop_timer *t)
{
    t->due = INFINITY;
}

void loop_timer_remove(struct loop_timer *t)
{
    if (!t)
        return;
    t->fn = NULL;
    t->due = INFINITY;
    t->loop->removals = true;
}

int loop_on_signal(struct loop *l, int signo, void (*fn)(void *arg, int signo), void *arg, struct k3_error *err)
{
    sigset_t one;

    sigemptyset(&one);
    sigaddset(&one, signo);
    sigaddset(&l->signals, signo);
    if (pthread_sigmask(SIG_BLOCK, &one, NULL) != 0 || signalfd(l->signal_fd, &l->signals, 0) < 0)
        return k3_errorf(err, "signal %s cannot be taken: %s", strsignal(signo), strerror(errno));
    l->handlers[signo].fn = fn;
    l->handlers[signo].arg = arg;
    return 0;
}

void loop_after_turn(struct loop *l, void (*fn)(void *arg), void *arg)
{
    add_call(&l->after, fn, arg);
}

void loop_defer(struct loop *l, void (*fn)(void *arg), void *arg)
{
    add_call(&l->deferred, fn, arg);
}

void loop_stop(struct loop *l)
{
    l->stopping = true;
}

static struct loop_timer *earliest(const struct loop *l)
{
    struct loop_timer *first = NULL;

    for (size_t i = 0; i < l->timer_count; i++)
        if (!first || l->timers[i]->due < first->due)
            first = l->timers[i];
    return first;
}

/* Milliseconds to wait, rounded up so that the timer is due when the wait ends; -1: for ever. */
static long wait_ms(const struct loop *l)
{
    const struct loop_timer *t = earliest(l);

    if (l->deferred.n > 0 || l->removals)
        return 0;
    if (!t || isinf(t->due))
        return -1;
    double ms = ceil((t->due - clock_monotonic()) * 1e3);
    return ms < 0 ? 0 : ms > 3600e3 ? 3600000 : (long)ms;
}

static int wait_for_work(struct loop *l, struct k3_error *err)
{
    if (l->item_room < l->source_count + 1) {
        l->item_room = l->source_count + 1;
        l->items = k3_reallocarray(l->items, l->item_room, sizeof *l->items);
    }
    l->items[0] = (zmq_pollitem_t){NULL, l->signal_fd, ZMQ_POLLIN, 0};
    for (size_t i = 0; i < l->source_count; i++) {
        const struct loop_source *s = l->sources[i];
        l->items[i + 1] = (zmq_pollitem_t){s->socket, s->fd, s->events, 0};
    }
    if (zmq_poll(l->items, (int)l->source_count + 1, wait_ms(l)) >= 0 || errno == EINTR)
        return 0;
    return k3_errorf(err, "waiting for messages: %s", zmq_strerror(errno));
}

static void run_signals(struct loop *l)
{
    struct signalfd_siginfo info;

    while (read(l->signal_fd, &info, sizeof info) == sizeof info)
        if (info.ssi_signo < NSIG && l->handlers[info.ssi_signo].fn)
            l->handlers[info.ssi_signo].fn(l->handlers[info.ssi_signo].arg, (int)info.ssi_signo);
}

static void run_timers(struct loop *l)
{
    double now = clock_monotonic();

    for (size_t i = 0; i < l->timer_count; i++)
        l->timers[i]->armed_now = false;
    for (;;) {
        struct loop_timer *next = NULL;
        for (size_t i = 0; i < l->timer_count; i++)
            if (!l->timers[i]->armed_now && l->timers[i]->due <= now && (!next || l->timers[i]->due < next->due))
                next = l->timers[i];
        if (!next)
            return;
        /* Once a turn, however far behind it is: a stopped program must not wake up to a burst. */
        next->due = next->again > 0 ? fmax(next->due + next->again, now) : INFINITY;
        next->armed_now = true;
        next->fn(next->arg);
    }
}

static void run_sources(struct loop *l, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct loop_source *s = l->sources[i];
        short ready = l->items[i + 1].revents;
        if (ready && s->fn)
            s->fn(s->arg, ready);
    }
}

int loop_run(struct loop *l, struct k3_error *err)
{
    l->stopping = false;
    while (!l->stopping) {
        size_t count = l->source_count; /* those added by callbacks of this turn were not waited for */
        if (wait_for_work(l, err) < 0)
            return -1;
        if (l->items[0].revents)
            run_signals(l);
        run_timers(l);
        run_sources(l, count);
        for (size_t i = 0; i < l->after.n; i++)
            l->after.v[i].fn(l->after.v[i].arg);
        run_deferred(l);
    }
    return 0;
}
