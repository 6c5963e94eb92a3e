#include "engine/intake.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sodium.h>
#include <zmq.h>

#include "common/alloc.h"
#include "common/clock.h"
#include "common/fsm.h"
#include "common/log.h"
#include "engine/kept.h"
#include "engine/step.h"
#include "model/layout.h"
#include "wire/auth.h"
#include "wire/frame.h"

enum {
    LINE_MESSAGES = 65536, /* to a daemon that does not listen, before that is noticed */
    TURN_MESSAGES = 256,   /* handled before others get their turn */
    HEARTBEATS_MISSED = 5, /* the daemon is away */
    HEARTBEATS_HEARD = 10, /* after an answer's end, so the daemon was there and has it */
    WIRE_VERSION_HELD = 2  /* from this on HELLO and WELCOME agree about what is held */
};
/* HELLO is said again after so long without a welcome, or sooner where somebody answers who does not know us. */
static const double hello_again_s = 5, hello_soon_s = 1;

enum phase { LOADING, SERVING, DRAINING, STOPPING, ENDED };
enum event { EV_LOADED, EV_DRAIN, EV_EMPTY, EV_STOPPED };

static const struct fsm_move moves[] = {
    {LOADING, EV_LOADED, SERVING}, {LOADING, EV_DRAIN, STOPPING}, /* nothing was promised yet */
    {SERVING, EV_DRAIN, DRAINING}, {DRAINING, EV_EMPTY, STOPPING},
    {STOPPING, EV_STOPPED, ENDED}, {LOADING, EV_STOPPED, ENDED}, /* this row and the next two: it failed */
    {SERVING, EV_STOPPED, ENDED},  {DRAINING, EV_STOPPED, ENDED},
};
static const struct fsm_table life = {
    .what = "engine of job",
    .states = (const char *const[]){"loading", "serving", "draining", "stopping", "ended"},
    .events = (const char *const[]){"loaded", "drain", "nothing left", "stopped"},
    .moves = moves,
    .count = sizeof moves / sizeof *moves,
};

/* A request that the daemon has given us, and may not have got back. */
struct held {
    struct k3_id id;
    struct message given; /* ENGINE_HELD: as it was given */
    uint64_t lease;
    uint64_t tokens;  /* of its answer so far */
    uint32_t choices; /* that many slots are its */
    struct kept *kept;
    struct message end; /* type 0: there is none yet */
    double ended;       /* when that was said */
};

struct intake {
    struct intake_options o;
    char job[16], layout[LAYOUT_NAME];
    uint64_t incarnation;
    struct k3_id hello_id; /* of the last HELLO, to know what an answer is about */
    struct fsm life;
    char *refused;

    struct loop *loop;
    void *socket;
    struct auth *auth;
    struct loop_source *from_daemon, *from_leader;
    struct loop_timer *beat, *drained;

    uint16_t version; /* that is spoken to the daemon */
    bool known;       /* the daemon has welcomed us and was heard of lately */
    double heartbeat_s, heard, said_hello;
    double away;     /* since when not known */
    double hello_at; /* while not known: when HELLO is said again */
    uint64_t tokens; /* since the last heartbeat */
    double beaten;   /* when that was */

    struct held *held;
    size_t held_count, held_cap;
    uint64_t last_lease;
};

/* --- what we hold ---------------------------------------------------------------------------------------------------
 */

static struct held *held_by_id(const struct intake *in, const struct k3_id *id)
{
    for (size_t i = 0; i < in->held_count; i++)
        if (k3_id_equal(&in->held[i].id, id))
            return &in->held[i];
    return NULL;
}

static struct held *held_by_lease(const struct intake *in, uint64_t lease)
{
    for (size_t i = 0; i < in->held_count; i++)
        if (in->held[i].lease == lease)
            return &in->held[i];
    return NULL;
}

