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
    int32_t complete; /* ... and the last of the prompt's */
    /* Of several choices: */
    int32_t forks;     /* wait for this one to have run the prompt, and then begin with its state */
    int32_t source;    /* slot that this one forks from, -1: none, or it has */
    bool forked;       /* and the copies are due: */
    int32_t full;      /* pages, */
    int32_t from_page; /* and what of a page that is not full */
    int32_t to_page;
};

/* Who gets a token from which row of logits. */
struct output_row {
    struct sequence *q;
    int32_t row;
};

struct scheduler {
    struct cache *cache;
    struct prefix *prefix;
    int32_t slots, chunk;
    struct sequence **waiting; /* in the order in which they came */
    int32_t waits, waiting_cap;
    struct lane *lane; /* [slots], in the order of admission */
    int32_t lanes;
    struct output_row *output; /* [slots]: of the last plan ... */
    int32_t outputs;           /* ... so many */
    int32_t *taken;            /* [slots]: those of one admission */
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
    s->taken = k3_calloc((size_t)slots, sizeof *s->taken);
    return s;
}

void scheduler_destroy(struct scheduler *s)
{
    if (!s)
        return;

    int saved = errno;
    scheduler_finish_all(s, END_DROPPED);
    for (struct sequence *q; (q = scheduler_reap(s));)
        sequence_destroy(q);
    free(s->waiting);
    free(s->lane);
    free(s->output);
    free(s->taken);
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
            return sequence_first(s->lane[i].q);
    for (int32_t i = 0; i < s->waits; i++)
        if (sequence_lease(s->waiting[i]) == lease && !sequence_all_ended(s->waiting[i]))
            return s->waiting[i];
    return NULL;
}

