#include "queue/lease.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "common/alloc.h"
#include "common/clock.h"
#include "common/log.h"

enum {
    BATCH_BYTES = 3 << 20 /* of prompts and tokens in one BATCH; a single request may be larger */
};

/* --- the beginning */

/* The least loaded engine that can take somebody in line, and whom. */
static struct engine *choose(struct queue *q, struct request **next)
{
    struct engine *best = NULL;

    for (struct engine *e = NULL; (e = engines_after(q->engines, e));) {
        struct order_limits limits = engine_limits(e);
        struct request *r;

        if (!engine_has_room(e) || (best && !engine_less_loaded(e, best)) || !(r = order_next(q->order, &limits)))
            continue;
        best = e;
        *next = r;
    }
    return best;
}

static void begin(struct queue *q, struct engine *e, struct request *r)
{
    if (r->stored)
        order_remove(q->order, r);
    engine_lease(e, r, q->now);
    q->running++;
    r->incarnation = e->incarnation;
    r->batched = r->broken = false;
    r->give_up = r->lost = 0;
    r->place = 0;
    r->reason = "None";
    request_move(r, EVENT_LEASED);
    if (r->started <= 0) {
        r->started = q->now;
        r->start_time = clock_wall();
    }
}

/* The request is at its end, by the engine's word or ours. */
static void end(struct queue *q, struct request *r, enum request_event event, const char *msg)
{
    static const enum done_why why[] = {
        [REQUEST_FAILED] = DONE_FAILED, [REQUEST_CANCELLED] = DONE_CANCELLED, [REQUEST_EXPIRED] = DONE_EXPIRED};

    engine_release(r->engine, r);
    q->running--;
    request_move(r, event);
    queue_finish(q, r, why[request_state(r)], msg);
}

/* It was to end, by its owner's wish or its deadline, and the engine has let go of it. */
static void end_ending(struct queue *q, struct request *r, const char *msg)
{
    if (r->expired)
        end(q, r, EVENT_EXPIRED, queue_expired);
    else
        end(q, r, EVENT_ENDED, msg);
}

/* The lease is over and the request is back in line, unless it was to end anyway or has been lost too often. */
static void take_back(struct queue *q, struct request *r, bool lost)
{
    if (request_state(r) == REQUEST_ENDING) {
        end_ending(q, r, NULL);
        return;
    }
    engine_release(r->engine, r);
    q->running--;
    request_move(r, EVENT_TAKEN_BACK);
    if (r->tokens > r->tokens_leased)
        r->losses = 0;
    if (lost && ++r->losses >= LEASE_LOSSES) {
        request_move(r, EVENT_FAILED);
        queue_finish(q, r, DONE_FAILED, "the engine was lost each time that it worked on this request");
        return;
    }
    r->lost = lost ? q->now : 0;
    if (r->stored)
        order_push(q->order, r);
    queue_update_place(q, r);
    r->place_told = r->place;
    r->reason_told = r->reason;
    stream_state(q->stream, r);
}

static int send_to(struct queue *q, struct engine *e, struct message *m, struct k3_error *err)
{
    m->head.version = e->version;
    return frame_send(q->socket, &e->peer, m, NULL, err);
}

static void send_plain(struct queue *q, struct engine *e, enum message_type type, const struct k3_id *id)
{
    struct message m = message_of(type, id);
    struct k3_error err;

    if (type == WIRE_HEARTBEAT)
        m.heartbeat.run = e->leased;
    if (send_to(q, e, &m, &err) < 0)
        log_debug("job %u %s is lost: %s", e->job, message_type_name(type), err.text);
}

/* What the engine goes on from.  Of several choices the ids are put together, for free_lease(). */
static void add_answer(struct message_lease *l, const struct answer *a)
{
    size_t n;
    const uint32_t *ids = answer_ids(a, &n);

    l->out = (struct message_u32s){(uint32_t *)ids, n};
    if (answer_choices(a) == 1)
        return;
    l->out.v = k3_calloc(n, sizeof *l->out.v);
    answer_sorted_ids(a, l->out.v);
    l->outn = (struct message_u32s){(uint32_t *)answer_lengths(a), answer_choices(a)};
}

static void free_lease(struct message_lease *l)
{
    if (l->outn.n > 0)
        free(l->out.v);
}

