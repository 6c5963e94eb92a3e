/* report.h - what the leader tells the loop thread
 *
 * Deltas come with every token of every sequence, so their blocks are made at the start and go round: report_free()
 * gives one back.  While all of them are on their way the leader waits; the loop thread never waits for the leader. */
#ifndef K3_ENGINE_REPORT_H
#define K3_ENGINE_REPORT_H

#include <stdbool.h>

#include "engine/mailbox.h"
#include "wire/message.h"

struct report_pool;

struct report {
    struct mail mail;
    struct message message; /* DELTA, DONE or RETURNED; ENGINE_LOAD, ENGINE_READY, ENGINE_BYE */
    uint64_t lease;         /* of the first three */
    bool whole;             /* the message lies in the report's own block; else it owns its parts */
    struct report_pool *pool;
};
void report_free(struct mail *m);

struct report_pool *report_pool_create(int32_t blocks, struct k3_error *err);
/* Once every report has been freed. */
void report_pool_destroy(struct report_pool *p);

/* A copy of the delta, in a block of the pool.  Allocates only where that is too small: for a tool's argument of some
 * kilobytes that was held back until its end.  p NULL: in a block of its own. */
struct report *report_of_delta(struct report_pool *p, const struct message_delta *d);
/* Bytes of such a block. */
size_t report_bytes(const struct report *r);

#endif
