/* kept.h - what was said of an answer, for a daemon that may not have heard it
 *
 * The deltas of one lease in the order in which they were made.  Bounded in bytes: the oldest are forgotten first,
 * which the daemon has had long ago unless it is away. */
#ifndef K3_ENGINE_KEPT_H
#define K3_ENGINE_KEPT_H

#include <stddef.h>
#include <stdint.h>

#include "engine/report.h"
#include "wire/message.h"

struct kept;

/* first: where each of n choices begins, copied.  most: bytes. */
struct kept *kept_create(const uint64_t *first, size_t n, size_t most);
void kept_destroy(struct kept *k);

/* Copies. */
void kept_add(struct kept *k, const struct message_delta *d);
/* DELTAs in order: kept_after(k, NULL) is the oldest.  Borrowed until the next kept_add(). */
const struct report *kept_after(const struct kept *k, const struct report *r);
/* Of each choice the first token that is there; borrowed. */
struct message_u64s kept_first(const struct kept *k);

#endif