/* Takes what request holds. */
static void hold(struct intake *in, struct message_lease *request, uint64_t lease)
{
    uint32_t choices = message_ask_choices(&request->ask);
    size_t most = in->o.keep_bytes / (size_t)in->o.slots * choices;
    uint64_t begin[MESSAGE_CHOICES] = {request->out.n};

    if (in->held_count == in->held_cap) {
        in->held_cap = in->held_cap ? 2 * in->held_cap : 16;
        in->held = k3_reallocarray(in->held, in->held_cap, sizeof *in->held);
    }
    for (size_t i = 0; i < request->outn.n; i++)
        begin[i] = request->outn.v[i];
    struct held *h = &in->held[in->held_count++];
    *h = (struct held){.id = request->id,
                       .given = message_of(WIRE_ENGINE_HELD, &request->id),
                       .lease = lease,
                       .tokens = request->out.n,
                       .choices = choices,
                       .kept = kept_create(begin, choices, most)};
    h->given.engine_held = *request;
    *request = (struct message_lease){.id = request->id};
}

/* Moves the last into its place. */
static void let_go(struct intake *in, struct held *h)
{
    kept_destroy(h->kept);
    message_clear(&h->given);
    message_clear(&h->end);
    *h = in->held[--in->held_count];
}

static bool has_ended(const struct held *h)
{
    return h->end.head.type != 0;
}

static size_t running(const struct intake *in)
{
    size_t n = 0;

    for (size_t i = 0; i < in->held_count; i++)
        n += !has_ended(&in->held[i]);
    return n;
}

static uint32_t credit(const struct intake *in)
{
    uint32_t slots = (uint32_t)in->o.slots, used = 0;

    for (size_t i = 0; i < in->held_count; i++)
        used += has_ended(&in->held[i]) ? 0 : in->held[i].choices;
    return in->life.state == SERVING && used < slots ? slots - used : 0;
}

/* --- to the leader --------------------------------------------------------------------------------------------------
 */

static void give_order(struct intake *in, enum order_kind kind, uint64_t lease, struct sequence *q)
{
    struct order *o = order_create(kind);

    o->lease = lease;
    o->sequence = q;
    mailbox_post(in->o.orders, &o->mail);
}

static void drop(struct intake *in, struct held *h)
{
    give_order(in, ORDER_DROP, h->lease, NULL);
    let_go(in, h);
}

/* The new incarnation tells the daemon that it has to lease the requests again. */
static void drop_all(struct intake *in, const char *why)
{
    log_warning("%s: dropping %zu answers, which it will ask for again", why, in->held_count);
    while (in->held_count > 0)
        drop(in, in->held);
    randombytes_buf(&in->incarnation, sizeof in->incarnation);
}

/* What is said from now on may not be heard, so it is kept and nothing said. */
static void lose_contact(struct intake *in, const char *why)
{
    if (!in->known)
        return;
    log_warning("%s: going on with %zu requests", why, in->held_count);
    in->known = false;
    in->away = clock_monotonic();
}

/* --- to the daemon --------------------------------------------------------------------------------------------------
 */

static int say(struct intake *in, const struct message *m, struct auth *auth)
{
    struct message said = *m;
    struct k3_error err;

    said.head.version = in->version;
    if (frame_send(in->socket, NULL, &said, auth, &err) == 0)
        return 0;
    if (auth || errno != EAGAIN)
        log_err("%s to the daemon: %s", message_type_name(m->head.type), err.text);
    return -1;
}

static void say_hello(struct intake *in)
{
    k3_id_random(&in->hello_id);
    struct message m = message_of(WIRE_ENGINE_HELLO, &in->hello_id);
    struct message_engine_hello *hello = &m.engine_hello;
    size_t held = in->held_count < MESSAGE_ROWS ? in->held_count : MESSAGE_ROWS;

    hello->job = in->o.job;
    hello->inc = in->incarnation;
    hello->node = (char *)in->o.node;
    hello->model = (char *)in->o.model;
    hello->ranks = (uint32_t)in->o.ranks;
    hello->layout = in->layout;
    hello->key = (char *)route_key(in->o.route);
    hello->vmin = WIRE_VERSION_OLDEST;
    hello->vmax = WIRE_VERSION;
    hello->held.n = held;
    hello->held.v = k3_calloc(held, sizeof *hello->held.v);
    for (size_t i = 0; i < held; i++)
        hello->held.v[i] =
            (struct message_held){.id = in->held[i].id, .n = in->held[i].tokens, .offs = kept_first(in->held[i].kept)};
    say(in, &m, in->auth);
    free(hello->held.v);
    in->said_hello = clock_monotonic();
    in->hello_at = in->said_hello + hello_again_s;
}

