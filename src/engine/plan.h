/* plan.h - what all ranks do next: one message of fixed size from rank 0, broadcast once a step
 *
 * Rank 0 fills a plan, every rank (rank 0 too) applies it and gets the same struct forward_step.  A message carries
 * only the pages that are new in this step; each rank keeps the table of every slot's and every checkpoint's pages. The
 * message is memory of the machine, all ranks being of one kind and one version, and its size follows from limits that
 * the ranks agreed on.
 */
#ifndef K3_ENGINE_PLAN_H
#define K3_ENGINE_PLAN_H

#include <stddef.h>
#include <stdint.h>

#include "common/error.h"
#include "model/forward.h"

struct plan;

enum plan_kind {
    PLAN_IDLE, /* nothing to do for now: wait in comm_broadcast_idle() for the next */
    PLAN_STEP,
    PLAN_STOP
};

struct plan_limits {
    int32_t rows;        /* token rows of a step */
    int32_t slots;       /* each runs once in a step at most, with one row of logits */
    int32_t pages;       /* of the whole cache */
    int32_t slot_pages;  /* most pages of one slot */
    int32_t page_tokens; /* tokens a page */
    int32_t checkpoints; /* kept states, each with the pages that belong to it */
};

struct plan *plan_create(const struct plan_limits *l);
void plan_destroy(struct plan *p);

/* The message, for comm_broadcast(); lives as long as the plan. */
void *plan_message(struct plan *p, size_t *bytes);

/* Rank 0: begin a plan anew. */
void plan_begin(struct plan *p, enum plan_kind kind);
/* Token rows that still fit. */
int32_t plan_room(const struct plan *p);
/* Run n tokens of the sequence in this slot, the first of them at position pos; prefill: see struct kern_batch;
 * want_logits: of the last one.  n is at most plan_room(), and a slot comes once in a plan. */
void plan_add(struct plan *p, int32_t slot, int64_t pos, const int32_t *token, int32_t n, int32_t prefill,
              int want_logits);
/* Page number `index` of the slot's sequence lies in `page` from now on. */
void plan_add_page(struct plan *p, int32_t slot, int32_t index, int32_t page);

/* Before the step's rows run, in the order of these calls, at most two a slot: keep the slot's state and the list of
 * its first n pages in a checkpoint; or begin the slot with what a checkpoint keeps. */
void plan_add_save(struct plan *p, int32_t slot, int32_t checkpoint, int32_t pages);
void plan_add_load(struct plan *p, int32_t checkpoint, int32_t slot, int32_t pages);
/* Likewise: slot `to` begins with the state and the first n pages of slot `from`; copies the page behind them when the
 * last one is not full (-1: there is none). */
void plan_add_fork(struct plan *p, int32_t from, int32_t to, int32_t pages, int32_t from_page, int32_t to_page);

enum plan_kind plan_kind(const struct plan *p);
/* Enter the new pages and give the step to run, good until the plan changes; -1 when the message says something that
 * cannot be (a rank of other settings). */
int plan_apply(struct plan *p, struct forward_step *step, struct k3_error *err);

#endif
