#include "queue/queue.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <sodium.h>

#include "common/alloc.h"
#include "common/clock.h"
#include "common/log.h"
#include "queue/lease.h"

int refuse(struct refusal *no, enum exit_code code, const char *fmt, ...)
{
    va_list ap;

    no->code = code;
    va_start(ap, fmt);
    vsnprintf(no->err.text, sizeof no->err.text, fmt, ap);
    va_end(ap);
    return -1;
}

struct queue *queue_create(void *socket, const struct queue_options *options, double now)
{
    struct queue *q = k3_zalloc(sizeof *q);

    q->now = q->started = q->ticked = now;
    q->socket = socket;
    q->table = table_create();
    q->order = order_create();
    q->store = store_create();
    q->engines = engines_create();
    q->stream = stream_create(socket);
    queue_reload(q, options);
    TAILQ_INIT(&q->fresh);
    TAILQ_INIT(&q->committing);
    TAILQ_INIT(&q->kept);
    TAILQ_INIT(&q->past);
    return q;
}

void queue_reload(struct queue *q, const struct queue_options *options)
{
    q->options = *options;
    stream_limit(q->stream, options->max_output);
}

void queue_destroy(struct queue *q)
{
    int saved = errno;
    struct request *r = NULL;

    if (!q)
        return;
    while ((r = table_after(q->table, r))) {
        stream_forget(q->stream, r);
        if (r->engine)
            engine_release(r->engine, r);
    }
    stream_destroy(q->stream);
    engines_destroy(q->engines);
    store_destroy(q->store);
    order_destroy(q->order);
    table_destroy(q->table);
    free(q);
    errno = saved;
}

void queue_record(struct queue *q, enum store_record record, const struct request *r)
{
    if (!q->recording) {
        store_begin(q->store);
        q->recording = true;
    }
    store_put(q->store, record, r);
}

/* --- what users ask */

static size_t ask_bytes(const struct message_ask *ask)
{
    return ask->req.len + ask->tok.n * sizeof *ask->tok.v;
}

/* What a request takes of its user's allowance: every answer counts. */
static double cost_of(const struct queue *q, const struct message_ask *ask)
{
    return fmin(message_ask_choices(ask), q->options.max_rate_per_user);
}

/* Requests a minute: an allowance that grows with time, up to a minute's worth. */
static int check_rate(const struct queue *q, struct user *u, double cost, struct refusal *no)
{
    double most = q->options.max_rate_per_user, a_second = most / 60;

    u->allowance = fmin(most, u->allowance + (q->now - u->allowed) * a_second);
    u->allowed = q->now;
    if (u->allowance >= cost)
        return 0;
    no->retry_sec = ceil((cost - u->allowance) / a_second);
    return refuse(no, EXIT_CODE_QUOTA, "%s sends more than %u requests a minute (k3queued.max_rate_per_user)", u->name,
                  q->options.max_rate_per_user);
}

/* What no waiting would mend. */
static int check_request(const struct queue *q, const struct message_ask *ask, struct refusal *no)
{
    const struct queue_options *o = &q->options;
    uint32_t choices = message_ask_choices(ask);
    uint64_t tokens = ask->max ? ask->max : 1;
    struct order_limits need = {.context = ask->tok.n + tokens, .choices = choices};

    no->retry_sec = 0;
    if (choices > o->max_choices)
        return refuse(no, EXIT_CODE_USAGE, "%u answers are asked for, the most is %u (k3queued.max_choices)", choices,
                      o->max_choices);
    if (ask_bytes(ask) > o->max_prompt_bytes)
        return refuse(no, EXIT_CODE_USAGE, "the prompt is %zu bytes, the most is %zu (k3queued.max_prompt_bytes)",
                      ask_bytes(ask), o->max_prompt_bytes);
    if (ask->tok.n > o->max_prompt_tokens)
        return refuse(no, EXIT_CODE_USAGE, "the prompt is %zu tokens, the most is %zu (k3queued.max_prompt_tokens)",
                      ask->tok.n, o->max_prompt_tokens);
    if (o->max_tokens && tokens * choices > o->max_tokens)
        return refuse(no, EXIT_CODE_USAGE, "%" PRIu64 " tokens are asked for, the most is %u (k3queued.max_tokens)",
                      tokens * choices, o->max_tokens);
    if (ask->tok.n + tokens * choices > ANSWER_TOKENS)
        return refuse(no, EXIT_CODE_USAGE, "prompt and answer are %" PRIu64 " tokens, the most is %d",
                      ask->tok.n + tokens * choices, ANSWER_TOKENS);
    if (engines_misfit(q->engines, &need, &no->err)) {
        no->code = EXIT_CODE_USAGE;
        return -1;
    }
    return 0;
}