/* Somebody is there. */
static void say_hello_soon(struct intake *in)
{
    in->hello_at = fmin(in->hello_at, in->said_hello + hello_soon_s);
    if (clock_monotonic() >= in->hello_at)
        say_hello(in);
}

static void say_ready(struct intake *in)
{
    struct message m = message_of(WIRE_ENGINE_READY, NULL);

    m.engine_ready.slots = (uint32_t)in->o.slots;
    m.engine_ready.ctx = (uint32_t)in->o.limits.context;
    m.engine_ready.credit = credit(in);
    say(in, &m, NULL);
}

static void say_credit(struct intake *in)
{
    struct message m = message_of(WIRE_CREDIT, NULL);

    m.credit.n = credit(in);
    if (in->known)
        say(in, &m, NULL);
}

/* tokens: of the answer that the daemon has by now */
static void say_failed(struct intake *in, const struct k3_id *id, uint64_t tokens, const struct k3_error *why)
{
    struct message m = message_of(WIRE_DONE, id);

    m.done.why = DONE_FAILED;
    m.done.msg = (char *)why->text;
    m.done.ctok = (uint32_t)tokens;
    say(in, &m, NULL);
}

static void say_returned(struct intake *in, const struct k3_id *id)
{
    struct message m = message_of(WIRE_RETURNED, id);

    say(in, &m, NULL);
}

/* Something of h's answer, which is kept whether or not this gets through.  False: h is gone. */
static bool say_of(struct intake *in, struct held *h, const struct message *m)
{
    struct k3_error why;

    if (!in->known || say(in, m, NULL) == 0)
        return true;
    if (errno == EAGAIN) {
        lose_contact(in, "the daemon takes no more");
        return true;
    }
    /* Not even the wire takes it: this answer fails, the others go on. */
    k3_errorf(&why, "the engine made a message that cannot be sent; its log says more");
    say_failed(in, &h->id, h->tokens, &why);
    drop(in, h);
    return false;
}

/* Ends that were said so long ago, and heartbeats since. */
static void forget_ended(struct intake *in, double now)
{
    for (size_t i = in->held_count; i-- > 0;)
        if (has_ended(&in->held[i]) && now - in->held[i].ended > HEARTBEATS_HEARD * in->heartbeat_s)
            let_go(in, &in->held[i]);
}

static void beat(void *arg)
{
    struct intake *in = arg;
    double now = clock_monotonic();
    struct message m = message_of(WIRE_HEARTBEAT, NULL);

    if (now - in->heard > HEARTBEATS_MISSED * in->heartbeat_s)
        lose_contact(in, "the daemon is silent");
    if (!in->known) {
        if (in->held_count > 0 && now - in->away > in->o.away_timeout_s)
            drop_all(in, "the daemon has been away for too long");
        if (now >= in->hello_at)
            say_hello(in);
        return;
    }
    forget_ended(in, now);
    m.heartbeat.rate = (double)in->tokens / (now - in->beaten);
    m.heartbeat.run = (uint32_t)running(in);
    m.heartbeat.steps = *in->o.steps;
    in->tokens = 0;
    in->beaten = now;
    say(in, &m, NULL);
}

/* --- the end --------------------------------------------------------------------------------------------------------
 */

static void stop_when_empty(struct intake *in)
{
    if (in->life.state != DRAINING || running(in) > 0)
        return;
    fsm_step(&in->life, in->job, EV_EMPTY);
    give_order(in, ORDER_STOP, 0, NULL);
}

static void give_back(void *arg)
{
    struct intake *in = arg;

    log_notice("drain: giving back %zu requests", running(in));
    give_order(in, ORDER_RETURN_ALL, 0, NULL);
}

