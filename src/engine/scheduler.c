#include "engine/scheduler.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "common/alloc.h"

/* An admitted sequence. */
struct lane {
    struct sequence *q;
    int32_t slot;
    int32_t rows;     /* in the step that runs now */
    int32_t shared;   /* pages, after which a checkpoint is taken: where the prompt leaves an earlier one, ... */
    int32_t complete; /* ... and the last that the prompt fills; after it, at each page of the answer */
};

struct scheduler {
    struct cache *cache;
    struct prefix *prefix;
    int32_t slots, chunk;
    struct sequence **waiting; /* in the order in which they came */
    int32_t waits, waiting_cap;
    struct lane *lane; /* [slots], in the order of admission */
    int32_t lanes;
    struct sequence **output; /* [slots]: of the last plan */
};

struct scheduler *scheduler_create(struct cache *c, struct prefix *prefix, int32_t slots, int32_t chunk)
{
    struct scheduler *s = k3_zalloc(sizeof *s);

    s->cache = c;
    s->prefix = prefix;
    s->slots = slots;
    s->chunk = chunk;
    s->lane = k3_calloc((size_t)slots, sizeof *s->lane);
    s->output = k3_calloc((size_t)slots, sizeof *s->output);
    return s;
}

void scheduler_destroy(struct scheduler *s)
{
    if (!s)
        return;

    int saved = errno;
    for (int32_t i = 0; i < s->waits; i++)
        sequence_destroy(s->waiting[i]);
    for (int32_t i = 0; i < s->lanes; i++) {
        cache_release(s->cache, s->lane[i].slot);
        sequence_destroy(s->lane[i].q);
    }
    free(s->waiting);
    free(s->lane);
    free(s->output);
    free(s);
    errno = saved;
}

void scheduler_add(struct scheduler *s, struct sequence *q)
{
    if (s->waits == s->waiting_cap) {
        s->waiting_cap = s->waiting_cap ? 2 * s->waiting_cap : 16;
        s->waiting = k3_reallocarray(s->waiting, (size_t)s->waiting_cap, sizeof *s->waiting);
    }
    s->waiting[s->waits++] = q;
}

static int is_live(const struct sequence *q)
{
    return sequence_state(q) != SEQUENCE_ENDED;
}

struct sequence *scheduler_find(const struct scheduler *s, uint64_t lease)
{
    for (int32_t i = 0; i < s->lanes; i++)
        if (sequence_lease(s->lane[i].q) == lease && is_live(s->lane[i].q))
            return s->lane[i].q;
    for (int32_t i = 0; i < s->waits; i++)
        if (sequence_lease(s->waiting[i]) == lease && is_live(s->waiting[i]))
            return s->waiting[i];
    return NULL;
}

void scheduler_finish_waiting(struct scheduler *s, enum sequence_end end)
{
    for (int32_t i = 0; i < s->waits; i++)
        sequence_finish(s->waiting[i], end, NULL);
}

void scheduler_finish_all(struct scheduler *s, enum sequence_end end)
{
    scheduler_finish_waiting(s, end);
    for (int32_t i = 0; i < s->lanes; i++)
        sequence_finish(s->lane[i].q, end, NULL);
}

static struct sequence *take_waiting(struct scheduler *s, int32_t i)
{
    struct sequence *q = s->waiting[i];

    s->waits--;
    memmove(s->waiting + i, s->waiting + i + 1, (size_t)(s->waits - i) * sizeof *s->waiting);
    return q;
}

static struct sequence *take_lane(struct scheduler *s, int32_t i)
{
    struct sequence *q = s->lane[i].q;
    int32_t pages;
    const struct prefix_hash *chain = sequence_chain(q, &pages);

    if (sequence_end(q) == END_FAILED) /* what made it fail may lie in what it left behind */
        prefix_forget(s->prefix, chain, pages);
    cache_release(s->cache, s->lane[i].slot);
    s->lanes--;
    memmove(s->lane + i, s->lane + i + 1, (size_t)(s->lanes - i) * sizeof *s->lane);
    return q;
}

struct sequence *scheduler_reap(struct scheduler *s)
{
    for (int32_t i = 0; i < s->lanes; i++)
        if (!is_live(s->lane[i].q))
            return take_lane(s, i);
    for (int32_t i = 0; i < s->waits; i++)
        if (!is_live(s->waiting[i]))
            return take_waiting(s, i);
    return NULL;
}

/* Full pages before the last token that is known: that one has to run, for its logits. */
static int32_t pages_to_run(const struct scheduler *s, const struct sequence *q)
{
    int32_t pages, pending;

    sequence_chain(q, &pages);
    sequence_pending(q, &pending);
    return pages == 0 || pages * cache_page_tokens(s->cache) < pending ? pages : pages - 1;
}