/* Leases of e that it has not been told of, as many as one BATCH holds; where the next begin in *from. */
static size_t fill_batch(struct request **from, struct message_lease *lease, struct request **of, size_t most)
{
    size_t n = 0, bytes = 0;
    struct request *r = *from;

    for (; r && n < most; r = TAILQ_NEXT(r, lease)) {
        size_t more = request_prompt_bytes(r) + r->tokens * sizeof(uint32_t);

        if (r->batched)
            continue;
        if (n && bytes + more > BATCH_BYTES)
            break;
        bytes += more;
        of[n] = r;
        lease[n] = (struct message_lease){
            .id = r->id,
            .ask = r->ask.ask,
            .ckey = {r->user->cache_key, sizeof r->user->cache_key},
            .own = (uint64_t)r->user->uid + 1,
            .name = r->ask.name,
            .dl = r->ask.dl,
            .sub = r->submit_time,
        };
        add_answer(&lease[n++], r->answer);
    }
    *from = r;
    return n;
}

/* An engine that cannot be reached is lost. */
static void send_batches(struct queue *q, struct engine *e)
{
    size_t most = e->leased < MESSAGE_ROWS ? e->leased : MESSAGE_ROWS;
    struct message_lease *leases = k3_calloc(most, sizeof *leases);
    struct request **of = k3_calloc(most, sizeof *of), *from = TAILQ_FIRST(&e->leases);
    struct k3_error err;
    bool alive = true;
    size_t n;

    while (alive && (n = fill_batch(&from, leases, of, most))) {
        struct message m = message_of(WIRE_BATCH, NULL);

        m.batch.reqs.v = leases;
        m.batch.reqs.n = n;
        if (send_to(q, e, &m, &err) == 0) {
            for (size_t i = 0; i < n; i++) {
                of[i]->batched = true;
                stream_state(q->stream, of[i]);
            }
        } else if (errno == EAGAIN || errno == EHOSTUNREACH) {
            lease_engine_lost(q, e, err.text);
            alive = false;
        } else { /* what can't be put into a message never will be */
            for (size_t i = 0; i < n; i++)
                end(q, of[i], EVENT_FAILED, err.text);
        }
        for (size_t i = 0; i < n; i++)
            free_lease(&leases[i]);
    }
    free(leases);
    free(of);
}

void lease_deal(struct queue *q)
{
    struct engine *e, *next;
    struct request *r;
    bool any = false;

    for (; (e = choose(q, &r)); any = true) {
        begin(q, e, r);
        log_info("req %s leased to job %u after %.3f s with %zu tokens, %u waiting", r->id_text, e->job,
                 q->now - r->arrived, r->tokens, order_length(q->order));
    }
    if (!any)
        return;
    for (e = engines_after(q->engines, NULL); e; e = next) {
        next = engines_after(q->engines, e);
        send_batches(q, e);
    }
}

/* --- what engines say */

/* The request of this id when e holds it.  Otherwise what e says of it is ignored, and the log has one line about that.
 */
static struct request *held_by(struct queue *q, struct engine *e, const struct k3_id *id, const char *what)
{
    struct request *r = table_find(q->table, id);
    char text[K3_ID_DIGITS + 1];

    if (r && r->engine == e)
        return r;
    if (!e->misbehaved)
        log_warning("req %s %s from job %u, which does not hold it, is ignored, as are others to come",
                    k3_id_format(id, text), what, e->job);
    e->misbehaved = true;
    return NULL;
}

/* The engine's idea of this answer and ours differ.  That does not heal: let it stop, then give the request to whoever
 * is next. */
static void break_lease(struct queue *q, struct request *r, const char *why)
{
    log_warning("req %s lease of job %u is broken: %s", r->id_text, r->engine->job, why);
    r->broken = true;
    if (request_state(r) == REQUEST_RUNNING)
        lease_cancel(q, r);
}

void lease_delta(struct queue *q, struct engine *e, const struct k3_id *id, const struct message_delta *d)
{
    struct request *r = held_by(q, e, id, "DELTA");
    struct k3_error err;

    if (!r || r->broken)
        return;
    if (answer_append(r->answer, d, &err) < 0) {
        if (errno == EPROTO) {
            break_lease(q, r, err.text);
        } else {
            send_plain(q, e, WIRE_ENGINE_CANCEL, id);
            end(q, r, EVENT_FAILED, err.text);
        }
        return;
    }
    e->moved = q->now;
    r->tokens += d->ids.n;
    q->stats.tokens += d->ids.n;
    queue_record(q, STORE_PROGRESS, r);
    stream_push(q->stream, r);
}

