#include "queue/stream.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "common/alloc.h"
#include "common/clock.h"
#include "common/log.h"
#include "queue/engine.h"

enum { TURN = 500 };                  /* messages to one reader before the others have their turn */
static const double patience_sec = 5; /* with a reader that takes nothing and is too far behind */

struct watcher {
    struct request *request;
    struct frame_peer peer;
    uint16_t version;
    size_t piece;                    /* next to be sent */
    uint64_t token;                  /* first that it has not been sent */
    bool state_due;                  /* state, place or reason have changed */
    bool dropped;                    /* has only to be told so */
    bool stuck;                      /* there is more for it, later: its line was full, or others have their turn */
    double took;                     /* when its line last took something */
    TAILQ_ENTRY(watcher) link;       /* of the request */
    TAILQ_ENTRY(watcher) stuck_link; /* of the stream */
};

struct stream {
    void *socket;
    size_t max_output;
    TAILQ_HEAD(, watcher) stuck;
};

struct stream *stream_create(void *socket)
{
    struct stream *s = k3_zalloc(sizeof *s);

    s->socket = socket;
    TAILQ_INIT(&s->stuck);
    return s;
}

void stream_limit(struct stream *s, size_t max_output)
{
    s->max_output = max_output;
}

void stream_destroy(struct stream *s)
{
    int saved = errno;

    free(s);
    errno = saved;
}

void stream_answer(struct stream *s, const struct frame_peer *to, uint16_t version, struct message *m)
{
    struct k3_error err;

    m->head.version = version;
    if (frame_send(s->socket, to, m, NULL, &err) < 0)
        log_debug("%s to a client is lost: %s", message_type_name(m->head.type), err.text);
}

static void set_stuck(struct stream *s, struct watcher *w, bool stuck)
{
    if (w->stuck && !stuck)
        TAILQ_REMOVE(&s->stuck, w, stuck_link);
    if (!w->stuck && stuck)
        TAILQ_INSERT_TAIL(&s->stuck, w, stuck_link);
    w->stuck = stuck;
}

static void remove_watcher(struct stream *s, struct watcher *w)
{
    set_stuck(s, w, false);
    TAILQ_REMOVE(&w->request->watchers, w, link);
    free(w);
}

static struct message state_message(const struct request *r)
{
    struct message m = message_of(WIRE_STATE, &r->id);

    m.state.state = request_state(r);
    m.state.place = r->place;
    m.state.reason = (char *)r->reason;
    m.state.job = r->engine ? r->engine->job : 0;
    m.state.n = request_choices(r) > 1 ? request_choices(r) : 0;
    return m;
}

/* The next message for w; false when there is none.  What is sent is counted in sent(), so that a full line changes
 * nothing. */
static bool next_message(const struct watcher *w, struct message *m)
{
    const struct request *r = w->request;

    if (w->dropped) {
        *m = message_of(WIRE_REFUSED, &r->id);
        m->refused.code = EXIT_CODE_FAILED;
        m->refused.msg = (char *)"dropped because nothing was read for a while: attach again";
        m->refused.retry = 1;
    } else if (w->state_due) {
        *m = state_message(r);
    } else if (r->answer && w->piece < answer_pieces(r->answer)) {
        *m = message_of(WIRE_DELTA, &r->id);
        answer_piece(r->answer, w->piece, &m->delta);
    } else if (request_is_final(r)) {
        *m = message_of(WIRE_DONE, &r->id);
        m->done = r->done;
    } else {
        return false;
    }
    m->head.version = w->version;
    return true;
}

/* True when this was the last message for w. */
static bool sent(struct watcher *w, const struct message *m)
{
    switch (m->head.type) {
    case WIRE_STATE:
        w->state_due = false;
        return false;
    case WIRE_DELTA:
        w->piece++;
        w->token = m->delta.off + m->delta.ids.n;
        return false;
    default:
        return true;
    }
}

