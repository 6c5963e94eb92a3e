/* store.h - what survives a restart: records, and a commit that completes later
 *
 * Records are put between store_begin() and store_commit().  None of them counts, and nobody may be told of it, before
 * the commit's completion has been called: once for each commit, in their order, from store_poll().
 *
 * store.c keeps them in memory, where the daemon's own requests are all there is of them, and ends with the daemon.  A
 * store on disk replaces that file and nothing else. */
#ifndef K3_QUEUE_STORE_H
#define K3_QUEUE_STORE_H

#include <stdbool.h>

#include "common/error.h"
#include "queue/request.h"

enum store_record {
    STORE_REQUEST,  /* it was asked */
    STORE_PROGRESS, /* its answer has grown */
    STORE_DONE,     /* it ended */
    STORE_DELETE    /* prompt and answer are erased; usage stays */
};

struct store;

struct store *store_create(void);
void store_destroy(struct store *s); /* a commit that has not completed never will */

void store_begin(struct store *s);
/* Takes what it needs of r, now. */
void store_put(struct store *s, enum store_record record, const struct request *r);
/* failed: NULL, or why nothing of this commit was kept.  The fault "store-slow" makes a commit take a second. */
void store_commit(struct store *s, double now, void (*done)(void *arg, const struct k3_error *failed), void *arg);

/* Call the completion of a commit that is through; true while one is not: no other may be started then. */
bool store_poll(struct store *s, double now);

#endif
