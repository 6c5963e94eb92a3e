#include "config.h"

#include "queue/server.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/alloc.h"
#include "common/clock.h"
#include "common/log.h"
#include "queue/crowd.h"
#include "queue/gate.h"
#include "queue/jobcheck.h"
#include "queue/lease.h"
#include "queue/zap.h"
#include "wire/auth.h"
#include "wire/frame.h"

enum {
    TURN_FRAMES = 200,  /* taken off the socket before other things have their turn */
    REFUSALS = 20,      /* log lines about refusals in a heartbeat */
    APPLICANTS = 8,     /* whose jobs are checked at a time */
    TELLING_SEC = 5,    /* beyond the engine timeout: engines have found a daemon that was started anew, and told */
    FAREWELL_MSEC = 500 /* for the last messages, when the daemon ends */
};
static const double soon_sec = 0.01; /* until somebody whose line was full is tried again */

/* An engine that said HELLO, while squeue is asked about its job. */
struct applicant {
    struct server *server;
    struct frame_peer peer;
    uint16_t version;
    struct message hello;
    struct jobcheck *check;
    TAILQ_ENTRY(applicant) link;
};

struct server {
    struct loop *loop;
    struct loop_source *source;
    struct loop_timer *tick, *soon;
    void *socket;
    struct auth *auth;
    struct queue *queue;
    struct zap *zap;
    uid_t service_uid;
    bool check_jobs;
    unsigned int max_connections;
    TAILQ_HEAD(, applicant) applicants;
    unsigned int applicants_n;
    unsigned int refusals;     /* in this heartbeat: more than REFUSALS are counted and not logged */
    struct k3_error bad_frame; /* one of the frames that were no messages, in this heartbeat ... */
    unsigned int bad_frames;   /* ... so many */
};

/* --- users */

static void answer(struct server *s, const struct caller *c, struct message *m)
{
    stream_answer(s->queue->stream, c->peer, c->version, m);
}

static void answer_refused(struct server *s, const struct caller *c, const struct k3_id *id, const struct refusal *no)
{
    struct message m = message_of(WIRE_REFUSED, id);

    m.refused.code = no->code;
    m.refused.msg = (char *)no->err.text;
    m.refused.retry = no->retry_sec;
    answer(s, c, &m);
}

/* Say no, and log it. */
static void turn_away(struct server *s, const struct caller *c, const struct message_header *head,
                      const struct refusal *no)
{
    char id[K3_ID_DIGITS + 1];

    s->queue->stats.refused++;
    k3_log(s->refusals++ < REFUSALS ? LOG_INFO : LOG_DEBUG, "req %s %s from uid %d refused: %s",
           k3_id_format(&head->id, id), message_type_name(head->type), (int)c->uid, no->err.text);
    answer_refused(s, c, &head->id, no);
}

static void answer_ok(struct server *s, const struct caller *c, const struct k3_id *id)
{
    struct message m = message_of(WIRE_OK, id);

    answer(s, c, &m);
}

static int serve_submit(struct server *s, const struct caller *c, struct message *m, struct refusal *no)
{
    return queue_submit(s->queue, c, &m->head.id, &m->submit, no);
}

static int serve_attach(struct server *s, const struct caller *c, struct message *m, struct refusal *no)
{
    return queue_attach(s->queue, c, c->request, &m->attach, no);
}

static int serve_cancel(struct server *s, const struct caller *c, struct message *m, struct refusal *no)
{
    if (queue_cancel(s->queue, c->request, no) < 0)
        return -1;
    log_info("req %s cancelled by uid %u", c->request->id_text, c->uid);
    answer_ok(s, c, &m->head.id);
    return 0;
}

static int serve_ack(struct server *s, const struct caller *c, struct message *m, struct refusal *no)
{
    if (queue_acknowledge(s->queue, c->request, no) < 0)
        return -1;
    answer_ok(s, c, &m->head.id);
    return 0;
}

static struct message_listing_row listing_row(const struct request *r)
{
    return (struct message_listing_row){
        .id = r->id,
        .user = r->user->name,
        .name = r->ask.name,
        .state = request_state(r),
        .reason = (char *)r->reason,
        .place = r->place,
        .job = r->engine ? r->engine->job : 0,
        .ptok = r->done.ptok ? r->done.ptok : (uint32_t)r->ask.ask.tok.n,
        .ctok = (uint32_t)r->tokens,
        .max = r->ask.ask.max,
        .submit_t = r->submit_time,
        .start_t = r->start_time,
    };
}

