/* order.h - who is next
 *
 * First come, first served: requests stand by their arrival number.  One that comes back from an engine keeps its
 * number, so it stands in front of all that came later. */
#ifndef K3_QUEUE_ORDER_H
#define K3_QUEUE_ORDER_H

#include <stdint.h>

#include "queue/request.h"

struct order;

/* What an engine can take. */
struct order_limits {
    uint64_t context; /* tokens of prompt and answer */
    uint32_t choices; /* answers to one prompt */
};

struct order *order_create(void);
void order_destroy(struct order *o); /* the requests stay */

/* Borrows r until order_remove(). */
void order_push(struct order *o, struct request *r);
void order_remove(struct order *o, struct request *r);

/* The next request for an engine with these limits, or NULL.  It stays in line until it is removed. */
struct request *order_next(const struct order *o, const struct order_limits *limits);

/* The line from its head, as far as is known now: order_after(o, NULL) is the first. */
struct request *order_after(const struct order *o, const struct request *r);
unsigned int order_length(const struct order *o);
/* 1 for the first in line.  r is in line. */
unsigned int order_place(const struct order *o, const struct request *r);

#endif
