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
    int32_t common; /* pages that it shares with the one that it is to fork from; 0 once it has them */
    bool partial;   /* and one more has tokens of both */
    bool taken;
};

/* Who holds a page; free when nobody does. */
struct page {
    int32_t slots, checkpoints;
};

struct cache {
    struct cache_limits limit;
    struct holding *slot; /* [slots] */
    int32_t *free_slot;   /* stacks: the one given back last is taken first */
    int32_t free_slots;
    int32_t *free_page;
    int32_t free_pages; /* on the stack, promised or not */
    int32_t promised;   /* pages reserved but not handed out yet */
    struct page *page;  /* [pages] */
    int32_t kept;       /* pages that only checkpoints hold */
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
    c->page = k3_calloc((size_t)l->pages, sizeof *c->page);
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
    free(c->page);
    free(c);
    errno = saved;
}

int32_t cache_page_tokens(const struct cache *c)
{
    return c->limit.page_tokens;
}

int32_t cache_pages_total(const struct cache *c)
{
    return c->limit.pages;
}

static int64_t pages_for(const struct cache_limits *l, int64_t tokens)
{
    return (tokens + l->page_tokens - 1) / l->page_tokens;
}

/* Of all its sequences together. */
static int64_t pages_needed(const struct cache_limits *l, const struct cache_need *need)
{
    int64_t each = pages_for(l, need->tokens);

    return each + need->forks * (each - need->common / l->page_tokens);
}

bool cache_can_hold(const struct cache_limits *l, const struct cache_need *need)
{
    return need->forks < l->slots && pages_needed(l, need) <= l->pages;
}

/* --- a page and its holders ---------------------------------------------------------------------------------------
 */

/* By checkpoints alone: to be had by evicting them. */
static bool is_kept(const struct page *p)
{
    return p->slots == 0 && p->checkpoints > 0;
}

/* Count one more or one less holder. */
static void hold(struct cache *c, int32_t page, int32_t slots, int32_t checkpoints)
{
    struct page *p = &c->page[page];

    c->kept -= is_kept(p);
    p->slots += slots;
    p->checkpoints += checkpoints;
    c->kept += is_kept(p);
    if (p->slots == 0 && p->checkpoints == 0)
        c->free_page[c->free_pages++] = page;
}

void cache_keep(struct cache *c, const int32_t *page, int32_t n)
{
    for (int32_t i = 0; i < n; i++)
        hold(c, page[i], 0, 1);
}

void cache_let_go(struct cache *c, const int32_t *page, int32_t n)
{
    for (int32_t i = 0; i < n; i++)
        hold(c, page[i], 0, -1);
}

/* --- slots ----------------------------------------------------------------------------------------------------------
 */

bool cache_could_reserve(const struct cache *c, const struct cache_need *need, const int32_t *shared, int32_t n)
{
    int32_t kept = c->kept;

    for (int32_t i = 0; i < n; i++)
        kept -= is_kept(&c->page[shared[i]]);
    return c->free_slots > need->forks && pages_needed(&c->limit, need) - n <= cache_free_pages(c) + kept;
}

static int32_t take_slot(struct cache *c, int64_t pages)
{
    int32_t slot = c->free_slot[--c->free_slots];
    struct holding *h = &c->slot[slot];

    h->taken = true;
    h->reserved = (int32_t)pages;
    c->promised += h->reserved;
    return slot;
}

/* These pages of somebody else are the beginning of the slot's. */
static void share(struct cache *c, struct holding *h, const int32_t *page, int32_t n)
{
    for (; h->count < n; h->count++) {
        h->page[h->count] = page[h->count];
        hold(c, page[h->count], 1, 0);
    }
}

int cache_reserve(struct cache *c, const struct cache_need *need, const int32_t *shared, int32_t n, int32_t *slot)
{
    int64_t pages = pages_for(&c->limit, need->tokens);

    if (c->free_slots <= need->forks || pages_needed(&c->limit, need) - n > cache_free_pages(c))
        return -1;
    slot[0] = take_slot(c, pages);
    share(c, &c->slot[slot[0]], shared, n);
    c->promised -= n;
    for (int32_t i = 1; i <= need->forks; i++) {
        struct holding *h = &c->slot[slot[i] = take_slot(c, pages)];
        h->common = (int32_t)(need->common / c->limit.page_tokens);
        h->partial = need->common % c->limit.page_tokens != 0;
        c->promised -= h->common;
    }
    return 0;
}

int32_t cache_fork(struct cache *c, int32_t from, int32_t to)
{
    struct holding *h = &c->slot[to];
    int32_t full = h->common;

    share(c, h, c->slot[from].page, full);
    h->common = 0;
    if (h->partial)
        cache_grow(c, to, (int64_t)full * c->limit.page_tokens + 1);
    return full;
}

int32_t cache_grow(struct cache *c, int32_t slot, int64_t tokens)
{
    struct holding *h = &c->slot[slot];
    int64_t need = pages_for(&c->limit, tokens);

    assert(need <= h->reserved);
    while (h->count < need) {
        int32_t page = c->free_page[--c->free_pages];
        h->page[h->count++] = page;
        hold(c, page, 1, 0);
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
    c->promised -= h->reserved - h->count - h->common;
    while (h->count > 0)
        hold(c, h->page[--h->count], -1, 0);
    h->reserved = h->common = 0;
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