static int check_room(const struct queue *q, const struct user *u, size_t bytes, struct refusal *no)
{
    const struct queue_options *o = &q->options;

    no->retry_sec = 30;
    if (q->live >= o->max_queued)
        return refuse(no, EXIT_CODE_QUOTA, "the queue is full: %u requests (k3queued.max_queued)", o->max_queued);
    if (u->live >= o->max_queued_per_user)
        return refuse(no, EXIT_CODE_QUOTA, "%s has %u requests in the queue (k3queued.max_queued_per_user)", u->name,
                      u->live);
    if (q->prompt_bytes + bytes > o->max_bytes)
        return refuse(no, EXIT_CODE_QUOTA, "the queue is full: its prompts fill %zu MiB (k3queued.max_queued_mib)",
                      o->max_bytes >> 20);
    if (u->bytes + bytes > o->max_bytes_per_user)
        return refuse(no, EXIT_CODE_QUOTA, "the prompts of %s fill %zu MiB (k3queued.max_queued_mib_per_user)", u->name,
                      o->max_bytes_per_user >> 20);
    return 0;
}

static void answer_accepted(struct queue *q, struct request *r)
{
    struct message m = message_of(WIRE_ACCEPTED, &r->id);

    m.accepted.place = r->place;
    m.accepted.reason = (char *)r->reason;
    stream_answer(q->stream, &r->asker, r->asker_version, &m);
}

/* The first token again for whoever sent the request again: he has seen nothing. */
static void watch_from_start(struct queue *q, struct request *r)
{
    struct refusal no = {0};
    struct caller c = {.peer = &r->asker, .version = r->asker_version, .uid = r->user->uid};
    struct message_attach from = {0};

    if (r->ask.watch && queue_attach(q, &c, r, &from, &no) < 0)
        log_info("req %s is not watched: %s", r->id_text, no.err.text);
}

static void answer_done(struct queue *q, struct request *r)
{
    struct message m = message_of(WIRE_DONE, &r->id);

    m.done = r->done;
    stream_answer(q->stream, &r->asker, r->asker_version, &m);
}

/* An engine may have told of it first, and does not know whether its owner watches. */
static int submit_again(struct queue *q, const struct caller *c, struct request *r, bool watch, struct refusal *no)
{
    if (r->user->uid != c->uid)
        return refuse(no, EXIT_CODE_DENIED, "the id is another user's request");
    r->asker = *c->peer;
    r->asker_version = c->version;
    r->ask.watch = watch;
    if (!r->stored)
        return 0; /* answered by the commit */
    queue_update_place(q, r);
    answer_accepted(q, r);
    if (r->answer)
        watch_from_start(q, r);
    else
        answer_done(q, r);
    return 0;
}

/* It counts from now on, and is accepted once the store has it. */
static void enter(struct queue *q, struct request *r)
{
    r->arrived = q->now;
    r->user->live++;
    r->user->bytes += request_prompt_bytes(r);
    q->prompt_bytes += request_prompt_bytes(r);
    q->live++;
    table_add(q->table, r);
    queue_record(q, STORE_REQUEST, r);
    TAILQ_INSERT_TAIL(&q->fresh, r, phase);
}

int queue_submit(struct queue *q, const struct caller *c, const struct k3_id *id, struct message_submit *submit,
                 struct refusal *no)
{
    struct request *r = table_find(q->table, id);
    struct user *u = table_user(q->table, c->uid);

    if (k3_id_is_none(id))
        return refuse(no, EXIT_CODE_USAGE, "a request needs an id");
    if (r)
        return submit_again(q, c, r, submit->watch, no);
    if (submit->dl > 0 && submit->dl <= clock_wall())
        return refuse(no, EXIT_CODE_DEADLINE, "the deadline has passed");
    if (!submit->ask.max)
        submit->ask.max = q->options.max_tokens / message_ask_choices(&submit->ask);
    double cost = cost_of(q, &submit->ask);
    if (check_request(q, &submit->ask, no) < 0 || check_room(q, u, ask_bytes(&submit->ask), no) < 0 ||
        check_rate(q, u, cost, no) < 0)
        return -1;

