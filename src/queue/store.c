#include "queue/store.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "common/alloc.h"
#include "common/fault.h"

struct store {
    bool open;
    double through; /* when the commit under way is */
    void (*done)(void *arg, const struct k3_error *failed);
    void *arg;
};

struct store *store_create(void)
{
    return k3_zalloc(sizeof(struct store));
}

void store_destroy(struct store *s)
{
    int saved = errno;

    free(s);
    errno = saved;
}

void store_begin(struct store *s)
{
    assert(!s->open);
    s->open = true;
}

/* The request itself is the record. */
void store_put(struct store *s, enum store_record record, const struct request *r)
{
    (void)record;
    (void)r;
    assert(s->open);
}

void store_commit(struct store *s, double now, void (*done)(void *arg, const struct k3_error *failed), void *arg)
{
    assert(s->open && !s->done);
    s->open = false;
    s->through = now + (fault("store-slow") ? 1.0 : 0.0);
    s->done = done;
    s->arg = arg;
}

bool store_poll(struct store *s, double now)
{
    void (*done)(void *arg, const struct k3_error *failed) = s->done;

    if (!done)
        return false;
    if (now < s->through)
        return true;
    s->done = NULL;
    done(s->arg, NULL);
    return false;
}