/* All users see all rows; no row holds prompt or answer. */
static bool is_listed(const struct request *r, const struct caller *c, const struct message_list *list)
{
    if (!r->stored || (list->me && r->user->uid != c->uid))
        return false;
    return list->id ? k3_id_has_prefix(&r->id, list->id) : !request_is_final(r);
}

static int serve_list(struct server *s, const struct caller *c, struct message *m, struct refusal *no)
{
    struct message listing = message_of(WIRE_LISTING, &m->head.id);
    struct message_listing_row *rows;

    (void)no;
    rows = k3_calloc(MESSAGE_ROWS, sizeof *rows);
    listing.listing.rows.v = rows;
    queue_update_places(s->queue);
    for (struct request *r = NULL; (r = table_after(s->queue->table, r));) {
        if (!is_listed(r, c, &m->list))
            continue;
        if (listing.listing.rows.n == MESSAGE_ROWS) {
            listing.listing.more = true;
            answer(s, c, &listing);
            listing.listing.more = false;
            listing.listing.rows.n = 0;
        }
        rows[listing.listing.rows.n++] = listing_row(r);
    }
    answer(s, c, &listing);
    free(rows);
    return 0;
}

static struct message_engine engine_row(const struct engine *e)
{
    return (struct message_engine){
        .job = e->job,
        .node = e->node,
        .state = e->state,
        .model = e->model,
        .ranks = e->ranks,
        .layout = e->layout,
        .slots = e->slots,
        .used = e->busy,
        .rate = e->rate,
        .since = e->since,
        .ld = e->loaded,
        .lt = e->total,
    };
}

static int serve_info(struct server *s, const struct caller *c, struct message *m, struct refusal *no)
{
    struct message info = message_of(WIRE_INFO_REPLY, &m->head.id);
    struct message_engine rows[ENGINES_MOST];
    struct queue *q = s->queue;
    size_t n = 0;

    (void)no;
    for (struct engine *e = NULL; (e = engines_after(q->engines, e));) {
        rows[n++] = engine_row(e);
        if (!info.info_reply.model || e->state == ENGINE_SERVING)
            info.info_reply.model = e->model;
    }
    info.info_reply.ver = (char *)PACKAGE_VERSION;
    info.info_reply.up_s = q->now - q->started;
    info.info_reply.queued = order_length(q->order);
    info.info_reply.running = q->running;
    info.info_reply.engines.v = rows;
    info.info_reply.engines.n = n;
    answer(s, c, &info);
    return 0;
}

/* --- engines */

/* The newest that both speak. */
static uint16_t agreed_version(const struct message_engine_hello *hello)
{
    return (uint16_t)(hello->vmax < WIRE_VERSION ? hello->vmax : WIRE_VERSION);
}

/* A peer of version 1 is not told with what it goes on: what it holds and is not its any more, it may drop. */
static void drop_strangers(struct server *s, const struct caller *c, const struct engine *e,
                           const struct message_engine_hello *hello)
{
    for (size_t i = 0; i < hello->held.n; i++) {
        const struct k3_id *id = &hello->held.v[i].id;
        const struct request *r = table_find(s->queue->table, id);
        struct message m = message_of(WIRE_ENGINE_CANCEL, id);

        if (!r || r->engine != e)
            answer(s, c, &m);
    }
}

static void welcome(struct server *s, const struct caller *c, struct engine *e, const struct message *hello)
{
    struct message m = message_of(WIRE_ENGINE_WELCOME, c->version > 1 ? &hello->head.id : NULL);

    m.engine_welcome.ver = e->version;
    m.engine_welcome.hb = s->queue->options.heartbeat_sec;
    if (c->version > 1)
        lease_reconcile(s->queue, e, &hello->engine_hello, &m.engine_welcome);
    answer(s, c, &m);
    lease_reconciled(&m.engine_welcome);
    if (c->version == 1)
        drop_strangers(s, c, e, &hello->engine_hello);
}

