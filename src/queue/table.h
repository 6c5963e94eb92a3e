/* table.h - every request that the daemon knows, and whose they are */
#ifndef K3_QUEUE_TABLE_H
#define K3_QUEUE_TABLE_H

#include <sys/types.h>

#include "queue/request.h"

/* Whoever sends requests.  Kept while the daemon lives: there are as many as uids that ever asked. */
struct user {
    uid_t uid;
    char *name;            /* or the uid in digits */
    uint8_t cache_key[16]; /* random: engines share what they keep of prompts among requests with one key */
    unsigned int live;     /* requests that are not finished ... */
    size_t bytes;          /* ... and what their prompts fill */
    double allowance;      /* requests that he may send now, as of ... */
    double allowed;        /* ... then */
    struct user *next;
};

struct table;

struct table *table_create(void);
void table_destroy(struct table *t); /* the requests too */

/* Takes r, which gets the next arrival number. */
void table_add(struct table *t, struct request *r);
/* The caller has r again. */
void table_remove(struct table *t, struct request *r);
struct request *table_find(const struct table *t, const struct k3_id *id);
/* By arrival: table_after(t, NULL) is the first. */
struct request *table_after(const struct table *t, const struct request *r);

struct user *table_user(struct table *t, uid_t uid);

#endif
