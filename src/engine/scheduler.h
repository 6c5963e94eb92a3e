/* scheduler.h - continuous batching: which tokens of which sequences run in the next step
 *
 * Sequences are admitted in the order in which they came, as soon as a slot is free and their pages can be reserved;
 * one that does not fit yet holds back those behind it, so that nobody overtakes.  A step takes a row of every sequence
 * that decodes, then fills up with chunks of prompts, the earliest admitted first.  A prompt begins behind the pages
 * that a checkpoint has of it, and chunks end where checkpoints are to be taken (prefix.h), at a multiple of
 * K3_PREFILL_BLOCK tokens in any case, or where the prompt ends; the answer that an earlier engine began follows in
 * steps of its own.  So whoever else is in a step, a row runs in the same form of KDA and MLA (struct kern_batch).
 *
 * A request for several answers is admitted as one: a slot for each of its choices, and pages for all, those that the
 * prompt fills counted once.  The prompt runs in the slot of one.  Its last row's logits give every choice its first
 * token, and before the next step the others' slots get its state, its full pages, and a copy of the one that is not.
 */
#ifndef K3_ENGINE_SCHEDULER_H
#define K3_ENGINE_SCHEDULER_H

#include <stdint.h>

#include "engine/cache.h"
#include "engine/plan.h"
#include "engine/prefix.h"
#include "engine/sequence.h"

struct scheduler;

/* Borrows the cache, which has `slots` slots, and the checkpoints of prefixes in it.  A step has at most `chunk` rows
 * of one sequence, no less than K3_PREFILL_BLOCK; a page is a multiple of that, and a step has room for one block more
 * than slots, or a prompt might never begin. */
struct scheduler *scheduler_create(struct cache *c, struct prefix *prefix, int32_t slots, int32_t chunk);
/* Destroys the sequences that are left, too. */
void scheduler_destroy(struct scheduler *s);

/* Takes q and the choices behind it, which the cache must be able to hold (cache_can_hold()). */
void scheduler_add(struct scheduler *s, struct sequence *q);
/* The first choice of the request with this lease, unless all its choices have ended; or NULL.  Borrowed. */
struct sequence *scheduler_find(const struct scheduler *s, uint64_t lease);
/* End all sequences that wait for admission; or all there are. */
void scheduler_finish_waiting(struct scheduler *s, enum sequence_end end);
void scheduler_finish_all(struct scheduler *s, enum sequence_end end);

/* Free the slots and pages of the choices that have ended, and take out a request of which all have (its first choice),
 * the caller's from now on; NULL when there is none.  Not between scheduler_plan() and scheduler_ran(). */
struct sequence *scheduler_reap(struct scheduler *s);

/* Admit who can be, and make the next plan, PLAN_STEP or PLAN_IDLE.  Returns the number of its rows. */
int32_t scheduler_plan(struct scheduler *s, struct plan *p);
/* The planned step has run: moves its sequences on. */
void scheduler_ran(struct scheduler *s);
/* Who gets a token out of that step: so many, and the i-th from which row of its logits; several choices may share one.
 * Borrowed. */
int32_t scheduler_outputs(const struct scheduler *s);
struct sequence *scheduler_output(const struct scheduler *s, int32_t i, int32_t *row);

/* Requests that wait, and choices that have a slot. */
int32_t scheduler_waiting(const struct scheduler *s);
int32_t scheduler_running(const struct scheduler *s);

#endif