    r = request_create(id, submit, u);
    if (!r->ask.ask.sd) {
        randombytes_buf(&r->ask.ask.seed, sizeof r->ask.ask.seed);
        r->ask.ask.sd = true;
    }
    r->asker = *c->peer;
    r->asker_version = c->version;
    r->submit_time = clock_wall();
    u->allowance -= cost;
    enter(q, r);
    return 0;
}

struct request *queue_adopt(struct queue *q, struct message_lease *held)
{
    struct request *r = table_find(q->table, &held->id);
    uid_t uid = (uid_t)(held->own - 1);

    if (held->own == 0 || held->own > (uid_t)-1 || k3_id_is_none(&held->id)) /* uid -1 is nobody's */
        return NULL;
    if (r) { /* its owner was here before the engine */
        if (r->user->uid != uid || request_state(r) != REQUEST_QUEUED || r->incarnation ||
            request_choices(r) != message_ask_choices(&held->ask))
            return NULL;
        r->ask.ask.seed = held->ask.seed;
        return r;
    }
    struct message_submit submit = {.ask = held->ask, .name = held->name, .dl = held->dl};
    held->ask = (struct message_ask){0};
    held->name = NULL;
    r = request_create(&held->id, &submit, table_user(q->table, uid));
    r->submit_time = held->sub;
    enter(q, r);
    return r;
}

/* What he who wants the answer from there on has of each choice: of several no more than there is. */
static int check_attach(const struct request *r, const struct caller *c, const struct message_attach *from,
                        uint64_t have[MESSAGE_CHOICES], struct refusal *no)
{
    uint32_t choices = answer_choices(r->answer);

    no->retry_sec = request_is_final(r) ? 0 : 1; /* of one that is made again, or told of by an engine just now */
    if (choices == 1 && from->off > r->tokens)
        return refuse(no, EXIT_CODE_USAGE, "the answer has %zu tokens, not %" PRIu64, r->tokens, from->off);
    no->retry_sec = 0;
    if (choices > 1 && c->version < WIRE_VERSION_CHOICES)
        return refuse(no, EXIT_CODE_USAGE, "the request has %u answers, which this program is too old for", choices);
    if (from->offs.n > choices)
        return refuse(no, EXIT_CODE_USAGE, "the request has %u answers, not %zu", choices, from->offs.n);
    for (uint32_t i = 0; i < choices; i++) {
        uint64_t wanted = i < from->offs.n ? from->offs.v[i] : from->off, there = answer_lengths(r->answer)[i];
        have[i] = wanted < there ? wanted : there;
    }
    return 0;
}

int queue_attach(struct queue *q, const struct caller *c, struct request *r, const struct message_attach *from,
                 struct refusal *no)
{
    uint64_t have[MESSAGE_CHOICES];

    if (!r->stored) {
        no->retry_sec = 1;
        return refuse(no, EXIT_CODE_FAILED, "the request is not accepted yet");
    }
    if (!r->answer)
        return refuse(no, EXIT_CODE_FAILED, "the answer was delivered or not fetched in time, and is erased");
    if (check_attach(r, c, from, have, no) < 0)
        return -1;
    if (stream_attach(q->stream, r, c->peer, c->version, have, &no->err) < 0) {
        no->code = EXIT_CODE_FAILED;
        no->retry_sec = 10;
        return -1;
    }
    stream_push(q->stream, r);
    return 0;
}

const char queue_expired[] = "its deadline has passed";

/* Nobody works on it. */
static void end_waiting(struct queue *q, struct request *r, enum request_event event, enum done_why why,
                        const char *msg)
{
    if (r->stored)
        order_remove(q->order, r);
    request_move(r, event);
    queue_finish(q, r, why, msg);
}

static void end_running(struct queue *q, struct request *r)
{
    request_move(r, EVENT_CANCEL);
    lease_cancel(q, r);
    stream_state(q->stream, r);
}

void queue_expire(struct queue *q, struct request *r)
{
    if (request_state(r) == REQUEST_QUEUED) {
        end_waiting(q, r, EVENT_EXPIRED, DONE_EXPIRED, queue_expired);
    } else if (request_state(r) == REQUEST_RUNNING) {
        r->expired = true;
        end_running(q, r);
    }
}

