#include "engine/plan.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/alloc.h"

struct head {
    int32_t kind, rows, seqs, outputs, grown, copies; /* a multiple of 8 bytes: pos comes next */
};

/* One page more for a slot. */
struct growth {
    int32_t slot, index, page;
};

struct plan {
    struct plan_limits limit;
    int32_t most_grown;

    /* The message and where its parts lie in it. */
    size_t bytes;
    struct head *head;
    int64_t *pos;              /* [slots] */
    int32_t *token;            /* [rows] */
    int32_t *begin;            /* [slots + 1] */
    int32_t *slot;             /* [slots] */
    int32_t *prefill;          /* [slots] */
    int32_t *output;           /* [slots] */
    struct growth *growth;     /* [most_grown] */
    struct forward_copy *copy; /* [2 * slots] */
    int32_t *copy_pages;       /* [2 * slots] */

    int32_t *table; /* [slots, slot_pages]: every slot's pages, moved on by each plan */
    int32_t *kept;  /* [checkpoints, slot_pages]: every checkpoint's */
    int32_t *pages; /* [slots, slot_pages]: the rows of this step's sequences */
};

/* A sequence that runs n rows begins at most n / page_tokens + 1 pages. */
static int32_t most_grown(const struct plan_limits *l)
{
    return l->rows / l->page_tokens + l->slots;
}

struct plan *plan_create(const struct plan_limits *l)
{
    struct plan *p = k3_zalloc(sizeof *p);
    size_t rows = (size_t)l->rows, slots = (size_t)l->slots;

    p->limit = *l;
    p->most_grown = most_grown(l);
    p->bytes = sizeof *p->head + slots * sizeof *p->pos + rows * sizeof *p->token + (slots + 1) * sizeof *p->begin +
               slots * sizeof *p->slot + slots * sizeof *p->prefill + slots * sizeof *p->output +
               (size_t)p->most_grown * sizeof *p->growth + 2 * slots * (sizeof *p->copy + sizeof *p->copy_pages);
    p->head = k3_zalloc(p->bytes);
    p->pos = (int64_t *)(p->head + 1);
    p->token = (int32_t *)(p->pos + slots);
    p->begin = p->token + rows;
    p->slot = p->begin + slots + 1;
    p->prefill = p->slot + slots;
    p->output = p->prefill + slots;
    p->growth = (struct growth *)(p->output + slots);
    p->copy = (struct forward_copy *)(p->growth + p->most_grown);
    p->copy_pages = (int32_t *)(p->copy + 2 * slots);
    p->kept = k3_calloc((size_t)l->checkpoints * (size_t)l->slot_pages, sizeof *p->kept);
    p->table = k3_calloc(slots * (size_t)l->slot_pages, sizeof *p->table);
    p->pages = k3_calloc(slots * (size_t)l->slot_pages, sizeof *p->pages);
    return p;
}

void plan_destroy(struct plan *p)
{
    if (!p)
        return;

    int saved = errno;
    free(p->head);
    free(p->table);
    free(p->kept);
    free(p->pages);
    free(p);
    errno = saved;
}

void *plan_message(struct plan *p, size_t *bytes)
{
    *bytes = p->bytes;
    return p->head;
}

void plan_begin(struct plan *p, enum plan_kind kind)
{
    *p->head = (struct head){.kind = kind};
    p->begin[0] = 0;
}

int32_t plan_room(const struct plan *p)
{
    return p->limit.rows - p->head->rows;
}

void plan_add(struct plan *p, int32_t slot, int64_t pos, const int32_t *token, int32_t n, int32_t prefill,
              int want_logits)
{
    struct head *h = p->head;

    assert(n > 0 && n <= plan_room(p) && h->seqs < p->limit.slots);
    memcpy(p->token + h->rows, token, (size_t)n * sizeof *token);
    h->rows += n;
    p->slot[h->seqs] = slot;
    p->pos[h->seqs] = pos;
    p->prefill[h->seqs] = prefill;
    p->begin[++h->seqs] = h->rows;
    if (want_logits)
        p->output[h->outputs++] = h->rows - 1;
}

void plan_add_page(struct plan *p, int32_t slot, int32_t index, int32_t page)
{
    assert(p->head->grown < p->most_grown);
    p->growth[p->head->grown++] = (struct growth){slot, index, page};
}

static void add_copy(struct plan *p, struct forward_copy copy, int32_t pages)
{
    struct head *h = p->head;

    assert(h->copies < 2 * p->limit.slots);
    p->copy_pages[h->copies] = pages;
    p->copy[h->copies++] = copy;
}

void plan_add_save(struct plan *p, int32_t slot, int32_t checkpoint, int32_t pages)
{
    add_copy(p, (struct forward_copy){.kind = FORWARD_SAVE, .from = slot, .to = checkpoint}, pages);
}

