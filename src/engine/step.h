/* step.h - the thread that computes: rank 0 leads, the others follow
 *
 * One broadcast a step.  After PLAN_IDLE the followers sleep in comm_broadcast_idle(), and the leader sends another
 * idle plan every STEP_TICK_S, so that silence means a fault: a rank that hears nothing for STEP_STALL_S, or waits so
 * long for another in the middle of a step, ends itself, and with it, by the job's manager, all ranks.
 *
 * The leader takes orders from one mailbox and posts reports into another; nobody but this thread uses comm or the
 * model once the engine has started. */
#ifndef K3_ENGINE_STEP_H
#define K3_ENGINE_STEP_H

#include "comm/comm.h"
#include "engine/cache.h"
#include "engine/mailbox.h"
#include "engine/plan.h"
#include "engine/report.h"
#include "engine/sequence.h"
#include "model/forward.h"

enum {
    STEP_TICK_S = 2,
    STEP_STALL_S = 30,
    STEP_DELTAS = 64 /* tokens of a slot that may be on their way to the loop thread */
};

/* To the leader. */
enum order_kind {
    ORDER_RUN,            /* sequence, which goes with the order, and its choices */
    ORDER_CANCEL,         /* lease: report it as cancelled */
    ORDER_DROP,           /* lease: end it and say nothing */
    ORDER_RETURN_WAITING, /* give back what has not been admitted */
    ORDER_RETURN_ALL,
    ORDER_STOP /* end all ranks; what still runs is dropped */
};
struct order {
    struct mail mail;
    enum order_kind kind;
    struct sequence *sequence;
    uint64_t lease;
};
struct order *order_create(enum order_kind kind);
void order_free(struct mail *m);

struct step {
    struct comm *comm;
    struct forward *forward;
    struct plan *plan;
    int32_t vocab, slots, chunk;
    struct cache *cache; /* rank 0 only, as is all below */
    struct prefix *prefix;
    struct mailbox *orders, *reports;
    struct report_pool *deltas; /* STEP_DELTAS a slot */
    _Atomic uint64_t steps;     /* led so far, idle ones apart; any thread may look */
};

/* Until the leader says stop.  -1: the step is lost, the caller ends this rank. */
int step_follow(struct step *st, struct k3_error *err);
/* Until ORDER_STOP. */
int step_lead(struct step *st, struct k3_error *err);

#endif
