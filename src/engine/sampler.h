/* sampler.h - logits to a token
 *
 * The token depends on the logits, the settings, the seed and the position alone.  Order: temperature, top-k, top-p; of
 * equal logits the lower id comes first. */
#ifndef K3_ENGINE_SAMPLER_H
#define K3_ENGINE_SAMPLER_H

#include <stdint.h>

#include "common/error.h"

struct sampling {
    float temperature; /* 0: the largest logit, and nothing below matters */
    float top_p;       /* (0, 1]; 1 keeps all */
    int32_t top_k;     /* 0 keeps all */
    uint64_t seed;
};

/* Refuses what makes no sense, naming the setting. */
int sampling_check(const struct sampling *s, struct k3_error *err);

/* Working memory for one thread. */
struct sampler;
struct sampler *sampler_create(int32_t vocab);
void sampler_destroy(struct sampler *sm);

/* The token at `position` of its sequence, chosen from logits [vocab]; -1 when a logit is NaN or +inf or all are -inf:
 * the request has failed, the engine has not.  Never allocates. */
int32_t sampler_pick(struct sampler *sm, const struct sampling *s, const float *logits, uint64_t position,
                     struct k3_error *err);

#endif