void plan_add_load(struct plan *p, int32_t checkpoint, int32_t slot, int32_t pages)
{
    add_copy(p, (struct forward_copy){.kind = FORWARD_LOAD, .from = checkpoint, .to = slot}, pages);
}

void plan_add_fork(struct plan *p, int32_t from, int32_t to, int32_t pages, int32_t from_page, int32_t to_page)
{
    add_copy(p, (struct forward_copy){FORWARD_FORK, from, to, from_page, to_page}, pages);
}

enum plan_kind plan_kind(const struct plan *p)
{
    return (enum plan_kind)p->head->kind;
}

static int within(int64_t value, int64_t least, int64_t most)
{
    return value >= least && value <= most;
}

static int copy_is_sound(const struct plan_limits *l, const struct forward_copy *c, int32_t pages)
{
    if (!within(c->kind, FORWARD_SAVE, FORWARD_FORK) ||
        !within(c->from, 0, (c->kind == FORWARD_LOAD ? l->checkpoints : l->slots) - 1) ||
        !within(c->to, 0, (c->kind == FORWARD_SAVE ? l->checkpoints : l->slots) - 1) ||
        !within(pages, 0, l->slot_pages))
        return 0;
    return c->kind != FORWARD_FORK || c->to_page == -1 ||
           (within(c->from_page, 0, l->pages - 1) && within(c->to_page, 0, l->pages - 1) && pages < l->slot_pages);
}

static int plan_is_sound(const struct plan *p)
{
    const struct plan_limits *l = &p->limit;
    const struct head *h = p->head;

    if (h->kind != PLAN_STEP || !within(h->rows, 1, l->rows) || !within(h->seqs, 1, l->slots) ||
        !within(h->outputs, 0, h->seqs) || !within(h->grown, 0, p->most_grown) || !within(h->copies, 0, 2 * l->slots) ||
        p->begin[0] != 0 || p->begin[h->seqs] != h->rows)
        return 0;
    for (int32_t i = 0; i < h->seqs; i++) {
        int64_t n = (int64_t)p->begin[i + 1] - p->begin[i], most = (int64_t)l->slot_pages * l->page_tokens;
        if (!within(p->slot[i], 0, l->slots - 1) || !within(n, 1, h->rows) || !within(p->pos[i], 0, most - n))
            return 0;
    }
    for (int32_t i = 0; i < h->outputs; i++)
        if (!within(p->output[i], 0, h->rows - 1))
            return 0;
    for (int32_t i = 0; i < h->grown; i++)
        if (!within(p->growth[i].slot, 0, l->slots - 1) || !within(p->growth[i].index, 0, l->slot_pages - 1) ||
            !within(p->growth[i].page, 0, l->pages - 1))
            return 0;
    for (int32_t i = 0; i < h->copies; i++)
        if (!copy_is_sound(l, &p->copy[i], p->copy_pages[i]))
            return 0;
    return 1;
}

static void copy_pages(struct plan *p, const struct forward_copy *c, int32_t pages)
{
    size_t width = (size_t)p->limit.slot_pages;
    const int32_t *from = (c->kind == FORWARD_LOAD ? p->kept : p->table) + (size_t)c->from * width;
    int32_t *to = (c->kind == FORWARD_SAVE ? p->kept : p->table) + (size_t)c->to * width;

    memcpy(to, from, (size_t)pages * sizeof *to);
    if (c->kind == FORWARD_FORK && c->to_page >= 0)
        to[pages] = c->to_page;
}

int plan_apply(struct plan *p, struct forward_step *step, struct k3_error *err)
{
    const struct head *h = p->head;
    size_t width = (size_t)p->limit.slot_pages;

    if (!plan_is_sound(p)) {
        errno = EPROTO;
        return k3_errorf(err, "the step plan from rank 0 makes no sense here: do all ranks read the same k3.conf?");
    }
    for (int32_t i = 0; i < h->copies; i++)
        copy_pages(p, &p->copy[i], p->copy_pages[i]);
    for (int32_t i = 0; i < h->grown; i++)
        p->table[(size_t)p->growth[i].slot * width + (size_t)p->growth[i].index] = p->growth[i].page;
    for (int32_t i = 0; i < h->seqs; i++) {
        int64_t tokens = p->pos[i] + p->begin[i + 1] - p->begin[i];
        size_t used = (size_t)((tokens + p->limit.page_tokens - 1) / p->limit.page_tokens);
        memcpy(p->pages + (size_t)i * width, p->table + (size_t)p->slot[i] * width, used * sizeof *p->pages);
    }
    *step = (struct forward_step){
        .copy = p->copy,
        .copies = h->copies,
        .batch = {.rows = h->rows,
                  .seqs = h->seqs,
                  .begin = p->begin,
                  .slot = p->slot,
                  .pos = p->pos,
                  .pages = p->pages,
                  .page_stride = p->limit.slot_pages,
                  .prefill = p->prefill},
        .token = p->token,
        .output = p->output,
        .outputs = h->outputs,
    };
    return 0;
}