/* Take the engine in; all is checked that says whether it may. */
static int enrol(struct server *s, const struct caller *c, struct message *m, struct refusal *no)
{
    struct message_engine_hello *hello = &m->engine_hello;
    struct engine *e = engines_by_job(s->queue->engines, hello->job);

    if (c->engine && c->engine != e)
        return refuse(no, EXIT_CODE_USAGE, "this connection is job %u already", c->engine->job);
    if (e && e->incarnation != hello->inc) {
        lease_engine_lost(s->queue, e, "its job started it again");
        e = NULL;
    }
    if (!e && engines_count(s->queue->engines) == ENGINES_MOST)
        return refuse(no, EXIT_CODE_QUOTA, "%d engines are registered, which is the most", ENGINES_MOST);
    if (!e)
        e = engines_add(s->queue->engines, c->peer, agreed_version(hello), hello, s->queue->now);
    e->peer = *c->peer; /* the same incarnation may come by a new connection */
    e->version = agreed_version(hello);
    e->heard = s->queue->now;
    e->credit = 0; /* until it says READY (again) */
    welcome(s, c, e, m);
    return 0;
}

static void dismiss(struct applicant *a)
{
    TAILQ_REMOVE(&a->server->applicants, a, link);
    a->server->applicants_n--;
    jobcheck_stop(a->check);
    message_clear(&a->hello);
    free(a);
}

static void on_checked(void *arg, enum jobcheck_verdict verdict, const char *why)
{
    struct applicant *a = arg;
    struct server *s = a->server;
    struct caller c = {.peer = &a->peer, .version = a->version, .uid = s->service_uid};
    struct refusal no = {.code = EXIT_CODE_FAILED};

    a->check = NULL;
    s->queue->now = clock_monotonic();
    c.engine = engines_by_peer(s->queue->engines, c.peer);
    if (verdict == JOB_DOES_NOT)
        refuse(&no, EXIT_CODE_DENIED, "%s", why);
    else if (verdict == JOB_UNKNOWN)
        refuse(&no, EXIT_CODE_FAILED, "%s", why);
    if (verdict != JOB_RUNS || enrol(s, &c, &a->hello, &no) < 0)
        turn_away(s, &c, &a->hello.head, &no);
    dismiss(a);
}

/* Takes the message's content. */
static int check_job(struct server *s, const struct caller *c, struct message *m, struct refusal *no)
{
    struct applicant *a;

    TAILQ_FOREACH(a, &s->applicants, link)
    if (frame_peer_equal(&a->peer, c->peer)) { /* what it says now is newer */
        struct message before = a->hello;
        a->hello = *m;
        *m = before;
        return 0;
    }
    if (s->applicants_n == APPLICANTS)
        return refuse(no, EXIT_CODE_FAILED, "the jobs of %d other engines are being checked", APPLICANTS);
    a = k3_zalloc(sizeof *a);
    *a = (struct applicant){.server = s, .peer = *c->peer, .version = c->version};
    a->check = jobcheck_start(s->loop, m->engine_hello.job, s->service_uid, on_checked, a, &no->err);
    if (!a->check) {
        free(a);
        return -1;
    }
    a->hello = *m;
    memset(m, 0, sizeof *m);
    TAILQ_INSERT_TAIL(&s->applicants, a, link);
    s->applicants_n++;
    return 0;
}

static int serve_hello(struct server *s, const struct caller *c, struct message *m, struct refusal *no)
{
    struct message_engine_hello *hello = &m->engine_hello;
    const struct engine *e = engines_by_job(s->queue->engines, hello->job);

    if (hello->vmin > WIRE_VERSION || hello->vmax < WIRE_VERSION_OLDEST)
        return refuse(no, EXIT_CODE_FAILED, "the engine speaks protocol %u to %u, this daemon %d to %d", hello->vmin,
                      hello->vmax, WIRE_VERSION_OLDEST, WIRE_VERSION);
    /* The credential is over this key: it is of no use to whoever has another connection. */
    if (c->key && (!hello->key || strcmp(c->key, hello->key) != 0))
        return refuse(no, EXIT_CODE_DENIED, "the engine's credential is for another connection's key");
    if (!s->check_jobs || (e && e->incarnation == hello->inc)) /* that one was checked */
        return enrol(s, c, m, no);
    return check_job(s, c, m, no);
}

static int serve_load(struct server *s, const struct caller *c, struct message *m, struct refusal *no)
{
    (void)s;
    (void)no;
    engine_load(c->engine, &m->engine_load);
    return 0;
}

