#include "gpu/arena_private.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/alloc.h"
#include "common/log.h"

/* a + b, held at UINT64_MAX: absurd sizes fail at commit, not by wrapping round. */
static uint64_t add(uint64_t a, uint64_t b)
{
    return b > UINT64_MAX - a ? UINT64_MAX : a + b;
}

static uint64_t aligned(uint64_t bytes)
{
    return add(bytes, ARENA_ALIGN - 1) & ~(uint64_t)(ARENA_ALIGN - 1);
}

struct arena *arena_create(void)
{
    return k3_zalloc(sizeof(struct arena));
}

void arena_destroy(struct arena *a)
{
    if (!a)
        return;

    int saved = errno;
    if (a->base)
        a->release(a->stream, a->base, a->size);
    free(a);
    errno = saved;
}

void arena_part(struct arena *a, const char *name)
{
    for (a->current = 0; a->current < a->parts; a->current++)
        if (strcmp(a->part[a->current].name, name) == 0)
            return;
    assert(a->parts < ARENA_PARTS);
    a->part[a->parts++].name = name;
}

void *arena_take(struct arena *a, uint64_t bytes)
{
    uint64_t at = a->used;

    a->used = add(a->used, aligned(bytes));
    if (!a->base) {
        assert(a->parts > 0);
        a->part[a->current].bytes = add(a->part[a->current].bytes, aligned(bytes));
        return NULL;
    }
    assert(a->used <= a->size);
    return a->base + at;
}

uint64_t arena_used(const struct arena *a)
{
    return a->used;
}

void *arena_base(const struct arena *a)
{
    return a->base;
}

uint64_t arena_bytes(const struct arena *a, const char *part)
{
    for (int i = 0; i < a->parts; i++)
        if (strcmp(a->part[i].name, part) == 0)
            return a->part[i].bytes;
    return 0;
}

void arena_log_budget(const struct arena_row *row, int rows)
{
    uint64_t total = 0;

    for (int i = 0; i < rows; i++) {
        total = add(total, row[i].bytes);
        log_info("memory %-12s %15llu bytes", row[i].name, (unsigned long long)row[i].bytes);
    }
    log_info("memory %-12s %15llu bytes", "total", (unsigned long long)total);
}