void intake_drain(struct intake *in, const char *why)
{
    if (in->life.state == DRAINING) {
        give_back(in);
        return;
    }
    if (!fsm_can(&in->life, EV_DRAIN))
        return;
    log_notice("drain: %s, %zu requests here, %.0f s for them", why, running(in), in->o.drain_timeout_s);
    fsm_step(&in->life, in->job, EV_DRAIN);
    if (in->life.state == STOPPING) {
        give_order(in, ORDER_STOP, 0, NULL);
        return;
    }
    say_credit(in);
    give_order(in, ORDER_RETURN_WAITING, 0, NULL);
    loop_timer_set(in->drained, in->o.drain_timeout_s, 0);
    stop_when_empty(in);
}

const char *intake_refused(const struct intake *in)
{
    return in->refused;
}

/* --- from the daemon ------------------------------------------------------------------------------------------------
 */

static const struct message_held *row_of(const struct message_held *row, size_t n, const struct k3_id *id)
{
    for (size_t i = 0; i < n; i++)
        if (k3_id_equal(&row[i].id, id))
            return &row[i];
    return NULL;
}

static bool has_from(const struct held *h, const struct message_u64s *offs)
{
    struct message_u64s first = kept_first(h->kept);
    bool has = first.n == offs->n;

    for (size_t i = 0; has && i < first.n; i++)
        has = first.v[i] <= offs->v[i];
    return has;
}

/* What the daemon lacks of an answer, from these tokens on. */
static void say_again(struct intake *in, struct held *h, const struct message_u64s *offs)
{
    struct message m = message_of(WIRE_DELTA, &h->id);

    for (const struct report *r = NULL; in->known && (r = kept_after(h->kept, r));) {
        m.delta = r->message.delta;
        if (m.delta.off >= offs->v[m.delta.c] && !say_of(in, h, &m))
            return;
    }
    h->ended = clock_monotonic();
    if (has_ended(h))
        say_of(in, h, &h->end);
}

/* The daemon does not know it, so it gets all of it; or, where the beginning of the answer is forgotten, the request
 * alone. */
static void tell(struct intake *in, struct held *h)
{
    static uint64_t zeros[MESSAGE_CHOICES];
    struct message_u64s start = {zeros, h->choices};

    if (has_ended(h) && h->end.done.why == DONE_CANCELLED) { /* nobody wants it */
        let_go(in, h);
        return;
    }
    h->given.engine_held.again = !has_from(h, &start);
    if (!say_of(in, h, &h->given))
        return;
    if (h->given.engine_held.again)
        drop(in, h);
    else
        say_again(in, h, &start);
}

/* The daemon goes on with the leases that it names, and is told of those that it does not know; others are dropped.
 * -1: it names one of which too much is forgotten since HELLO. */
static int reconcile(struct intake *in, const struct message_engine_welcome *m)
{
    const struct message_held *row;
    size_t before = in->held_count, told = 0;
    int rc = 0;

    for (size_t i = in->held_count; i-- > 0;) {
        const struct held *h = &in->held[i];
        row = row_of(m->held.v, m->held.n, &h->id);
        if ((row && has_from(h, &row->offs)) || row_of(m->tell.v, m->tell.n, &h->id))
            continue;
        rc = row ? -1 : rc;
        drop(in, &in->held[i]);
    }
    if (before > 0)
        log_notice("the daemon goes on with %zu of %zu requests", in->held_count, before);
    for (size_t i = in->held_count; rc == 0 && i-- > 0;) {
        if ((row = row_of(m->held.v, m->held.n, &in->held[i].id))) {
            say_again(in, &in->held[i], &row->offs);
        } else {
            tell(in, &in->held[i]);
            told++;
        }
    }
    if (told > 0)
        log_notice("the daemon did not know %zu of them, and was told", told);
    return rc;
}

static void welcomed(struct intake *in, struct message *m)
{
    uint32_t version = m->engine_welcome.ver;
    bool agrees = m->head.version >= WIRE_VERSION_HELD;

    if (agrees && !k3_id_equal(&m->head.id, &in->hello_id))
        return; /* to an earlier HELLO: what we hold and what the daemon has may have changed since */
    if (version >= WIRE_VERSION_OLDEST && version <= WIRE_VERSION)
        in->version = (uint16_t)version;
    log_info("registered with the daemon, protocol version %u", in->version);
    in->known = true;
    in->heartbeat_s = m->engine_welcome.hb > 0.01 ? m->engine_welcome.hb : 0.01;
    in->tokens = 0;
    in->beaten = clock_monotonic();
    loop_timer_set(in->beat, in->heartbeat_s, in->heartbeat_s);
    if (!agrees && in->held_count > 0)
        drop_all(in, "the daemon does not say what it has");
    else if (reconcile(in, &m->engine_welcome) == 0) {
        if (in->life.state == SERVING)
            say_ready(in);
        stop_when_empty(in);
        return;
    }
    in->known = false;
    say_hello(in);
}

