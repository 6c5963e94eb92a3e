#include "queue/table.h"

#include <errno.h>
#include <math.h>
#include <pwd.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>

#include <sodium.h>

#include "common/alloc.h"

struct table {
    void *by_id; /* tsearch(3) */
    uint64_t arrivals;
    TAILQ_HEAD(, request) all;
    struct user *users;
};

static int compare(const void *a, const void *b)
{
    return memcmp(((const struct request *)a)->id.bytes, ((const struct request *)b)->id.bytes, K3_ID_BYTES);
}

struct table *table_create(void)
{
    struct table *t = k3_zalloc(sizeof *t);

    TAILQ_INIT(&t->all);
    return t;
}

void table_destroy(struct table *t)
{
    int saved = errno;
    struct request *r;
    struct user *u;

    if (!t)
        return;
    while ((r = TAILQ_FIRST(&t->all))) {
        table_remove(t, r);
        request_destroy(r);
    }
    while ((u = t->users)) {
        t->users = u->next;
        free(u->name);
        free(u);
    }
    free(t);
    errno = saved;
}

void table_add(struct table *t, struct request *r)
{
    r->number = ++t->arrivals;
    if (!tsearch(r, &t->by_id, compare))
        abort(); /* as k3_zalloc() would */
    TAILQ_INSERT_TAIL(&t->all, r, all);
}

void table_remove(struct table *t, struct request *r)
{
    tdelete(r, &t->by_id, compare);
    TAILQ_REMOVE(&t->all, r, all);
}

struct request *table_find(const struct table *t, const struct k3_id *id)
{
    struct request key = {.id = *id};
    struct request **found = tfind(&key, &t->by_id, compare);

    return found ? *found : NULL;
}

struct request *table_after(const struct table *t, const struct request *r)
{
    return r ? TAILQ_NEXT(r, all) : TAILQ_FIRST(&t->all);
}

struct user *table_user(struct table *t, uid_t uid)
{
    struct user *u;
    const struct passwd *pw;

    for (u = t->users; u; u = u->next)
        if (u->uid == uid)
            return u;
    u = k3_zalloc(sizeof *u);
    u->uid = uid;
    u->allowance = INFINITY;
    pw = getpwuid(uid);
    u->name = pw ? k3_strdup(pw->pw_name) : k3_asprintf("%u", uid);
    randombytes_buf(u->cache_key, sizeof u->cache_key);
    u->next = t->users;
    t->users = u;
    return u;
}
