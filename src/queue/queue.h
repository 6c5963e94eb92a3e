/* queue.h - the shared queue: a request from its submission to its erasure
 *
 * The parts of the daemon and how they are joined.  What users ask for is here; what engines say is in lease.h;
 * server.h turns messages into these calls and the calls' refusals into messages.  Nothing happens to a new request
 * before the store has it: queue_turn(), at the end of every turn of the loop, commits what came in and does what can
 * be done. */
#ifndef K3_QUEUE_QUEUE_H
#define K3_QUEUE_QUEUE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>
#include <sys/types.h>

#include "common/error.h"
#include "queue/engine.h"
#include "queue/order.h"
#include "queue/request.h"
#include "queue/stats.h"
#include "queue/store.h"
#include "queue/stream.h"
#include "queue/table.h"
#include "wire/message.h"

enum {
    QUEUE_ROWS = 1000 /* finished requests whose answers are erased and that are still listed */
};
#define QUEUE_KEPT_BYTES ((size_t)1 << 30) /* finished answers that wait for their owners */

struct queue_options {
    unsigned int max_queued, max_queued_per_user; /* unfinished requests */
    size_t max_bytes, max_bytes_per_user;         /* of their prompts */
    unsigned int max_rate_per_user;               /* requests a minute */
    size_t max_prompt_bytes, max_prompt_tokens;   /* of one request */
    uint32_t max_tokens;                          /* that one request may ask for, 0: any number */
    uint32_t max_choices;                         /* answers that one request may ask for */
    double keep_answer_sec;                       /* for an owner who does not come */
    double heartbeat_sec;
    double engine_timeout_sec;
    double stall_timeout_sec;
    size_t max_output; /* bytes that may wait for one reader that does not read */
};

TAILQ_HEAD(queue_requests, request);

struct queue {
    struct queue_options options;
    double now; /* monotonic, as of this turn; whoever calls in sets it */
    double started, ticked;
    void *socket; /* borrowed */
    struct table *table;
    struct order *order;
    struct store *store;
    struct engines *engines;
    struct stream *stream;
    struct stats stats;
    unsigned int live, running;       /* requests that are not finished, and those that an engine has */
    bool recording;                   /* records were put and are not committed */
    struct queue_requests fresh;      /* put */
    struct queue_requests committing; /* being committed */
    struct queue_requests kept;       /* finished, answer kept; oldest first */
    struct queue_requests past;       /* finished, answer erased */
    unsigned int past_n;
    size_t prompt_bytes;
};

/* Why someone is not given what he asked for. */
struct refusal {
    enum exit_code code;
    double retry_sec; /* 0: no use */
    struct k3_error err;
};
int refuse(struct refusal *no, enum exit_code code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* Who speaks: a peer, the version it speaks and, where proved, the uid. */
struct caller {
    const struct frame_peer *peer;
    const char *key; /* of its connection (frame_key()), NULL: it came by no tcp */
    uint16_t version;
    uid_t uid;
    struct engine *engine;   /* when it has registered as one */
    struct request *request; /* that the message is about, where there must be one */
};

struct queue *queue_create(void *socket, const struct queue_options *options, double now);
void queue_destroy(struct queue *q);
/* Other limits and times from now on; what is in the queue stays there. */
void queue_reload(struct queue *q, const struct queue_options *options);

/* Takes what submit holds.  The answer comes later: ACCEPTED once the store has it.  An id that its owner sent before
 * is the same request and is answered again. */
int queue_submit(struct queue *q, const struct caller *c, const struct k3_id *id, struct message_submit *submit,
                 struct refusal *no);
/* A request that an engine holds and the daemon does not know, as one does that was started anew.  Takes what held
 * holds. NULL: another has it by now, it is at its end, or held does not say whose it is. */
struct request *queue_adopt(struct queue *q, struct message_lease *held);
int queue_attach(struct queue *q, const struct caller *c, struct request *r, const struct message_attach *from,
                 struct refusal *no);
int queue_cancel(struct queue *q, struct request *r, struct refusal *no);
/* Its deadline has passed: it ends, as soon as an engine that has it lets go. */
extern const char queue_expired[]; /* the sentence */
void queue_expire(struct queue *q, struct request *r);
/* Its owner has the answer. */
int queue_acknowledge(struct queue *q, struct request *r, struct refusal *no);

/* Put a record of r; committed at the end of the turn. */
void queue_record(struct queue *q, enum store_record record, const struct request *r);
/* r has just moved to a final state: tell its watchers.  msg is copied; NULL: none. */
void queue_finish(struct queue *q, struct request *r, enum done_why why, const char *msg);
/* Bring place and reason up to date: of all in line, of one that is in line or not. */
void queue_update_places(struct queue *q);
void queue_update_place(struct queue *q, struct request *r);

/* At the end of each turn.  True: call again soon, somebody is waiting for a line or for the store. */
bool queue_turn(struct queue *q);
/* Once a heartbeat. */
void queue_tick(struct queue *q);
/* The daemon ends: tell everybody. */
void queue_end(struct queue *q);

#endif