int queue_cancel(struct queue *q, struct request *r, struct refusal *no)
{
    switch (request_state(r)) {
    case REQUEST_RUNNING:
        end_running(q, r);
        return 0;
    case REQUEST_QUEUED:
        end_waiting(q, r, EVENT_CANCEL, DONE_CANCELLED, NULL);
        return 0;
    case REQUEST_ENDING:
    case REQUEST_CANCELLED:
        return 0;
    default:
        return refuse(no, EXIT_CODE_FAILED, "the request is %s already", request_state_name(request_state(r)));
    }
}

/* --- the line */

/* What those in line wait for. */
struct outlook {
    bool serving, loading, fenced, room;
};

static struct outlook outlook_of(const struct queue *q)
{
    struct outlook o = {0};

    for (struct engine *e = NULL; (e = engines_after(q->engines, e));) {
        o.serving |= e->state == ENGINE_SERVING;
        o.loading |= e->state == ENGINE_LOADING;
        o.fenced |= e->state == ENGINE_FENCED;
        o.room |= engine_has_room(e);
    }
    return o;
}

static void set_place(const struct queue *q, const struct outlook *o, struct request *r, unsigned int place)
{
    r->place = place;
    if (r->lost > 0 && q->now - r->lost < q->options.engine_timeout_sec)
        r->reason = "EngineLost";
    else if (!o->serving)
        r->reason = o->loading ? "EngineStarting" : o->fenced ? "EngineStalled" : "NoEngine";
    else if (place > 1)
        r->reason = "Priority";
    else
        r->reason = o->room ? "None" : "EngineBusy";
}

void queue_update_places(struct queue *q)
{
    struct outlook o = outlook_of(q);
    unsigned int place = 0;

    for (struct request *r = NULL; (r = order_after(q->order, r));)
        set_place(q, &o, r, ++place);
}

void queue_update_place(struct queue *q, struct request *r)
{
    struct outlook o = outlook_of(q);

    if (r->stored && request_state(r) == REQUEST_QUEUED)
        set_place(q, &o, r, order_place(q->order, r));
}

/* Those who watch are told where they stand. */
static void tell_places(struct queue *q)
{
    queue_update_places(q);
    for (struct request *r = NULL; (r = order_after(q->order, r));)
        if (stream_watched(r) && (r->place != r->place_told || r->reason != r->reason_told)) {
            r->place_told = r->place;
            r->reason_told = r->reason;
            stream_state(q->stream, r);
        }
}

/* --- the end of a request, and after */

void queue_finish(struct queue *q, struct request *r, enum done_why why, const char *msg)
{
    r->done.why = why;
    r->done.msg = msg && *msg ? k3_strdup(msg) : NULL;
    r->done.ctok = (uint32_t)r->tokens;
    r->done.wait_s = (r->started > 0 ? r->started : q->now) - r->arrived;
    r->finished = q->now;
    r->place = 0;
    r->reason = "None";
    q->prompt_bytes -= request_prompt_bytes(r);
    r->user->bytes -= request_prompt_bytes(r);
    request_erase_prompt(r);
    r->user->live--;
    q->live--;
    q->stats.ended[why]++;
    log_info("req %s %s (%s): %u prompt and %u answer tokens, %.3f s waiting, %.3f s in all", r->id_text,
             request_state_name(request_state(r)), done_why_name(why), r->done.ptok, r->done.ctok, r->done.wait_s,
             q->now - r->arrived);
    if (r->stored) {
        TAILQ_INSERT_TAIL(&q->kept, r, phase);
        queue_record(q, STORE_DONE, r);
    }
    stream_push(q->stream, r);
}

/* Prompt and answer are gone; the row stays in the listing until newer ones push it out. */
static void erase(struct queue *q, struct request *r)
{
    stream_forget(q->stream, r);
    request_erase_answer(r);
    queue_record(q, STORE_DELETE, r);
    TAILQ_REMOVE(&q->kept, r, phase);
    TAILQ_INSERT_TAIL(&q->past, r, phase);
    if (++q->past_n <= QUEUE_ROWS)
        return;
    r = TAILQ_FIRST(&q->past);
    TAILQ_REMOVE(&q->past, r, phase);
    q->past_n--;
    table_remove(q->table, r);
    request_destroy(r);
}

/* Answers go when their owner has them and nobody else is reading, when their time is over, and the oldest when they
 * are too many or fill too much memory. */