static int serve_ready(struct server *s, const struct caller *c, struct message *m, struct refusal *no)
{
    (void)s;
    (void)no;
    engine_ready(c->engine, &m->engine_ready);
    return 0;
}

static int serve_credit(struct server *s, const struct caller *c, struct message *m, struct refusal *no)
{
    (void)s;
    (void)no;
    engine_credit(c->engine, m->credit.n);
    return 0;
}

static int serve_heartbeat(struct server *s, const struct caller *c, struct message *m, struct refusal *no)
{
    (void)no;
    engine_beat(c->engine, &m->heartbeat, s->queue->now);
    return 0;
}

static int serve_delta(struct server *s, const struct caller *c, struct message *m, struct refusal *no)
{
    (void)no;
    lease_delta(s->queue, c->engine, &m->head.id, &m->delta);
    return 0;
}

static int serve_done(struct server *s, const struct caller *c, struct message *m, struct refusal *no)
{
    (void)no;
    lease_done(s->queue, c->engine, &m->head.id, &m->done);
    return 0;
}

static int serve_held(struct server *s, const struct caller *c, struct message *m, struct refusal *no)
{
    (void)no;
    lease_held(s->queue, c->engine, &m->engine_held);
    return 0;
}

static int serve_returned(struct server *s, const struct caller *c, struct message *m, struct refusal *no)
{
    (void)no;
    lease_returned(s->queue, c->engine, &m->head.id);
    return 0;
}

static int serve_bye(struct server *s, const struct caller *c, struct message *m, struct refusal *no)
{
    (void)no;
    lease_engine_lost(s->queue, c->engine, m->engine_bye.msg ? m->engine_bye.msg : "it said goodbye");
    return 0;
}

static int serve_lost(struct server *s, const struct caller *c, struct message *m, struct refusal *no)
{
    struct engine *e = engines_by_job(s->queue->engines, m->engine_lost.job);

    (void)no;
    if (e)
        lease_engine_lost(s->queue, e, m->engine_lost.msg ? m->engine_lost.msg : "its job reports it lost");
    answer_ok(s, c, &m->head.id);
    return 0;
}

/* --- dispatch */

enum who {
    WHO_USER,     /* anybody with a credential */
    WHO_OWNER,    /* whose credential is the request's owner's */
    WHO_OPERATOR, /* or root's, or the service user's */
    WHO_SERVICE,  /* with the service user's or root's credential */
    WHO_ENGINE    /* a connection that said HELLO with such a credential; none needed any more */
};

static const struct service {
    enum message_type type;
    enum who who;
    int (*serve)(struct server *s, const struct caller *c, struct message *m, struct refusal *no);
} services[] = {
    {WIRE_SUBMIT, WHO_USER, serve_submit},
    {WIRE_ATTACH, WHO_OPERATOR, serve_attach},
    {WIRE_CANCEL, WHO_OPERATOR, serve_cancel},
    {WIRE_LIST, WHO_USER, serve_list},
    {WIRE_INFO, WHO_USER, serve_info},
    {WIRE_ACK, WHO_OWNER, serve_ack},
    {WIRE_ENGINE_HELLO, WHO_SERVICE, serve_hello},
    {WIRE_ENGINE_LOST, WHO_SERVICE, serve_lost},
    {WIRE_ENGINE_LOAD, WHO_ENGINE, serve_load},
    {WIRE_ENGINE_READY, WHO_ENGINE, serve_ready},
    {WIRE_CREDIT, WHO_ENGINE, serve_credit},
    {WIRE_HEARTBEAT, WHO_ENGINE, serve_heartbeat},
    {WIRE_DELTA, WHO_ENGINE, serve_delta},
    {WIRE_DONE, WHO_ENGINE, serve_done},
    {WIRE_RETURNED, WHO_ENGINE, serve_returned},
    {WIRE_ENGINE_BYE, WHO_ENGINE, serve_bye},
    {WIRE_ENGINE_HELD, WHO_ENGINE, serve_held},
};

static const struct service *find_service(uint16_t type)
{
    for (size_t i = 0; i < sizeof services / sizeof *services; i++)
        if (services[i].type == type)
            return &services[i];
    return NULL;
}