/* Whether all that the answer has by the engine's account has come. */
static bool is_complete(const struct request *r, const struct message_done *d)
{
    const uint32_t *length = answer_lengths(r->answer);
    uint32_t choices = answer_choices(r->answer);

    if (d->ctok != r->tokens || d->cs.n != (choices > 1 ? choices : 0))
        return false;
    for (size_t i = 0; i < d->cs.n; i++)
        if (d->cs.v[i].ctok != length[i])
            return false;
    return true;
}

void lease_done(struct queue *q, struct engine *e, const struct k3_id *id, struct message_done *d)
{
    struct request *r = held_by(q, e, id, "DONE");
    bool complete = d->why == DONE_STOP || d->why == DONE_LENGTH;

    if (!r)
        return;
    e->moved = q->now;
    if (!r->broken && complete && !is_complete(r, d)) {
        log_warning("req %s job %u ends it after %u tokens and has sent %zu", r->id_text, e->job, d->ctok, r->tokens);
        r->broken = true;
    }
    if (r->broken) {
        take_back(q, r, true);
        return;
    }
    r->done.ptok = d->ptok;
    r->done.cached = d->cached;
    free(r->done.cs.v);
    r->done.cs = d->cs;
    d->cs.v = NULL;
    d->cs.n = 0;
    r->done.prompt_s += d->prompt_s;
    r->done.gen_s += d->gen_s;
    if (complete) {
        engine_release(e, r);
        q->running--;
        request_move(r, EVENT_DONE);
        queue_finish(q, r, d->why, d->msg);
    } else if (d->why == DONE_EXPIRED) {
        end(q, r, EVENT_EXPIRED, d->msg);
    } else if (request_state(r) == REQUEST_ENDING) {
        end_ending(q, r, d->msg);
    } else {
        end(q, r, EVENT_FAILED, d->msg ? d->msg : "the engine stopped working on it");
    }
}

void lease_returned(struct queue *q, struct engine *e, const struct k3_id *id)
{
    struct request *r = held_by(q, e, id, "RETURNED");

    if (!r)
        return;
    e->moved = q->now;
    engine_drains(e);
    take_back(q, r, false);
}

/* What e holds can be gone on with when nobody else has had it since and no token between is forgotten. */
static struct request *still_good(struct queue *q, const struct engine *e, const struct message_held *held)
{
    struct request *r = table_find(q->table, &held->id);

    if (!r || !r->stored || r->incarnation != e->incarnation || r->broken || e->state == ENGINE_FENCED)
        return NULL;
    if (request_state(r) != REQUEST_QUEUED && request_state(r) != REQUEST_RUNNING)
        return NULL;
    if (held->offs.n != answer_choices(r->answer) || held->n < r->tokens)
        return NULL;
    for (size_t i = 0; i < held->offs.n; i++)
        if (held->offs.v[i] > answer_lengths(r->answer)[i])
            return NULL;
    return r;
}

/* Nobody has told this daemon of it, or only its owner. */
static bool is_unknown(struct queue *q, const struct k3_id *id)
{
    struct request *r = table_find(q->table, id);

    return !r || (request_state(r) == REQUEST_QUEUED && !r->incarnation);
}

void lease_reconcile(struct queue *q, struct engine *e, const struct message_engine_hello *hello,
                     struct message_engine_welcome *welcome)
{
    struct message_held *row = k3_calloc(hello->held.n, sizeof *row);
    struct message_held *tell = k3_calloc(hello->held.n, sizeof *tell);
    struct request *r, *next;

    welcome->held.v = row;
    welcome->tell.v = tell;
    TAILQ_FOREACH(r, &e->leases, lease)
    r->batched = false;
    for (size_t i = 0; i < hello->held.n; i++) {
        if (is_unknown(q, &hello->held.v[i].id))
            (tell++)->id = hello->held.v[i].id;
        if (!(r = still_good(q, e, &hello->held.v[i])) || (r->engine && r->batched))
            continue;
        if (!r->engine) {
            begin(q, e, r);
            r->losses -= r->losses > 0;
        }
        r->batched = true;
        log_info("req %s job %u goes on with it from token %zu and has %" PRIu64, r->id_text, e->job, r->tokens,
                 hello->held.v[i].n);
        row->id = r->id;
        row->offs =
            (struct message_u64s){k3_calloc(answer_choices(r->answer), sizeof *row->offs.v), answer_choices(r->answer)};
        for (uint32_t c = 0; c < answer_choices(r->answer); c++)
            row->offs.v[c] = answer_lengths(r->answer)[c];
        row++;
        stream_state(q->stream, r);
    }
    welcome->held.n = (size_t)(row - welcome->held.v);
    welcome->tell.n = (size_t)(tell - welcome->tell.v);
    for (r = TAILQ_FIRST(&e->leases); r; r = next) {
        next = TAILQ_NEXT(r, lease);
        if (!r->batched)
            take_back(q, r, true);
    }
}

