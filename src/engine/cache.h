/* cache.h - who owns which state slot and which latent pages
 *
 * Bookkeeping only: the memory behind slots and pages belongs to model/forward.  A sequence reserves, at admission, as
 * many pages as its prompt and its longest answer can need, so that whatever has been admitted can finish; pages are
 * handed out as it grows.  Full pages never change, so sequences that begin alike may share them; a page is free when
 * no slot uses it and no checkpoint (prefix.h) keeps it.  Nothing allocates after cache_create(). */
#ifndef K3_ENGINE_CACHE_H
#define K3_ENGINE_CACHE_H

#include <stdbool.h>
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
int32_t cache_pages_total(const struct cache *c);
/* Whether an empty cache could hold a sequence of so many tokens. */
int cache_can_hold(const struct cache *c, int64_t tokens);
/* Take a slot and reserve pages for so many tokens, the first n of them `shared`.  Returns the slot, or -1 when that is
 * too much for now. */
int32_t cache_reserve(struct cache *c, int64_t tokens, const int32_t *shared, int32_t n);
/* Whether that would work once no checkpoint kept a page any more. */
bool cache_could_reserve(const struct cache *c, int64_t tokens, const int32_t *shared, int32_t n);
/* Give the slot pages until it holds `tokens` tokens, which its reservation covers.  Returns how many pages it has. */
int32_t cache_grow(struct cache *c, int32_t slot, int64_t tokens);
/* The slot's page ids in the order of positions, and how many; borrowed until the slot is released. */
const int32_t *cache_pages(const struct cache *c, int32_t slot, int32_t *count);
/* Give the slot, its pages and its reservation back. */
void cache_release(struct cache *c, int32_t slot);

/* A checkpoint keeps these n pages, which a slot uses; and lets go of them. */
void cache_keep(struct cache *c, const int32_t *page, int32_t n);
void cache_let_go(struct cache *c, const int32_t *page, int32_t n);

int32_t cache_free_slots(const struct cache *c);
/* Free pages that no reservation claims. */
int32_t cache_free_pages(const struct cache *c);

#endif
