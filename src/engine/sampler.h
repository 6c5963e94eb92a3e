/* sampler.h - logits to a token
 *
 * The token depends on the logits, the settings, the seed and the text so far alone, so it is the same in any batch, on
 * any layout, and again after another engine took over.  In this order:
 *
 *   1. bias: added to the logits of its ids
 *   2. penalties: of an id in the prompt or the answer so far, a logit above 0 is divided by `repetition` and one below
 *      multiplied; then `frequency` times its uses in the answer is subtracted; then `presence`, when there is one
 *   3. temperature: logits are divided by it; at 0 the largest is taken, and nothing below matters
 *   4. top-k, of the probabilities that are left top-p, and of those min-p; one id is always left
 *
 * Of equal logits the lower id comes first.  Steps 1 to 3 are in vLLM's order (docs.vllm.ai, vllm.v1.sample.sampler),
 * the cuts in that of Hugging Face transformers (generation/utils.py, where min-p comes behind top-p); presence and
 * frequency are OpenAI's penalties, repetition is that of Keskar et al., "CTRL" (arXiv:1909.05858). */
#ifndef K3_ENGINE_SAMPLER_H
#define K3_ENGINE_SAMPLER_H

#include <stdint.h>

#include "common/error.h"

enum {
    SAMPLING_BIASES = 1024, /* entries of a bias */
    SAMPLING_LOGPROBS = 20
};

struct sampling {
    float temperature;       /* 0 to 100 */
    float top_p;             /* (0, 1]; 1 keeps all */
    int32_t top_k;           /* 0 keeps all */
    float min_p;             /* least probability, as a share of the likeliest id's; 0 keeps all */
    float repetition;        /* 0.01 to 100; 1, or 0, is none */
    float presence;          /* -2 to 2, as is ... */
    float frequency;         /* ... this */
    const int32_t *bias;     /* [biases] ids ... */
    const float *bias_value; /* ... and what is added to their logits, -100 to 100; both borrowed */
    int32_t biases;
    int32_t logprobs; /* likeliest ids to report with each token; 0 reports none */
    uint64_t seed;
};

/* Refuses what makes no sense, naming the setting.  vocab: of the model, or INT32_MAX while it is not known. */
int sampling_check(const struct sampling *s, int32_t vocab, struct k3_error *err);

/* The sequence so far. */
struct sampler_text {
    const int32_t *token; /* [count]; may be NULL when the settings have no penalty */
    int32_t prompt;       /* the first of them */
    int32_t count;        /* the position of the token to choose */
};

/* Working memory for one thread. */
struct sampler;
struct sampler *sampler_create(int32_t vocab);
void sampler_destroy(struct sampler *sm);

/* The next token, chosen from logits [vocab]; -1 when a logit is NaN or +inf or all are -inf: the request has failed,
 * the engine has not.  Never allocates.  With a penalty the time grows with the text, by a nanosecond or two a token.
 */
int32_t sampler_pick(struct sampler *sm, const struct sampling *s, const float *logits, const struct sampler_text *text,
                     struct k3_error *err);

/* The natural logarithm of an id's probability. */
struct logprob {
    int32_t id;
    float value; /* LOGPROB_LEAST at least */
};
#define LOGPROB_LEAST -9999.0f

/* out [1 + n]: the token that was chosen, then the n likeliest ids (n at most SAMPLING_LOGPROBS and the vocabulary). By
 * the model's own logits, before any of the steps above, as vLLM has it. */
void sampler_logprobs(const struct sampler *sm, const float *logits, int32_t chosen, int32_t n, struct logprob *out);

#endif
