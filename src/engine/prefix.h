/* prefix.h - what sequences left behind that others can begin with
 *
 * A checkpoint is a copy of a sequence's state after a number of full pages, and keeps those pages.  A later sequence
 * of the same user whose tokens begin with the same pages starts behind them, bit for bit as if it had run them: the
 * sums of a token do not depend on the step in which it runs.  The least recently used checkpoint makes room for a
 * new one, and for sequences that need its pages.
 *
 * A page is known by the hash of all tokens up to its end under a key of the user (BLAKE2b, by libsodium), which the
 * queue daemon derives from a secret: nobody finds another user's pages, nor learns by the clock that they are there.
 *
 * Checkpoints are taken of prompts only, at pages that end at a multiple of K3_EXPAND_BLOCK tokens: at the last, and
 * where a prompt leaves an earlier one with which it began (the point from which a third may go another way: Pan et
 * al., "Marconi", arXiv:2411.19379). */
#ifndef K3_ENGINE_PREFIX_H
#define K3_ENGINE_PREFIX_H

#include <stddef.h>
#include <stdint.h>

#include "engine/cache.h"

enum { PREFIX_HASH = 16, PREFIX_KEY_MIN = 16, PREFIX_KEY_MAX = 32 };

/* Of all tokens up to the end of a page. */
struct prefix_hash {
    uint8_t byte[PREFIX_HASH];
};
/* before: of the page before, NULL for the first.  key: PREFIX_KEY_MIN to PREFIX_KEY_MAX bytes.  Does not allocate. */
void prefix_hash_page(struct prefix_hash *out, const struct prefix_hash *before, const int32_t *token, int32_t n,
                      const uint8_t *key, size_t key_len);

struct prefix;

/* Borrows the cache, which must live longer. */
struct prefix *prefix_create(struct cache *c, int32_t checkpoints);
void prefix_destroy(struct prefix *p);

/* The checkpoint that covers most of these n pages, marked as used; -1 when there is none. */
int32_t prefix_find(struct prefix *p, const struct prefix_hash *chain, int32_t n);
int32_t prefix_pages(const struct prefix *p, int32_t checkpoint);
/* With how many of these n pages an earlier call of this function began, as far as is remembered. */
int32_t prefix_meet(struct prefix *p, const struct prefix_hash *chain, int32_t n);

/* Take slots as cache_reserve() does, the first beginning with the pages of a checkpoint (-1: none); evicts others when
 * that is what it takes. */
int prefix_reserve(struct prefix *p, const struct cache_need *need, int32_t checkpoint, int32_t *slot);
/* A place for the state that belongs to these n pages: free, or that of the least recently used.  -1: there is none, or
 * the state is kept already. */
int32_t prefix_keep(struct prefix *p, const struct prefix_hash *chain, const int32_t *page, int32_t n);
/* Evict all that covers only pages of these. */
void prefix_forget(struct prefix *p, const struct prefix_hash *chain, int32_t n);

#endif
