/* lease.h - requests in the hands of engines
 *
 * A lease begins in a BATCH and ends by DONE, by being returned, or by the loss of the engine; then the request
 * goes back in line with its tokens and the next engine continues behind them.  Deltas extend the answer only when they
 * come from the holder of the lease and begin where the answer ends, so an answer has no gap and no repetition whatever
 * engines do. */
#ifndef K3_QUEUE_LEASE_H
#define K3_QUEUE_LEASE_H

#include "queue/queue.h"

enum { LEASE_LOSSES = 5 }; /* leases in a row that brought no token and were lost: the request is given up */

/* Lease out what engines have credit for, to the least loaded first. */
void lease_deal(struct queue *q);

/* What an engine says of a request.  DONE's choices are taken. */
void lease_delta(struct queue *q, struct engine *e, const struct k3_id *id, const struct message_delta *d);
void lease_done(struct queue *q, struct engine *e, const struct k3_id *id, struct message_done *d);
void lease_returned(struct queue *q, struct engine *e, const struct k3_id *id);

/* e has registered (again), and hello says what it holds from before a cut.  Fills in welcome's rows, which the caller
 * frees with lease_reconciled(): the leases that e goes on with, among them those that were taken back for its silence
 * and have not been given to another engine, and the requests that it has to tell of.  Its other leases go back in
 * line.
 */
void lease_reconcile(struct queue *q, struct engine *e, const struct message_engine_hello *hello,
                     struct message_engine_welcome *welcome);
void lease_reconciled(struct message_engine_welcome *welcome);

/* What e was asked to tell of, since nobody here knew it.  e has it from now on, or it goes in line when its answer has
 * to be made again. */
void lease_held(struct queue *q, struct engine *e, struct message_lease *held);

/* Ask the engine that has r to stop. */
void lease_cancel(struct queue *q, struct request *r);

/* e is gone: its requests go back in line. */
void lease_engine_lost(struct queue *q, struct engine *e, const char *why);
/* Once a heartbeat: engines that are silent or stand still, requests that engines do not let go, requests that fit no
 * engine. */
void lease_tick(struct queue *q);

#endif