/* Admit the first in line; false when it has to wait. */
static bool admit_one(struct scheduler *s, struct plan *p)
{
    struct sequence *q = s->waiting[0];
    int32_t pages, complete = pages_to_run(s, q);
    const struct prefix_hash *chain = sequence_chain(q, &pages);
    int32_t checkpoint = prefix_find(s->prefix, chain, complete);
    int32_t found = checkpoint >= 0 ? prefix_pages(s->prefix, checkpoint) : 0;
    int32_t slot = prefix_reserve(s->prefix, sequence_most_tokens(q), checkpoint);

    if (slot < 0)
        return false;
    take_waiting(s, 0);
    sequence_admit(q, found * cache_page_tokens(s->cache));
    if (found > 0)
        plan_add_load(p, checkpoint, slot, found);
    s->lane[s->lanes++] =
        (struct lane){.q = q, .slot = slot, .shared = prefix_meet(s->prefix, chain, complete), .complete = complete};
    return true;
}

/* Keep the state of a lane that has come to the end of a page where a checkpoint belongs.  An answer moves the one
 * that it has along. */
static void take_checkpoint(struct scheduler *s, const struct lane *lane, struct plan *p)
{
    int32_t tokens = cache_page_tokens(s->cache), known, has;
    int32_t pages = (int32_t)(sequence_position(lane->q) / tokens);
    const struct prefix_hash *chain = sequence_chain(lane->q, &known);

    if (pages == 0 || pages > known || sequence_position(lane->q) % tokens != 0 ||
        (pages != lane->shared && pages < lane->complete))
        return;
    const int32_t *page = cache_pages(s->cache, lane->slot, &has);
    int32_t checkpoint = prefix_keep(s->prefix, chain, page, pages, pages - 1 > lane->complete);
    if (checkpoint >= 0)
        plan_add_save(p, lane->slot, checkpoint, pages);
}

/* Tokens until the next place where a checkpoint has to be taken of a prompt. */
static int64_t until_checkpoint(const struct scheduler *s, const struct lane *lane)
{
    int64_t tokens = cache_page_tokens(s->cache), pos = sequence_position(lane->q);

    if (pos < lane->shared * tokens)
        return lane->shared * tokens - pos;
    return pos < lane->complete * tokens ? lane->complete * tokens - pos : INT64_MAX;
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Give a lane its pages and rows in the step. */
static void schedule(struct scheduler *s, struct lane *lane, struct plan *p, int32_t *outputs)
{
    int32_t pending, had, has;
    const int32_t *token = sequence_pending(lane->q, &pending);
    int64_t pos = sequence_position(lane->q);

    lane->rows = (int32_t)least(least(pending, until_checkpoint(s, lane)), least(plan_room(p), s->chunk));
    if (lane->rows == 0)
        return;
    take_checkpoint(s, lane, p);
    cache_pages(s->cache, lane->slot, &had);
    cache_grow(s->cache, lane->slot, pos + lane->rows);
    const int32_t *page = cache_pages(s->cache, lane->slot, &has);
    for (int32_t i = had; i < has; i++)
        plan_add_page(p, lane->slot, i, page[i]);
    plan_add(p, lane->slot, pos, token, lane->rows, 0, lane->rows == pending);
    if (lane->rows == pending)
        s->output[(*outputs)++] = lane->q;
}

int32_t scheduler_plan(struct scheduler *s, struct plan *p)
{
    static const enum sequence_state order[] = {SEQUENCE_DECODE, SEQUENCE_PREFILL};
    int32_t outputs = 0, rows = 0;

    plan_begin(p, PLAN_STEP);
    while (s->waits > 0 && admit_one(s, p))
        ;
    for (size_t k = 0; k < sizeof order / sizeof *order; k++)
        for (int32_t i = 0; i < s->lanes; i++)
            if (sequence_state(s->lane[i].q) == order[k]) {
                schedule(s, &s->lane[i], p, &outputs);
                rows += s->lane[i].rows;
            }
    if (rows == 0)
        plan_begin(p, PLAN_IDLE);
    return rows;
}

void scheduler_ran(struct scheduler *s)
{
    for (int32_t i = 0; i < s->lanes; i++) {
        if (s->lane[i].rows > 0)
            sequence_ran(s->lane[i].q, s->lane[i].rows);
        s->lane[i].rows = 0;
    }
}

struct sequence *scheduler_output(const struct scheduler *s, int32_t i)
{
    return s->output[i];
}

int32_t scheduler_waiting(const struct scheduler *s)
{
    return s->waits;
}

int32_t scheduler_running(const struct scheduler *s)
{
    return s->lanes;
}
