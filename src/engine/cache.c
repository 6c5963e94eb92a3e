#include "engine/cache.h"

#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

#include "common/alloc.h"

/* What a slot has been promised, and the pages it has got so far. */
struct holding {
    int32_t *page; /* [pages of the cache]: room for whatever a sequence may get */
    int32_t reserved, count;
    bool taken;
};

struct cache {
    struct cache_limits limit;
    struct holding *slot; /* [slots] */
    int32_t *free_slot;   /* stacks: the one given back last is taken first */
    int32_t free_slots;
    int32_t *free_page;
    int32_t free_pages; /* on the stack, promised or not */
    int32_t promised;   /* pages reserved but not handed out yet */
};

static int32_t *full_stack(int32_t n)
{
    int32_t *s = k3_calloc((size_t)n, sizeof *s);

    for (int32_t i = 0; i < n; i++)
        s[i] = n - 1 - i;
    return s;
}

struct cache *cache_create(const struct cache_limits *l)
{
    struct cache *c = k3_zalloc(sizeof *c);

    c->limit = *l;
    c->slot = k3_calloc((size_t)l->slots, sizeof *c->slot);
    for (int32_t i = 0; i < l->slots; i++)
        c->slot[i].page = k3_calloc((size_t)l->pages, sizeof *c->slot[i].page);
    c->free_slot = full_stack(l->slots);
    c->free_slots = l->slots;
    c->free_page = full_stack(l->pages);
    c->free_pages = l->pages;
    return c;
}

void cache_destroy(struct cache *c)
{
    if (!c)
        return;

    int saved = errno;
    for (int32_t i = 0; i < c->limit.slots; i++)
        free(c->slot[i].page);
    free(c->slot);
    free(c->free_slot);
    free(c->free_page);
    free(c);
    errno = saved;
}

int32_t cache_page_tokens(const struct cache *c)
{
    return c->limit.page_tokens;
}

static int64_t pages_for(const struct cache *c, int64_t tokens)
{
    return (tokens + c->limit.page_tokens - 1) / c->limit.page_tokens;
}

int cache_can_hold(const struct cache *c, int64_t tokens)
{
    return pages_for(c, tokens) <= c->limit.pages;
}

int32_t cache_reserve(struct cache *c, int64_t tokens)
{
    int64_t pages = pages_for(c, tokens);

    if (c->free_slots == 0 || pages > cache_free_pages(c))
        return -1;
    int32_t slot = c->free_slot[--c->free_slots];
    struct holding *h = &c->slot[slot];
    h->taken = true;
    h->reserved = (int32_t)pages;
    c->promised += h->reserved;
    return slot;
}

int32_t cache_grow(struct cache *c, int32_t slot, int64_t tokens)
{
    struct holding *h = &c->slot[slot];
    int64_t need = pages_for(c, tokens);

    assert(need <= h->reserved);
    while (h->count < need) {
        h->page[h->count++] = c->free_page[--c->free_pages];
        c->promised--;
    }
    return h->count;
}

const int32_t *cache_pages(const struct cache *c, int32_t slot, int32_t *count)
{
    *count = c->slot[slot].count;
    return c->slot[slot].page;
}

void cache_release(struct cache *c, int32_t slot)
{
    struct holding *h = &c->slot[slot];

    assert(h->taken);
    c->promised -= h->reserved - h->count;
    while (h->count > 0)
        c->free_page[c->free_pages++] = h->page[--h->count];
    h->reserved = 0;
    h->taken = false;
    c->free_slot[c->free_slots++] = slot;
}

int32_t cache_free_slots(const struct cache *c)
{
    return c->free_slots;
}

int32_t cache_free_pages(const struct cache *c)
{
    return c->free_pages - c->promised;
}
