/* tiny.h - what tests of whole steps share: tiny-a's synthetic weights, and rank 0 without comm, daemon or text
 *
 * An engine here makes the same calls in the same order as step.c does, and keeps for every answer its tokens and a
 * hash of the logits that each was chosen from: bits that differ show, even where the token happens to be the same. */
#ifndef K3_ENGINE_TEST_TINY_H
#define K3_ENGINE_TEST_TINY_H

#include <stdint.h>

#include "engine/scheduler.h"
#include "model/forward.h"

enum { TINY_CONTEXT = 640 }; /* most tokens of prompt and answer */

/* Deterministic, so that a failure can be repeated. */
int32_t tiny_below(uint32_t *seed, int32_t n);

struct tiny_request {
    int32_t prompt[TINY_CONTEXT];
    int32_t prompt_tokens, max_tokens;
    int32_t choices; /* 0: one; choice i has the seed plus i */
    struct sampling sampling;
    uint8_t key[PREFIX_KEY_MIN]; /* of its user */
};
/* Prompts and settings of all kinds. */
void tiny_random_request(uint32_t *seed, struct tiny_request *r);

struct tiny_answer {
    int32_t token[TINY_CONTEXT];
    uint64_t logits[TINY_CONTEXT]; /* hash of the row that token came from */
    int32_t count;
    int32_t cached; /* tokens of the prompt, once it has ended */
};

/* The model is loaded once for a test program; 0 or -1, as cmocka's group set-up wants it. */
int tiny_load(void **state);
int tiny_unload(void **state);

struct tiny_limits {
    int32_t rows, slots, pages, page_tokens, chunk, threads, checkpoints;
};

struct tiny {
    struct tiny_limits limits;
    struct k3_stream *stream;
    struct forward *forward;
    struct cache *cache;
    struct prefix *prefix;
    struct scheduler *scheduler;
    struct plan *plan;
    struct sampler *sampler;
    struct tiny_answer **answer; /* [leases]: where the answers of each go */
    int32_t leases;
    int64_t steps, rows;
};

struct tiny *tiny_create(const struct tiny_limits *l);
void tiny_destroy(struct tiny *t);
/* Returns the lease.  `answer`, one for each choice, is zeroed and then filled until the sequence ends. */
uint64_t tiny_add(struct tiny *t, const struct tiny_request *r, struct tiny_answer *answer);
/* One step; 0 when there is nothing to do. */
int tiny_step(struct tiny *t);
/* Take one that has ended, and what it ended by; 0 when there is none. */
int tiny_reap(struct tiny *t, uint64_t *lease, enum sequence_end *end);
/* Run until nothing is left, forgetting who ended how. */
void tiny_finish(struct tiny *t);

#endif