static bool is_operator(const struct server *s, uid_t uid)
{
    return uid == 0 || uid == s->service_uid;
}

/* A daemon that was just started learns from engines what they hold: who was watching comes again. */
static bool may_be_told(const struct server *s, const struct frame *f)
{
    const struct queue *q = s->queue;

    return f->head.type == WIRE_ATTACH && q->now - q->started < TELLING_SEC + q->options.engine_timeout_sec;
}

/* Fill in who speaks, as far as this service has to know. */
static int admit(struct server *s, const struct frame *f, enum who who, struct caller *c, struct refusal *no)
{
    gid_t gid;

    c->engine = engines_by_peer(s->queue->engines, &f->from);
    if (who == WHO_ENGINE) {
        if (!c->engine)
            return refuse(no, EXIT_CODE_DENIED, "this connection is no registered engine's: it says HELLO first");
        c->engine->heard = s->queue->now;
        return 0;
    }
    if (frame_verify(f, s->auth, &c->uid, &gid, &no->err) < 0) {
        no->code = errno == EAGAIN ? EXIT_CODE_FAILED : EXIT_CODE_DENIED;
        return -1;
    }
    if (who == WHO_USER)
        return 0;
    if (who == WHO_SERVICE)
        return is_operator(s, c->uid)
                   ? 0
                   : refuse(no, EXIT_CODE_DENIED, "uid %u may not speak for engines (k3queued.user)", c->uid);
    if (!(c->request = table_find(s->queue->table, &f->head.id))) {
        no->retry_sec = may_be_told(s, f) ? 1 : 0;
        return refuse(no, EXIT_CODE_FAILED, "no such request");
    }
    if (c->uid != c->request->user->uid && !(who == WHO_OPERATOR && is_operator(s, c->uid)))
        return refuse(no, EXIT_CODE_DENIED, "the request is another user's");
    return 0;
}

static int serve(struct server *s, const struct frame *f, struct caller *c, struct refusal *no)
{
    const struct service *service = find_service(f->head.type);
    struct message m;
    int rc;

    if (!service)
        return refuse(no, EXIT_CODE_USAGE, "%s is not for the daemon", message_type_name(f->head.type));
    if (admit(s, f, service->who, c, no) < 0)
        return -1;
    if (frame_decode(f, &m, &no->err) < 0) {
        no->code = EXIT_CODE_USAGE;
        return -1;
    }
    rc = service->serve(s, c, &m, no);
    message_clear(&m);
    return rc;
}

static void serve_frame(struct server *s, const struct frame *f)
{
    struct caller c = {.peer = &f->from, .key = frame_key(f), .version = f->head.version, .uid = (uid_t)-1};
    struct refusal no = {.code = EXIT_CODE_FAILED};

    if (serve(s, f, &c, &no) < 0)
        turn_away(s, &c, &f->head, &no);
}

/* No message: its connection is cut, unless it is one of another version, which is answered in the one spoken here that
 * is next to it. */
static void refuse_frame(struct server *s, const struct frame *f, const struct k3_error *err)
{
    struct caller c = {.peer = &f->from,
                       .version = f->head.version > WIRE_VERSION ? WIRE_VERSION : WIRE_VERSION_OLDEST};
    struct refusal no = {.code = EXIT_CODE_FAILED, .err = *err};
    char who[CROWD_NAME];

    s->queue->stats.frames_refused++;
    s->bad_frames++;
    if (s->bad_frames == 1)
        s->bad_frame = *err;
    if (errno == EPROTONOSUPPORT) {
        answer_refused(s, &c, &f->head.id, &no);
        return;
    }
    if (crowd_expel(f->fd, who))
        k3_errorf(&s->bad_frame, "%s, from %s", err->text, who);
}

static void on_readable(void *arg, short ready)
{
    struct server *s = arg;
    struct k3_error err;
    struct frame f;
    int rc;

    (void)ready;
    s->queue->now = clock_monotonic();
    for (int i = 0; i < TURN_FRAMES && (rc = frame_recv(s->socket, &f, &err)) != 0; i++) {
        if (rc > 0) {
            serve_frame(s, &f);
            frame_clear(&f);
        } else {
            refuse_frame(s, &f, &err);
        }
        crowd_heard(f.fd, f.count, f.bytes);
    }
}