static void take_lease(struct intake *in, struct message_lease *request)
{
    struct held *before = held_by_id(in, &request->id);
    struct k3_error err;

    if (before) /* the daemon had given up on us, and now asks for it again */
        drop(in, before);
    if (in->life.state != SERVING) {
        say_returned(in, &request->id);
        return;
    }
    struct sequence *q = prepare_sequence(&in->o.limits, request, ++in->last_lease, &err);
    if (!q) {
        say_failed(in, &request->id, request->out.n, &err);
        return;
    }
    hold(in, request, in->last_lease);
    give_order(in, ORDER_RUN, in->last_lease, q);
}

static void take_batch(struct intake *in, struct message *m)
{
    size_t before = in->held_count;

    for (size_t i = 0; i < m->batch.reqs.n; i++)
        take_lease(in, &m->batch.reqs.v[i]);
    if (in->held_count !=
        before + m->batch.reqs.n) /* some are not held, so there is more room than the daemon thinks */
        say_credit(in);
}

static void cancel(struct intake *in, struct message *m)
{
    struct held *h = held_by_id(in, &m->head.id);

    if (h)
        give_order(in, ORDER_CANCEL, h->lease, NULL);
}

static void daemon_lives(struct intake *in, struct message *m)
{
    (void)m;
    if (!in->known)
        say_hello_soon(in);
}

static void drain_asked(struct intake *in, struct message *m)
{
    (void)m;
    if (in->life.state != DRAINING)
        intake_drain(in, "the daemon asks for it");
}

static void refused(struct intake *in, struct message *m)
{
    bool hello = k3_id_equal(&m->head.id, &in->hello_id);

    if (m->head.version < in->version) { /* all else is answered in the version in which it was said */
        in->version = m->head.version;
        log_info("the daemon is an older one: going on in protocol version %u", in->version);
        say_hello(in);
        return;
    }
    if (!hello && m->refused.code == EXIT_CODE_DENIED) {
        /* It does not know us (any more): it has been restarted, or the network was away. */
        lose_contact(in, "the daemon does not know this engine");
        say_hello_soon(in);
        return;
    }
    log_err("the daemon refuses %s: %s", hello ? "this engine" : "what it was told", m->refused.msg);
    if (!hello || m->refused.code != EXIT_CODE_DENIED || in->refused)
        return;
    in->refused = k3_strdup(m->refused.msg);
    intake_drain(in, "the daemon does not want this engine");
}

static const struct {
    enum message_type type;
    void (*handle)(struct intake *in, struct message *m);
} handlers[] = {
    {WIRE_ENGINE_WELCOME, welcomed}, {WIRE_BATCH, take_batch}, {WIRE_ENGINE_CANCEL, cancel},
    {WIRE_DRAIN, drain_asked},       {WIRE_REFUSED, refused},  {WIRE_HEARTBEAT, daemon_lives},
};

static void handle_frame(struct intake *in, const struct frame *f)
{
    struct message m;
    struct k3_error err;

    if (frame_decode(f, &m, &err) < 0) {
        log_err("%s from the daemon: %s", message_type_name(f->head.type), err.text);
        return;
    }
    for (size_t i = 0; i < sizeof handlers / sizeof *handlers; i++)
        if (handlers[i].type == m.head.type)
            handlers[i].handle(in, &m);
    message_clear(&m);
}

static void on_daemon(void *arg, short ready)
{
    struct intake *in = arg;
    struct frame f;
    struct k3_error err;

    (void)ready;
    for (int i = 0, rc; i < TURN_MESSAGES && (rc = frame_recv(in->socket, &f, &err)) != 0; i++) {
        in->heard = clock_monotonic();
        if (rc < 0) {
            log_err("from the daemon: %s", err.text);
            continue;
        }
        handle_frame(in, &f);
        frame_clear(&f);
    }
}

