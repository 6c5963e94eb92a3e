#include "engine/kept.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/alloc.h"

struct kept {
    struct report *oldest, *newest; /* linked by their mail */
    size_t bytes, most;
    struct message_u64s first;
};

struct kept *kept_create(const uint64_t *first, size_t n, size_t most)
{
    struct kept *k = k3_zalloc(sizeof *k);

    k->most = most;
    k->first = (struct message_u64s){k3_calloc(n, sizeof *first), n};
    memcpy(k->first.v, first, n * sizeof *first);
    return k;
}

static void forget_oldest(struct kept *k)
{
    struct report *r = k->oldest;
    const struct message_delta *d = &r->message.delta;

    k->first.v[d->c] = d->off + d->ids.n;
    k->bytes -= report_bytes(r);
    k->oldest = (struct report *)r->mail.next;
    report_free(&r->mail);
}

void kept_destroy(struct kept *k)
{
    int saved = errno;

    if (!k)
        return;
    while (k->oldest)
        forget_oldest(k);
    free(k->first.v);
    free(k);
    errno = saved;
}

void kept_add(struct kept *k, const struct message_delta *d)
{
    struct report *r = report_of_delta(NULL, d);

    r->mail.next = NULL;
    if (k->oldest)
        k->newest->mail.next = &r->mail;
    else
        k->oldest = r;
    k->newest = r;
    k->bytes += report_bytes(r);
    while (k->oldest && k->bytes > k->most)
        forget_oldest(k);
}

const struct report *kept_after(const struct kept *k, const struct report *r)
{
    return r ? (const struct report *)r->mail.next : k->oldest;
}

struct message_u64s kept_first(const struct kept *k)
{
    return k->first;
}
