/* cache.h - who owns which state slot and which latent pages
 *
 * Bookkeeping only: the memory behind slots and pages belongs to model/forward.  A sequence reserves, at admission, as
 * many pages as its prompt and its longest answer can need, so that whatever has been admitted can finish; pages are
 * handed out as it grows. */
#ifndef K3_ENGINE_CACHE_H
#define K3_ENGINE_CACHE_H

#include <stdint.h>

struct cache;

struct cache_limits {
    int32_t slots;
    int32_t pages;
    int32_t page_tokens; /* tokens a page */
};

struct cache *cache_create(const struct cache_limits *l);
void cache_destroy(struct cache *c);

int32_t cache_page_tokens(const struct cache *c);
/* Whether an empty cache could hold a sequence of so many tokens. */
int cache_can_hold(const struct cache *c, int64_t tokens);
/* Take a slot and reserve pages for so many tokens.  Returns the slot, or -1 when that is too much for now. */
int32_t cache_reserve(struct cache *c, int64_t tokens);
/* Give the slot pages until it holds `tokens` tokens, which its reservation covers.  Returns how many pages it has. */
int32_t cache_grow(struct cache *c, int32_t slot, int64_t tokens);
/* The slot's page ids in the order of positions, and how many; borrowed until the slot is released. */
const int32_t *cache_pages(const struct cache *c, int32_t slot, int32_t *count);
/* Give the slot, its pages and its reservation back. */
void cache_release(struct cache *c, int32_t slot);

int32_t cache_free_slots(const struct cache *c);
/* Pages that no reservation claims. */
int32_t cache_free_pages(const struct cache *c);

#endif