/* --- from the leader ------------------------------------------------------------------------------------------------
 */

/* Takes the message out of the report where it is kept. */
static void pass_on_answer(struct intake *in, struct report *r)
{
    struct held *h = held_by_lease(in, r->lease);

    if (!h) /* dropped meanwhile */
        return;
    if (say_of(in, h, &r->message)) {
        if (r->message.head.type == WIRE_DELTA) {
            kept_add(h->kept, &r->message.delta);
            h->tokens += r->message.delta.ids.n;
            in->tokens += r->message.delta.ids.n;
            return;
        }
        if (r->message.head.type == WIRE_DONE) {
            h->end = r->message;
            h->ended = clock_monotonic();
            r->message = (struct message){0};
        } else { /* RETURNED: a daemon that did not hear it does as if it had */
            let_go(in, h);
        }
    }
    say_credit(in);
    stop_when_empty(in);
}

static void leader_stopped(struct intake *in, const struct report *r)
{
    fsm_step(&in->life, in->job, EV_STOPPED);
    say(in, &r->message, NULL);
    loop_stop(in->loop);
}

static void on_leader(void *arg, short ready)
{
    struct intake *in = arg;
    struct mail *mail;

    (void)ready;
    for (int i = 0; i < TURN_MESSAGES && (mail = mailbox_take(in->o.reports)); i++) {
        struct report *r = (struct report *)mail;
        switch (r->message.head.type) {
        case WIRE_ENGINE_LOAD:
            if (in->known)
                say(in, &r->message, NULL);
            break;
        case WIRE_ENGINE_READY:
            if (fsm_can(&in->life, EV_LOADED)) {
                fsm_step(&in->life, in->job, EV_LOADED);
                if (in->known)
                    say_ready(in);
            }
            break;
        case WIRE_ENGINE_BYE:
            leader_stopped(in, r);
            break;
        default:
            pass_on_answer(in, r);
        }
        report_free(mail);
    }
}

/* --- life -----------------------------------------------------------------------------------------------------------
 */

struct intake *intake_create(struct loop *loop, void *zmq, const struct intake_options *o, struct k3_error *err)
{
    struct intake *in = k3_zalloc(sizeof *in);

    in->o = *o;
    in->loop = loop;
    snprintf(in->job, sizeof in->job, "%u", o->job);
    snprintf(in->layout, sizeof in->layout, "%s", o->layout);
    randombytes_buf(&in->incarnation, sizeof in->incarnation);
    k3_id_random(&in->hello_id);
    fsm_init(&in->life, &life, LOADING);
    in->heartbeat_s = 1;
    in->away = clock_monotonic();
    in->version = WIRE_VERSION;
    if (!(in->auth = auth_create(o->munge_socket, err)) ||
        !(in->socket = route_connect(o->route, zmq, LINE_MESSAGES, err))) {
        intake_destroy(in);
        return NULL;
    }
    in->from_daemon = loop_add_socket(loop, in->socket, ZMQ_POLLIN, on_daemon, in);
    in->from_leader = loop_add_fd(loop, mailbox_fd(o->reports), ZMQ_POLLIN, on_leader, in);
    in->drained = loop_add_timer(loop, give_back, in);
    in->beat = loop_add_timer(loop, beat, in);
    loop_timer_set(in->beat, in->heartbeat_s, in->heartbeat_s);
    say_hello(in);
    return in;
}

void intake_destroy(struct intake *in)
{
    if (!in)
        return;

    int saved = errno, linger_ms = 1000;
    if (in->from_daemon) {
        loop_source_remove(in->from_daemon);
        loop_source_remove(in->from_leader);
        loop_timer_remove(in->beat);
        loop_timer_remove(in->drained);
    }
    if (in->socket) {
        zmq_setsockopt(in->socket, ZMQ_LINGER, &linger_ms, sizeof linger_ms); /* for the last words */
        zmq_close(in->socket);
    }
    while (in->held_count > 0)
        let_go(in, in->held);
    auth_destroy(in->auth);
    free(in->held);
    free(in->refused);
    free(in);
    errno = saved;
}