void lease_reconciled(struct message_engine_welcome *welcome)
{
    for (size_t i = 0; i < welcome->held.n; i++)
        free(welcome->held.v[i].offs.v);
    free(welcome->held.v);
    free(welcome->tell.v);
}

void lease_held(struct queue *q, struct engine *e, struct message_lease *held)
{
    struct request *r = table_find(q->table, &held->id);

    if (r && r->engine == e) /* as it has said before */
        return;
    if (!(r = queue_adopt(q, held))) {
        if (!held->again)
            send_plain(q, e, WIRE_ENGINE_CANCEL, &held->id);
        return;
    }
    log_notice("req %s of %s is known again by job %u%s", r->id_text, r->user->name, e->job,
               held->again ? ", its answer has to be made again" : "");
    if (held->again)
        return;
    begin(q, e, r);
    r->batched = true;
    if (r->stored)
        stream_state(q->stream, r);
}

void lease_cancel(struct queue *q, struct request *r)
{
    r->give_up = q->now + q->options.engine_timeout_sec;
    send_plain(q, r->engine, WIRE_ENGINE_CANCEL, &r->id);
}

/* --- the end of an engine */

void lease_engine_lost(struct queue *q, struct engine *e, const char *why)
{
    if (e->leased)
        log_warning("job %u engine on %s is lost with %u requests: %s", e->job, e->node, e->leased, why);
    else
        log_notice("job %u engine on %s is gone: %s", e->job, e->node, why);
    q->stats.engines_gone++;
    while (!TAILQ_EMPTY(&e->leases))
        take_back(q, TAILQ_FIRST(&e->leases), true);
    engines_remove(q->engines, e);
}

/* It answers, so it is there, but nobody who waits for it gets anywhere. */
static void fence(struct queue *q, struct engine *e)
{
    struct request *r;

    log_warning("job %u engine on %s is fenced: it has done nothing for its %u requests in %.0f s", e->job, e->node,
                e->leased, q->now - e->moved);
    engine_fence(e);
    while ((r = TAILQ_FIRST(&e->leases))) {
        send_plain(q, e, WIRE_ENGINE_CANCEL, &r->id);
        take_back(q, r, true);
    }
}

/* A cancelled request ends now even if the engine goes on; a broken lease is taken back.  What the engine says of it
 * later is not from the holder any more. */
static void give_up_waiting(struct queue *q, struct engine *e)
{
    struct request *r, *next;

    for (r = TAILQ_FIRST(&e->leases); r; r = next) {
        next = TAILQ_NEXT(r, lease);
        if (r->give_up <= 0 || q->now < r->give_up)
            continue;
        log_warning("req %s job %u does not stop working on it", r->id_text, e->job);
        take_back(q, r, true);
    }
}

/* Who waits for an engine that no serving engine is, while none is loading, waits for ever. */
static void refuse_misfits(struct queue *q)
{
    struct request *r, *next;
    struct k3_error err;

    for (r = order_after(q->order, NULL); r; r = next) {
        struct order_limits need = {request_context(r), request_choices(r)};

        next = order_after(q->order, r);
        if (!engines_misfit(q->engines, &need, &err))
            continue;
        order_remove(q->order, r);
        request_move(r, EVENT_FAILED);
        queue_finish(q, r, DONE_FAILED, err.text);
    }
}

/* When this process itself was not running (stopped, swapped out, a suspended laptop), what engines said in the
 * meantime is still unread: their silence counts from now. */
static void forgive_own_sleep(struct queue *q)
{
    if (q->now - q->ticked > q->options.heartbeat_sec + q->options.engine_timeout_sec / 2)
        for (struct engine *e = NULL; (e = engines_after(q->engines, e));)
            e->heard = e->moved = q->now;
    q->ticked = q->now;
}

void lease_tick(struct queue *q)
{
    struct engine *e;

    forgive_own_sleep(q);
    while ((e = engines_silent(q->engines, q->now, q->options.engine_timeout_sec)))
        lease_engine_lost(q, e, "it does not answer");
    while ((e = engines_stalled(q->engines, q->now, q->options.stall_timeout_sec)))
        fence(q, e);
    for (e = NULL; (e = engines_after(q->engines, e));) {
        give_up_waiting(q, e);
        send_plain(q, e, WIRE_HEARTBEAT, NULL);
    }
    refuse_misfits(q);
}
