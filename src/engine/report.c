#include "engine/report.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "common/alloc.h"

enum { BLOCK_BYTES = 2048, ALIGN = 8 };

/* A report and what its message points at. */
struct block {
    struct report report;
    size_t used;
    char space[];
};

struct report_pool {
    struct mailbox *spare;
};

static void free_block(struct mail *m)
{
    free(m);
}

void report_free(struct mail *m)
{
    struct report *r = (struct report *)m;

    if (r->pool) {
        mailbox_post(r->pool->spare, m);
        return;
    }
    if (!r->whole)
        message_clear(&r->message);
    free(r);
}

struct report_pool *report_pool_create(int32_t blocks, struct k3_error *err)
{
    struct report_pool *p = k3_zalloc(sizeof *p);

    if (!(p->spare = mailbox_create(err))) {
        free(p);
        return NULL;
    }
    for (int32_t i = 0; i < blocks; i++) {
        struct block *b = k3_zalloc(sizeof *b + BLOCK_BYTES);
        b->report.pool = p;
        mailbox_post(p->spare, &b->report.mail);
    }
    return p;
}

void report_pool_destroy(struct report_pool *p)
{
    if (!p)
        return;

    int saved = errno;
    mailbox_destroy(p->spare, free_block);
    free(p);
    errno = saved;
}

static size_t aligned(size_t bytes)
{
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

static size_t bytes_of(const struct message_delta *d)
{
    size_t bytes = aligned(d->ids.n * sizeof *d->ids.v) + aligned(d->parts.n * sizeof *d->parts.v) +
                   aligned(d->lpi.n * sizeof *d->lpi.v) + aligned(d->lpv.n * sizeof *d->lpv.v);

    for (size_t i = 0; i < d->parts.n; i++) {
        bytes += aligned(d->parts.v[i].txt.len);
        bytes += d->parts.v[i].tn ? aligned(strlen(d->parts.v[i].tn) + 1) : 0;
    }
    return bytes;
}

static struct block *take(struct report_pool *p)
{
    struct pollfd spare = {.fd = mailbox_fd(p->spare), .events = POLLIN};
    struct mail *m;

    while (!(m = mailbox_take(p->spare)))
        poll(&spare, 1, -1);
    return (struct block *)m;
}

static void *place(struct block *b, const void *data, size_t bytes)
{
    void *to = b->space + b->used;

    b->used += aligned(bytes);
    return bytes > 0 ? memcpy(to, data, bytes) : NULL;
}

struct report *report_of_delta(struct report_pool *p, const struct message_delta *d)
{
    size_t bytes = bytes_of(d);
    struct block *b = p && bytes <= BLOCK_BYTES ? take(p) : k3_zalloc(sizeof *b + bytes);
    struct message_delta *copy = &b->report.message.delta;

    b->used = 0;
    b->report.whole = true;
    b->report.message = message_of(WIRE_DELTA, NULL);
    *copy = *d;
    copy->ids.v = place(b, d->ids.v, d->ids.n * sizeof *d->ids.v);
    copy->lpi.v = place(b, d->lpi.v, d->lpi.n * sizeof *d->lpi.v);
    copy->lpv.v = place(b, d->lpv.v, d->lpv.n * sizeof *d->lpv.v);
    copy->parts.v = place(b, d->parts.v, d->parts.n * sizeof *d->parts.v);
    for (size_t i = 0; i < d->parts.n; i++) {
        const struct message_part *from = &d->parts.v[i];
        copy->parts.v[i].txt.data = place(b, from->txt.data, from->txt.len);
        copy->parts.v[i].tn = from->tn ? place(b, from->tn, strlen(from->tn) + 1) : NULL;
    }
    return &b->report;
}

size_t report_bytes(const struct report *r)
{
    return sizeof(struct block) + ((const struct block *)r)->used;
}
