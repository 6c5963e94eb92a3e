/* engine.h - the engines that registered, what they can take and what they have
 *
 * An engine is one running job: it says HELLO (loading), READY (serving), and ends by BYE, by a report of its loss, by
 * its silence, or because its job said HELLO with another incarnation.  One that answers and does not work is fenced:
 * it has lost its leases and is given none until it offers credit for all its slots, so has let go of everything.
 * Credit is the number of answers that it takes now; a lease is a request that it has.  Who loses what when an engine
 * goes is the caller's business: it walks engine->leases first. */
#ifndef K3_QUEUE_ENGINE_H
#define K3_QUEUE_ENGINE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "common/error.h"
#include "queue/order.h"
#include "queue/request.h"
#include "wire/frame.h"
#include "wire/message.h"

enum { ENGINES_MOST = 64 }; /* registered at a time */

struct engine {
    struct frame_peer peer;
    uint16_t version; /* that it speaks */
    uint32_t job;
    uint64_t incarnation;
    char *node, *model, *layout;
    uint32_t ranks;
    enum engine_state state;
    double since;                      /* of the state, seconds since 1970 */
    struct message_u64s loaded, total; /* bytes a rank */
    uint32_t slots, credit;
    uint64_t context;          /* tokens of prompt and answer, at most */
    double heard;              /* when it last said something, monotonic seconds ... */
    double moved;              /* ... and when it last computed, brought a request on, or was given the first of them */
    uint64_t steps;            /* computed by its own account */
    double rate;               /* tokens/s by its own account */
    bool misbehaved;           /* the log has a line about it already */
    unsigned int leased, busy; /* requests, and slots that their choices fill */
    TAILQ_HEAD(, request) leases;
    TAILQ_ENTRY(engine) link;
};

struct engines;

struct engines *engines_create(void);
void engines_destroy(struct engines *es); /* the engines too; leases must be gone */

/* Take in the engine that said hello, which keeps its strings.  The caller has removed an older incarnation of its job.
 */
struct engine *engines_add(struct engines *es, const struct frame_peer *peer, uint16_t version,
                           struct message_engine_hello *hello, double now);
/* It must have no leases. */
void engines_remove(struct engines *es, struct engine *e);

struct engine *engines_by_peer(const struct engines *es, const struct frame_peer *peer);
struct engine *engines_by_job(const struct engines *es, uint32_t job);
/* One that has been silent for longer than this, or NULL. */
struct engine *engines_silent(const struct engines *es, double now, double timeout_sec);
/* One that has requests and has not worked for this long, or NULL. */
struct engine *engines_stalled(const struct engines *es, double now, double stall_sec);
/* All of them: engines_after(es, NULL) is the first. */
struct engine *engines_after(const struct engines *es, const struct engine *e);
unsigned int engines_count(const struct engines *es);

/* What it reported.  Load and ready take arrays and leave them zeroed. */
void engine_load(struct engine *e, struct message_engine_load *load);
void engine_ready(struct engine *e, const struct message_engine_ready *ready);
void engine_credit(struct engine *e, uint32_t n);
void engine_beat(struct engine *e, const struct message_heartbeat *beat, double now);
void engine_drains(struct engine *e);

/* Give it nothing until it offers credit for all its slots. */
void engine_fence(struct engine *e);

/* Serving, and takes one more. */
bool engine_has_room(const struct engine *e);
/* Does a less of what it can do at once than b does? */
bool engine_less_loaded(const struct engine *a, const struct engine *b);
struct order_limits engine_limits(const struct engine *e);
/* Whether nobody will ever take such a request: all engines serve (there is one), and none goes so far.  The sentence
 * says how far they go. */
bool engines_misfit(const struct engines *es, const struct order_limits *need, struct k3_error *err);
/* r is the engine's from now on, borrowed, and uses up a credit for each choice as far as there are any: one that does
 * not fit at once waits in the engine for the slots that become free next. */
void engine_lease(struct engine *e, struct request *r, double now);
/* It no longer is. */
void engine_release(struct engine *e, struct request *r);

#endif
