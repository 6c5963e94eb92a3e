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

/* What a sequence takes, or several that will begin with the same `common` tokens: their full pages are one another's
 * once the first has forked. */
struct cache_need {
    int64_t tokens; /* of each */
    int32_t forks;  /* so many beside the first */
    int64_t common;
};

struct cache *cache_create(const struct cache_limits *l);
void cache_destroy(struct cache *c);

int32_t cache_page_tokens(const struct cache *c);
int32_t cache_pages_total(const struct cache *c);
/* Whether an empty cache could hold it. */
bool cache_can_hold(const struct cache_limits *l, const struct cache_need *need);
/* Take slots and reserve pages, the first n of the first sequence being `shared`.  slot is [1 + forks]; -1 when that is
 * too much for now. */
int cache_reserve(struct cache *c, const struct cache_need *need, const int32_t *shared, int32_t n, int32_t *slot);
/* Whether that would work once no checkpoint kept a page any more. */
bool cache_could_reserve(const struct cache *c, const struct cache_need *need, const int32_t *shared, int32_t n);
/* The first sequence, in slot `from`, has its common tokens: fork `to` begins with its pages that are full of them, and
 * has one of its own where the last is not.  Returns how many are full. */
int32_t cache_fork(struct cache *c, int32_t from, int32_t to);
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
