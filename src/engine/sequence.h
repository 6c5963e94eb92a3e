/* sequence.h - one answer on the engine: its tokens, how many of them have run, and how it ended
 *
 *   WAITING --admitted--> PREFILL --caught up--> DECODE --ended--> ENDED
 *
 * A sequence may end from every state.  Its tokens are the prompt's, then the answer's; what an earlier lease produced
 * of the answer is known from the start and runs through the model together with the prompt.
 *
 * A request for several answers has a sequence for each of its choices, all with the same prompt, in a chain that
 * begins with the first.  The prompt runs in one of them; when it has, the others fork from it (scheduler.h). */
#ifndef K3_ENGINE_SEQUENCE_H
#define K3_ENGINE_SEQUENCE_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/output.h"
#include "engine/prefix.h"
#include "engine/sampler.h"
#include "wire/id.h"

struct sequence;

enum sequence_state { SEQUENCE_WAITING, SEQUENCE_PREFILL, SEQUENCE_DECODE, SEQUENCE_ENDED, SEQUENCE_STATES };

enum sequence_end {
    END_STOP,   /* a stop id or a stop string */
    END_LENGTH, /* as many tokens as were asked for */
    /* One of these ends all choices: */
    END_CANCELLED, /* nobody wants it any more */
    END_FAILED,    /* sequence_sentence() says how */
    END_RETURNED,  /* another engine shall go on with it */
    END_DROPPED    /* the daemon knows nothing of it any more: say nothing */
};

struct sequence_args {
    struct k3_id id;
    uint64_t lease;         /* tells this run of the request from an earlier one on the same engine */
    const int32_t *prompt;  /* copied */
    const int32_t *resumed; /* copied: the answer's tokens of an earlier lease, which count towards max_tokens */
    int32_t prompt_tokens, resumed_tokens;
    int32_t max_tokens;       /* of the answer; at least resumed_tokens */
    struct sampling sampling; /* copied with its bias */
    /* Of its user, copied, by which its pages are known to prefix.h; no bytes: they are not. */
    const uint8_t *prefix_key;
    size_t prefix_key_len;
    int32_t page_tokens;
    struct output *output; /* taken; NULL: tokens are all that is wanted */
};

/* A continuation that was complete already has ended when it comes back. */
struct sequence *sequence_create(const struct sequence_args *a);
/* With it go the choices that follow it. */
void sequence_destroy(struct sequence *q);

/* Make `choice`, which is taken, the next behind the last of the chain that begins with `first`. */
void sequence_add_choice(struct sequence *first, struct sequence *choice);
/* The chain's first, which is q itself where there is one answer; and the next behind q, or NULL. */
struct sequence *sequence_first(const struct sequence *q);
struct sequence *sequence_next(const struct sequence *q);
/* Counted from 0. */
int32_t sequence_choice(const struct sequence *q);
/* Whether no choice goes on; and the end of them all, which is that by END_LENGTH when one came to it. */
bool sequence_all_ended(const struct sequence *first);
enum sequence_end sequence_common_end(const struct sequence *first);
/* sequence_finish() for all of them. */
void sequence_finish_all(struct sequence *first, enum sequence_end end, const char *sentence);

const struct k3_id *sequence_id(const struct sequence *q);
uint64_t sequence_lease(const struct sequence *q);
const struct sampling *sequence_sampling(const struct sequence *q);
enum sequence_state sequence_state(const struct sequence *q);
int32_t sequence_prompt_tokens(const struct sequence *q);
int32_t sequence_answer_tokens(const struct sequence *q);
/* Prompt and longest answer together: what the cache has to hold. */
int64_t sequence_most_tokens(const struct sequence *q);

/* The first `run` tokens have run already, in another sequence. */
void sequence_admit(struct sequence *q, int32_t run);
/* How many of them were the prompt's. */
int32_t sequence_cached_tokens(const struct sequence *q);
/* The hashes of its pages that are full of known tokens; none without a key. */
const struct prefix_hash *sequence_chain(const struct sequence *q, int32_t *pages);
/* The tokens that are known and have not run: `count` of them, the first at position sequence_position(). */
const int32_t *sequence_pending(const struct sequence *q, int32_t *count);
int64_t sequence_position(const struct sequence *q);
/* Prompt and answer so far, for sampler_pick(). */
struct sampler_text sequence_text(const struct sequence *q);
/* The next n pending tokens have run, in it or in the choice that it forks from. */
void sequence_ran(struct sequence *q, int32_t n);
/* One more token of the answer, with its delta.  Ends the sequence when the token says so (END_STOP) or is the last
 * that was asked for (END_LENGTH). */
void sequence_append(struct sequence *q, int32_t token, output_emit *emit, void *arg);
/* The first end counts; sentence (copied) may be NULL. */
void sequence_finish(struct sequence *q, enum sequence_end end, const char *sentence);

/* Once it has ended: */
enum sequence_end sequence_end(const struct sequence *q);
const char *sequence_sentence(const struct sequence *q); /* or NULL */
/* Seconds from admission to the first token sampled here, and from there to the end. */
double sequence_prefill_s(const struct sequence *q);
double sequence_decode_s(const struct sequence *q);

#endif