void scheduler_finish_waiting(struct scheduler *s, enum sequence_end end)
{
    for (int32_t i = 0; i < s->waits; i++)
        sequence_finish_all(s->waiting[i], end, NULL);
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

/* Whether a choice of this request has a slot still. */
static bool has_lane(const struct scheduler *s, const struct sequence *first)
{
    for (int32_t i = 0; i < s->lanes; i++)
        if (sequence_first(s->lane[i].q) == first)
            return true;
    return false;
}

struct sequence *scheduler_reap(struct scheduler *s)
{
    for (int32_t i = 0; i < s->lanes;) {
        if (is_live(s->lane[i].q)) {
            i++;
            continue;
        }
        struct sequence *first = sequence_first(take_lane(s, i));
        if (!has_lane(s, first))
            return first;
    }
    for (int32_t i = 0; i < s->waits; i++)
        if (sequence_all_ended(s->waiting[i]))
            return take_waiting(s, i);
    return NULL;
}

/* The most of these pages that end where a checkpoint may be taken: every token before has the form then that it would
 * have in a longer prompt, too (struct kern_batch). */
static int32_t whole_blocks(const struct scheduler *s, int32_t pages)
{
    while (pages * cache_page_tokens(s->cache) % K3_EXPAND_BLOCK != 0)
        pages--;
    return pages;
}

/* Full pages of the prompt before the last token that is known, or the last that all choices begin with: that one has
 * to run, for its logits.  Answers run in other forms than the prompt that they may become a part of. */
static int32_t pages_to_run(const struct scheduler *s, const struct sequence *q, int32_t forks)
{
    int32_t tokens = cache_page_tokens(s->cache), pages, pending, most = sequence_prompt_tokens(q);

    sequence_chain(q, &pages);
    sequence_pending(q, &pending);
    if (forks > 0 || most == pending)
        most--;
    return whole_blocks(s, pages < most / tokens ? pages : most / tokens);
}

static struct sequence *next_live(struct sequence *q)
{
    while (q && !is_live(q))
        q = sequence_next(q);
    return q;
}

static void add_lane(struct scheduler *s, const struct lane *lane)
{
    s->lane[s->lanes++] = *lane;
}

/* The choices behind q wait in their slots until it has run the prompt. */
static void admit_forks(struct scheduler *s, struct sequence *q, const struct lane *leader)
{
    struct lane lane = *leader;

    lane.forks = 0;
    lane.source = leader->slot;
    for (int32_t i = 1; (q = next_live(sequence_next(q))); i++) {
        sequence_admit(q, 0);
        lane.q = q;
        lane.slot = s->taken[i];
        add_lane(s, &lane);
    }
}

/* Admit the first in line; false when it has to wait. */
static bool admit_one(struct scheduler *s, struct plan *p)
{
    struct sequence *q = next_live(s->waiting[0]);
    struct cache_need need = {.tokens = sequence_most_tokens(q), .common = sequence_prompt_tokens(q)};

    for (struct sequence *fork = q; (fork = next_live(sequence_next(fork)));)
        need.forks++;
    int32_t pages, complete = pages_to_run(s, q, need.forks);
    const struct prefix_hash *chain = sequence_chain(q, &pages);
    int32_t checkpoint = prefix_find(s->prefix, chain, complete);
    int32_t found = checkpoint >= 0 ? prefix_pages(s->prefix, checkpoint) : 0;

    if (prefix_reserve(s->prefix, &need, checkpoint, s->taken) < 0)
        return false;
    take_waiting(s, 0);
    sequence_admit(q, found * cache_page_tokens(s->cache));
    if (found > 0)
        plan_add_load(p, checkpoint, s->taken[0], found);
    struct lane lane = {.q = q,
                        .slot = s->taken[0],
                        .shared = whole_blocks(s, prefix_meet(s->prefix, chain, complete)),
                        .complete = complete,
                        .forks = need.forks,
                        .source = -1};
    add_lane(s, &lane);
    admit_forks(s, q, &lane);
    return true;
}

/* --- forks --------------------------------------------------------------------------------------------------------
 */

/* The leader has run the prompt: what the fork begins with is its own from now on, whatever becomes of the leader. */
static void fork_lane(struct scheduler *s, struct lane *fork, const struct lane *leader)
{
    int32_t tokens = sequence_prompt_tokens(fork->q), count;

    fork->full = cache_fork(s->cache, leader->slot, fork->slot);
    fork->from_page = fork->to_page = -1;
    if (tokens % cache_page_tokens(s->cache) != 0) {
        fork->from_page = cache_pages(s->cache, leader->slot, &count)[fork->full];
        fork->to_page = cache_pages(s->cache, fork->slot, &count)[fork->full];
    }
    sequence_ran(fork->q, tokens);
    fork->forked = true;
}

static void fork_all(struct scheduler *s, struct lane *leader)
{
    for (int32_t i = 0; i < s->lanes; i++)
        if (s->lane[i].source == leader->slot && !s->lane[i].forked)
            fork_lane(s, &s->lane[i], leader);
    leader->forks = 0;
}

/* Before anything else gets what the leader may have left by now. */
static void plan_forks(struct scheduler *s, struct plan *p)
{
    for (int32_t i = 0; i < s->lanes; i++) {
        struct lane *lane = &s->lane[i];
        if (!lane->forked)
            continue;
        plan_add_fork(p, lane->source, lane->slot, lane->full, lane->from_page, lane->to_page);
        lane->source = -1;
        lane->forked = false;
    }
}

/* Tokens until the prompt has run, where forks wait for that. */
static int64_t until_fork(const struct lane *lane)
{
    return lane->forks > 0 ? sequence_prompt_tokens(lane->q) - sequence_position(lane->q) : INT64_MAX;
}

/* Keep the state of a lane that has come to the end of a page where a checkpoint belongs. */
static void take_checkpoint(struct scheduler *s, const struct lane *lane, struct plan *p)
{
    int32_t tokens = cache_page_tokens(s->cache), known, has;
    int32_t pages = (int32_t)(sequence_position(lane->q) / tokens);

    if (pages == 0 || sequence_position(lane->q) % tokens != 0 || (pages != lane->shared && pages != lane->complete))
        return;
    const struct prefix_hash *chain = sequence_chain(lane->q, &known);
    const int32_t *page = cache_pages(s->cache, lane->slot, &has);
    int32_t checkpoint = prefix_keep(s->prefix, chain, page, pages);
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

static void add_output(struct scheduler *s, struct sequence *q, int32_t row)
{
    s->output[s->outputs++] = (struct output_row){q, row};
}

/* Who gets a token from the last row of this lane's: itself, and the choices that fork here.  Whether anybody does. */
static bool want_outputs(struct scheduler *s, const struct lane *lane, int32_t pending, int32_t row)
{
    int32_t before = s->outputs, known;

    if (lane->rows == pending)
        add_output(s, lane->q, row);
    if (lane->rows == until_fork(lane))
        for (int32_t i = 0; i < s->lanes; i++) {
            sequence_pending(s->lane[i].q, &known);
            if (s->lane[i].source == lane->slot && known == sequence_prompt_tokens(lane->q))
                add_output(s, s->lane[i].q, row);
        }
    return s->outputs > before;
}

/* How many of so many tokens of its prompt a lane runs in this step: where more follow, whole blocks. */
static int64_t prompt_rows(const struct scheduler *s, const struct lane *lane, int64_t left, int64_t room)
{
    int64_t rows = least(least(left, until_checkpoint(s, lane)), room);

    return rows < left ? rows / K3_PREFILL_BLOCK * K3_PREFILL_BLOCK : rows;
}

/* Give a lane its pages and rows in the step, all of its prompt or all of its answer. */
static void schedule(struct scheduler *s, struct lane *lane, struct plan *p, int32_t *logits)
{
    int32_t pending, had, has;
    const int32_t *token = sequence_pending(lane->q, &pending);
    int64_t pos = sequence_position(lane->q), prompt = sequence_prompt_tokens(lane->q);
    int64_t room = least(plan_room(p), s->chunk);

    if (lane->source >= 0) /* the prompt runs elsewhere */
        return;
    lane->rows = (int32_t)(pos < prompt ? prompt_rows(s, lane, prompt - pos, room) : least(pending, room));
    if (lane->rows == 0)
        return;
    take_checkpoint(s, lane, p);
    cache_pages(s->cache, lane->slot, &had);
    cache_grow(s->cache, lane->slot, pos + lane->rows);
    const int32_t *page = cache_pages(s->cache, lane->slot, &has);
    for (int32_t i = had; i < has; i++)
        plan_add_page(p, lane->slot, i, page[i]);
    bool wanted = want_outputs(s, lane, pending, *logits);
    plan_add(p, lane->slot, pos, token, lane->rows, pos < prompt ? (int32_t)prompt : 0, wanted);
    *logits += wanted;
}

int32_t scheduler_plan(struct scheduler *s, struct plan *p)
{
    static const enum sequence_state order[] = {SEQUENCE_DECODE, SEQUENCE_PREFILL};
    int32_t logits = 0, rows = 0;

    plan_begin(p, PLAN_STEP);
    s->outputs = 0;
    plan_forks(s, p);
    while (s->waits > 0 && admit_one(s, p))
        ;
    for (size_t k = 0; k < sizeof order / sizeof *order; k++)
        for (int32_t i = 0; i < s->lanes; i++)
            if (sequence_state(s->lane[i].q) == order[k]) {
                schedule(s, &s->lane[i], p, &logits);
                rows += s->lane[i].rows;
            }
    if (rows == 0)
        plan_begin(p, PLAN_IDLE);
    return rows;
}

void scheduler_ran(struct scheduler *s)
{
    for (int32_t i = 0; i < s->lanes; i++) {
        struct lane *lane = &s->lane[i];
        if (lane->rows > 0)
            sequence_ran(lane->q, lane->rows);
        lane->rows = 0;
        if (lane->forks > 0 && until_fork(lane) == 0)
            fork_all(s, lane);
    }
}

int32_t scheduler_outputs(const struct scheduler *s)
{
    return s->outputs;
}

struct sequence *scheduler_output(const struct scheduler *s, int32_t i, int32_t *row)
{
    *row = s->output[i].row;
    return s->output[i].q;
}

int32_t scheduler_waiting(const struct scheduler *s)
{
    return s->waits;
}

int32_t scheduler_running(const struct scheduler *s)
{
    return s->lanes;
}
