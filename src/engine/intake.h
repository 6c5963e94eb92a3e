/* intake.h - rank 0 and the queue daemon: leases in, tokens out
 *
 * Lives on the loop thread; everything that computes is behind two mailboxes (step.h).  The engine says HELLO at once
 * and loads whether or not a daemon is there.  When the daemon falls silent, or no longer knows it, the engine works
 * on, keeps what it would say and says HELLO again, with the requests that it holds, until the daemon answers which of
 * them it goes on with and from which tokens. */
#ifndef K3_ENGINE_INTAKE_H
#define K3_ENGINE_INTAKE_H

#include <stdbool.h>

#include "common/error.h"
#include "common/loop.h"
#include "engine/mailbox.h"
#include "engine/prepare.h"
#include "wire/route.h"

struct intake;

struct intake_options {
    const struct route *route; /* to the daemon */
    const char *munge_socket;
    uint32_t job;                      /* of Slurm */
    const char *node, *model, *layout; /* as layout_name() has it */
    int ranks;
    int32_t slots;
    double drain_timeout_s;
    double away_timeout_s; /* a daemon that is away is waited for, then what is held is dropped */
    size_t keep_bytes;     /* of answers, for such a daemon; each of the slots has its part */
    struct prepare_limits limits;
    struct mailbox *orders, *reports; /* to and from step_lead() */
    const _Atomic uint64_t *steps;    /* that it has led */
};

/* Borrows what the options point at, the loop and the ZeroMQ context.  Says HELLO.  The loop stops once the leader has
 * stopped, which it says with a report of ENGINE_BYE. */
struct intake *intake_create(struct loop *loop, void *zmq, const struct intake_options *o, struct k3_error *err);
void intake_destroy(struct intake *in);

/* No new leases; answers that end within the drain timeout do, the others are given back, then the leader is told to
 * stop. Asked again: give back at once. */
void intake_drain(struct intake *in, const char *why);
/* Why the daemon does not want this engine: no use in starting it again.  NULL: it does. */
const char *intake_refused(const struct intake *in);

#endif