static void erase_old(struct queue *q)
{
    struct request *r, *newer;
    size_t bytes = 0;
    unsigned int n = 0;

    for (r = TAILQ_LAST(&q->kept, queue_requests); r; r = newer) {
        newer = TAILQ_PREV(r, queue_requests, phase);
        bytes += answer_bytes(r->answer);
        n++;
        if (r->delivered && !stream_watched(r)) {
            erase(q, r);
        } else if (q->now - r->finished > q->options.keep_answer_sec) {
            log_info("req %s erased: not fetched in %.0f s", r->id_text, q->options.keep_answer_sec);
            erase(q, r);
        } else if (bytes > QUEUE_KEPT_BYTES || n > q->options.max_queued) {
            log_warning("req %s erased before its time: %u answers of %zu MiB are waiting", r->id_text, n, bytes >> 20);
            erase(q, r);
        }
    }
}

int queue_acknowledge(struct queue *q, struct request *r, struct refusal *no)
{
    if (!request_is_final(r))
        return refuse(no, EXIT_CODE_FAILED, "the request is %s: there is more to come",
                      request_state_name(request_state(r)));
    r->delivered = true;
    if (r->answer && r->stored && !stream_watched(r))
        erase(q, r);
    return 0;
}

/* --- the store */

static void store_failed(struct queue *q, struct request *r, const struct k3_error *failed)
{
    struct message m = message_of(WIRE_REFUSED, &r->id);

    m.refused.code = EXIT_CODE_FAILED;
    m.refused.msg = (char *)failed->text;
    m.refused.retry = 30;
    stream_answer(q->stream, &r->asker, r->asker_version, &m);
    if (r->engine) { /* which told of it */
        engine_release(r->engine, r);
        q->running--;
    }
    if (!request_is_final(r)) {
        request_move(r, EVENT_FAILED);
        queue_finish(q, r, DONE_FAILED, failed->text);
    }
    table_remove(q->table, r);
    request_destroy(r);
}

/* Now the store has them: they are accepted. */
static void committed(void *arg, const struct k3_error *failed)
{
    struct queue *q = arg;
    struct request *r;
    struct queue_requests batch = TAILQ_HEAD_INITIALIZER(batch);

    if (failed)
        log_err("%s", failed->text);
    TAILQ_FOREACH(r, &q->committing, phase)
    if (!failed && request_state(r) == REQUEST_QUEUED)
        order_push(q->order, r);
    TAILQ_CONCAT(&batch, &q->committing, phase);
    while ((r = TAILQ_FIRST(&batch))) {
        TAILQ_REMOVE(&batch, r, phase);
        if (failed) {
            store_failed(q, r, failed);
            continue;
        }
        r->stored = true;
        queue_update_place(q, r);
        q->stats.accepted++;
        log_info("req %s accepted from %s: %zu bytes, place %u", r->id_text, r->user->name, request_prompt_bytes(r),
                 r->place);
        if (request_is_final(r)) { /* cancelled meanwhile */
            TAILQ_INSERT_TAIL(&q->kept, r, phase);
            queue_record(q, STORE_DONE, r);
        }
        if (r->asker_version) {
            answer_accepted(q, r);
            watch_from_start(q, r);
        }
    }
}

bool queue_turn(struct queue *q)
{
    bool committing = store_poll(q->store, q->now), stuck;

    if (q->recording && !committing) {
        q->recording = false;
        TAILQ_CONCAT(&q->committing, &q->fresh, phase);
        store_commit(q->store, q->now, committed, q);
        committing = store_poll(q->store, q->now);
    }
    lease_deal(q);
    stuck = stream_retry(q->stream);
    return committing || stuck || q->recording;
}

static void expire(struct queue *q)
{
    double wall = clock_wall();

    for (struct request *r = NULL; (r = table_after(q->table, r));)
        if (r->ask.dl > 0 && wall >= r->ask.dl)
            queue_expire(q, r);
}

void queue_tick(struct queue *q)
{
    lease_tick(q);
    expire(q);
    erase_old(q);
    tell_places(q);
}

void queue_end(struct queue *q)
{
    struct message m;

    for (struct request *r = NULL; (r = table_after(q->table, r));) {
        if (request_is_final(r))
            continue;
        if (r->engine)
            lease_cancel(q, r);
        m = message_of(WIRE_REFUSED, &r->id);
        m.refused.code = EXIT_CODE_FAILED;
        m.refused.msg = (char *)"k3queued was stopped; its queue is kept in memory, so this request is gone";
        stream_tell(q->stream, r, &m);
    }
    stats_log(&q->stats, q->now - q->started);
}
