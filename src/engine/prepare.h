/* prepare.h - a lease becomes a sequence: prompt in tokens, limits checked, sampling and output set up */
#ifndef K3_ENGINE_PREPARE_H
#define K3_ENGINE_PREPARE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/error.h"
#include "engine/cache.h"
#include "engine/sequence.h"
#include "text/vocab.h"
#include "wire/message.h"

/* What this engine can take. */
struct prepare_limits {
    const struct vocab *vocab;
    int32_t ids;     /* token ids that the model knows */
    int64_t context; /* most tokens of prompt and answer together */
    struct cache_limits cache;
    bool shares; /* prompts that begin alike are found, by the cache's pages */
};

/* The first of its choices, the others behind it.  Choice i has the seed of the request plus i.  NULL with the sentence
 * that its user shall read when the request is impossible here.  lease: a number that tells this run of the request
 * from others. */
struct sequence *prepare_sequence(const struct prepare_limits *l, const struct message_lease *request, uint64_t lease,
                                  struct k3_error *err);

#endif