/* To be far behind is no fault: whoever attaches late is.  To stay there without reading is. */
static void drop_if_slow(struct stream *s, struct watcher *w)
{
    struct request *r = w->request;

    if (w->dropped || !r->answer || answer_bytes_from(r->answer, w->piece) <= s->max_output ||
        clock_monotonic() - w->took < patience_sec)
        return;
    log_warning("req %s a reader was dropped at token %" PRIu64 " of %zu: it does not read", r->id_text, w->token,
                r->tokens);
    w->dropped = true;
}

static void push(struct stream *s, struct watcher *w)
{
    struct message m;
    struct k3_error err;

    for (int n = 0; next_message(w, &m); n++) {
        if (n == TURN) {
            set_stuck(s, w, true);
            return;
        }
        if (frame_send(s->socket, &w->peer, &m, NULL, &err) < 0) {
            if (errno == EAGAIN) {
                set_stuck(s, w, true);
                drop_if_slow(s, w);
                return;
            }
            log_debug("req %s a reader is gone: %s", w->request->id_text, err.text);
            remove_watcher(s, w);
            return;
        }
        w->took = clock_monotonic();
        if (sent(w, &m)) {
            remove_watcher(s, w);
            return;
        }
    }
    set_stuck(s, w, false);
}

void stream_push(struct stream *s, struct request *r)
{
    struct watcher *w, *next;

    for (w = TAILQ_FIRST(&r->watchers); w; w = next) {
        next = TAILQ_NEXT(w, link);
        push(s, w);
    }
}

void stream_state(struct stream *s, struct request *r)
{
    struct watcher *w;

    TAILQ_FOREACH(w, &r->watchers, link)
    w->state_due = true;
    stream_push(s, r);
}

void stream_tell(struct stream *s, const struct request *r, struct message *m)
{
    struct watcher *w;

    TAILQ_FOREACH(w, &r->watchers, link)
    stream_answer(s, &w->peer, w->version, m);
}

bool stream_watched(const struct request *r)
{
    return !TAILQ_EMPTY(&r->watchers);
}

static struct watcher *find_watcher(const struct request *r, const struct frame_peer *peer, unsigned int *count)
{
    struct watcher *w;

    *count = 0;
    TAILQ_FOREACH(w, &r->watchers, link)
    {
        if (frame_peer_equal(&w->peer, peer))
            break;
        ++*count;
    }
    return w;
}

int stream_attach(struct stream *s, struct request *r, const struct frame_peer *peer, uint16_t version,
                  const uint64_t *have, struct k3_error *err)
{
    unsigned int count;
    struct watcher *w = find_watcher(r, peer, &count);

    if (!w && count >= STREAM_WATCHERS) {
        stream_state(s, r); /* finds out who is gone */
        find_watcher(r, peer, &count);
    }
    if (!w && count >= STREAM_WATCHERS) {
        errno = EBUSY;
        return k3_errorf(err, "%d terminals watch this request already, which is the most", STREAM_WATCHERS);
    }
    if (!w) {
        w = k3_zalloc(sizeof *w);
        w->request = r;
        w->peer = *peer;
        TAILQ_INSERT_TAIL(&r->watchers, w, link);
    }
    w->version = version;
    w->piece = answer_find(r->answer, have);
    w->token = have[0];
    w->took = clock_monotonic();
    w->dropped = false;
    w->state_due = true;
    return 0;
}

bool stream_retry(struct stream *s)
{
    struct watcher *w, *next;

    for (w = TAILQ_FIRST(&s->stuck); w; w = next) {
        next = TAILQ_NEXT(w, stuck_link);
        push(s, w);
    }
    return !TAILQ_EMPTY(&s->stuck);
}

void stream_forget(struct stream *s, struct request *r)
{
    while (!TAILQ_EMPTY(&r->watchers))
        remove_watcher(s, TAILQ_FIRST(&r->watchers));
}
