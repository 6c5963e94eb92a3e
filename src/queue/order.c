#include "queue/order.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

#include "common/alloc.h"

TAILQ_HEAD(line, request);

struct order {
    struct line line;
    unsigned int length;
};

struct order *order_create(void)
{
    struct order *o = k3_zalloc(sizeof *o);

    TAILQ_INIT(&o->line);
    return o;
}

void order_destroy(struct order *o)
{
    int saved = errno;

    free(o);
    errno = saved;
}

void order_push(struct order *o, struct request *r)
{
    struct request *ahead = TAILQ_LAST(&o->line, line);

    while (ahead && ahead->number > r->number)
        ahead = TAILQ_PREV(ahead, line, line);
    if (ahead)
        TAILQ_INSERT_AFTER(&o->line, ahead, r, line);
    else
        TAILQ_INSERT_HEAD(&o->line, r, line);
    o->length++;
}

void order_remove(struct order *o, struct request *r)
{
    TAILQ_REMOVE(&o->line, r, line);
    o->length--;
}

static bool fits(const struct request *r, const struct order_limits *limits)
{
    return request_context(r) <= limits->context && request_choices(r) <= limits->choices;
}

struct request *order_next(const struct order *o, const struct order_limits *limits)
{
    struct request *r;

    TAILQ_FOREACH(r, &o->line, line)
    if (fits(r, limits))
        break;
    return r;
}

struct request *order_after(const struct order *o, const struct request *r)
{
    return r ? TAILQ_NEXT(r, line) : TAILQ_FIRST(&o->line);
}

unsigned int order_length(const struct order *o)
{
    return o->length;
}

/* Whoever has just come is at an end of the line, so the way to the nearer one is counted. */
unsigned int order_place(const struct order *o, const struct request *r)
{
    const struct request *ahead = r, *behind = r;

    for (unsigned int steps = 0;; steps++) {
        if (!(ahead = TAILQ_PREV(ahead, line, line)))
            return steps + 1;
        if (!(behind = TAILQ_NEXT(behind, line)))
            return o->length - steps;
    }
}
