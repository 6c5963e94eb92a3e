#include "engine/prefix.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <sodium.h>

#include "common/alloc.h"

_Static_assert(PREFIX_HASH >= crypto_generichash_BYTES_MIN && PREFIX_KEY_MIN >= crypto_generichash_KEYBYTES_MIN &&
                   PREFIX_KEY_MAX <= crypto_generichash_KEYBYTES_MAX,
               "libsodium takes these lengths");

enum { MET = 1 << 14 }; /* pages remembered by prefix_meet() */

struct checkpoint {
    struct prefix_hash hash; /* of its last page */
    int32_t pages;           /* 0: free */
    int32_t *page;           /* [pages of the cache] */
    uint64_t used;
};

struct prefix {
    struct cache *cache;
    struct checkpoint *checkpoint; /* [checkpoints] */
    int32_t checkpoints;
    uint64_t clock;
    struct prefix_hash *met; /* [MET]: a page's hash at a place that follows from it; the newest stays */
};

void prefix_hash_page(struct prefix_hash *out, const struct prefix_hash *before, const int32_t *token, int32_t n,
                      const uint8_t *key, size_t key_len)
{
    crypto_generichash_state state;

    crypto_generichash_init(&state, key, key_len, sizeof out->byte);
    if (before)
        crypto_generichash_update(&state, before->byte, sizeof before->byte);
    crypto_generichash_update(&state, (const unsigned char *)token, (size_t)n * sizeof *token);
    crypto_generichash_final(&state, out->byte, sizeof out->byte);
}

static bool equal(const struct prefix_hash *a, const struct prefix_hash *b)
{
    return memcmp(a, b, sizeof *a) == 0;
}

struct prefix *prefix_create(struct cache *c, int32_t checkpoints)
{
    struct prefix *p = k3_zalloc(sizeof *p);

    p->cache = c;
    p->checkpoints = checkpoints;
    p->checkpoint = k3_calloc((size_t)checkpoints, sizeof *p->checkpoint);
    for (int32_t i = 0; i < checkpoints; i++)
        p->checkpoint[i].page = k3_calloc((size_t)cache_pages_total(c), sizeof *p->checkpoint[i].page);
    p->met = k3_calloc(MET, sizeof *p->met);
    return p;
}

static void evict(struct prefix *p, struct checkpoint *c)
{
    cache_let_go(p->cache, c->page, c->pages);
    c->pages = 0;
}

void prefix_destroy(struct prefix *p)
{
    if (!p)
        return;

    int saved = errno;
    for (int32_t i = 0; i < p->checkpoints; i++) {
        evict(p, &p->checkpoint[i]);
        free(p->checkpoint[i].page);
    }
    free(p->checkpoint);
    free(p->met);
    free(p);
    errno = saved;
}

/* Whether c belongs to the beginning of a sequence with these n pages. */
static bool covers(const struct checkpoint *c, const struct prefix_hash *chain, int32_t n)
{
    return c->pages > 0 && c->pages <= n && equal(&c->hash, &chain[c->pages - 1]);
}

int32_t prefix_find(struct prefix *p, const struct prefix_hash *chain, int32_t n)
{
    int32_t best = -1;

    for (int32_t i = 0; i < p->checkpoints; i++)
        if (covers(&p->checkpoint[i], chain, n) && (best < 0 || p->checkpoint[i].pages > p->checkpoint[best].pages))
            best = i;
    if (best >= 0)
        p->checkpoint[best].used = ++p->clock;
    return best;
}

int32_t prefix_pages(const struct prefix *p, int32_t checkpoint)
{
    return p->checkpoint[checkpoint].pages;
}

static struct prefix_hash *place_of(struct prefix *p, const struct prefix_hash *h)
{
    uint32_t at;

    memcpy(&at, h->byte, sizeof at);
    return &p->met[at % MET];
}

int32_t prefix_meet(struct prefix *p, const struct prefix_hash *chain, int32_t n)
{
    int32_t common = n;

    while (common > 0 && !equal(place_of(p, &chain[common - 1]), &chain[common - 1]))
        common--;
    for (int32_t i = 0; i < n; i++)
        *place_of(p, &chain[i]) = chain[i];
    return common;
}

/* The least recently used one beside `spared`; NULL when there is no other. */
static struct checkpoint *oldest(struct prefix *p, const struct checkpoint *spared)
{
    struct checkpoint *old = NULL;

    for (int32_t i = 0; i < p->checkpoints; i++) {
        struct checkpoint *c = &p->checkpoint[i];
        if (c != spared && c->pages > 0 && (!old || c->used < old->used))
            old = c;
    }
    return old;
}

int prefix_reserve(struct prefix *p, const struct cache_need *need, int32_t checkpoint, int32_t *slot)
{
    const struct checkpoint *from = checkpoint >= 0 ? &p->checkpoint[checkpoint] : NULL;
    const int32_t *shared = from ? from->page : NULL;
    int32_t n = from ? from->pages : 0;

    if (!cache_could_reserve(p->cache, need, shared, n))
        return -1;
    while (cache_reserve(p->cache, need, shared, n, slot) < 0)
        evict(p, oldest(p, from));
    return 0;
}

static struct checkpoint *free_place(struct prefix *p)
{
    for (int32_t i = 0; i < p->checkpoints; i++)
        if (p->checkpoint[i].pages == 0)
            return &p->checkpoint[i];
    return NULL;
}

static struct checkpoint *exactly(struct prefix *p, const struct prefix_hash *chain, int32_t n)
{
    for (int32_t i = 0; i < p->checkpoints; i++)
        if (p->checkpoint[i].pages == n && covers(&p->checkpoint[i], chain, n))
            return &p->checkpoint[i];
    return NULL;
}

int32_t prefix_keep(struct prefix *p, const struct prefix_hash *chain, const int32_t *page, int32_t n)
{
    struct checkpoint *c = exactly(p, chain, n);

    if (c) {
        c->used = ++p->clock;
        return -1;
    }
    if (!(c = free_place(p)) && !(c = oldest(p, NULL)))
        return -1;
    cache_keep(p->cache, page, n);
    evict(p, c);
    c->hash = chain[n - 1];
    c->pages = n;
    c->used = ++p->clock;
    memcpy(c->page, page, (size_t)n * sizeof *page);
    return (int32_t)(c - p->checkpoint);
}

void prefix_forget(struct prefix *p, const struct prefix_hash *chain, int32_t n)
{
    for (int32_t i = 0; i < p->checkpoints; i++)
        if (covers(&p->checkpoint[i], chain, n))
            evict(p, &p->checkpoint[i]);
}