/* Repeats are held back. */
static void log_refusals(struct server *s)
{
    unsigned int connections = gate_refused();
    struct crowd_report crowd;

    if (connections)
        log_warning("%u connections were refused: %u at a time is the most (RLIMIT_NOFILE)", connections, gate_width());
    crowd_report(&crowd);
    if (crowd.refused)
        log_warning("%u connections were refused: %s has %u, which is the most (k3queued.max_connections_per_peer)",
                    crowd.refused, crowd.who, s->max_connections);
    if (crowd.cut)
        log_warning("%u connections were cut, the last of %s: more came than can be read (%d MiB)", crowd.cut,
                    crowd.who, CROWD_UNREAD >> 20);
    if (s->refusals > REFUSALS)
        log_warning("%u more messages were refused", s->refusals - REFUSALS);
    if (s->bad_frames)
        log_warning("%u frames were no messages, such as: %s", s->bad_frames, s->bad_frame.text);
    s->refusals = s->bad_frames = 0;
}

static void on_tick(void *arg)
{
    struct server *s = arg;

    s->queue->now = clock_monotonic();
    queue_tick(s->queue);
    log_refusals(s);
}

/* Wakes the loop; queue_turn() does the rest. */
static void on_soon(void *arg)
{
    (void)arg;
}

static void after_turn(void *arg)
{
    struct server *s = arg;

    s->queue->now = clock_monotonic();
    if (queue_turn(s->queue))
        loop_timer_set(s->soon, soon_sec, 0);
}

/* After the ipc endpoint is bound: a socket's options hold for what it binds from then on, and keys are for tcp. */
static int listen_tcp(struct server *s, void *zmq, const struct server_options *options, struct k3_error *err)
{
    if (!options->listen)
        return 0;
    if (!(s->zap = zap_create(s->loop, zmq, err)) || frame_over_tcp(s->socket, options->listen, err) < 0 ||
        curve_serve(s->socket, options->pair, err) < 0)
        return -1;
    return frame_bind(s->socket, options->listen, err);
}

struct server *server_create(struct loop *loop, void *zmq, const struct server_options *options, struct k3_error *err)
{
    struct server *s = k3_zalloc(sizeof *s);

    s->loop = loop;
    s->service_uid = options->service_uid;
    s->check_jobs = options->check_jobs;
    s->max_connections = options->max_connections;
    crowd_limit(s->max_connections);
    TAILQ_INIT(&s->applicants);
    if (!(s->auth = auth_create(options->munge_socket, err)) || !(s->socket = frame_socket(zmq, ZMQ_ROUTER, 0, err)) ||
        frame_bind(s->socket, options->endpoint, err) < 0 || listen_tcp(s, zmq, options, err) < 0) {
        server_destroy(s);
        return NULL;
    }
    s->queue = queue_create(s->socket, &options->queue, clock_monotonic());
    s->source = loop_add_socket(loop, s->socket, ZMQ_POLLIN, on_readable, s);
    s->tick = loop_add_timer(loop, on_tick, s);
    s->soon = loop_add_timer(loop, on_soon, s);
    loop_timer_set(s->tick, options->queue.heartbeat_sec, options->queue.heartbeat_sec);
    loop_after_turn(loop, after_turn, s);
    return s;
}

void server_reload(struct server *s, const struct server_options *options)
{
    s->service_uid = options->service_uid;
    s->check_jobs = options->check_jobs;
    s->max_connections = options->max_connections;
    crowd_limit(s->max_connections);
    queue_reload(s->queue, &options->queue);
}

void server_end(struct server *s)
{
    int linger = FAREWELL_MSEC;

    zmq_setsockopt(s->socket, ZMQ_LINGER, &linger, sizeof linger);
    queue_end(s->queue);
}

void server_destroy(struct server *s)
{
    int saved = errno;

    if (!s)
        return;
    if (s->queue) {
        loop_timer_remove(s->soon);
        loop_timer_remove(s->tick);
        loop_source_remove(s->source);
    }
    while (!TAILQ_EMPTY(&s->applicants))
        dismiss(TAILQ_FIRST(&s->applicants));
    queue_destroy(s->queue);
    if (s->socket)
        zmq_close(s->socket);
    zap_destroy(s->zap);
    auth_destroy(s->auth);
    free(s);
    errno = saved;
}
