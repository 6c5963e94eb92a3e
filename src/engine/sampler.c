#include "engine/sampler.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/alloc.h"
#include "engine/random.h"

struct candidate {
    float logit;
    int32_t id;
};

struct sampler {
    int32_t vocab;
    struct candidate *heap; /* [vocab] */
    double *weight;         /* [vocab]: of the candidates kept, best first */
    float *logit;           /* [vocab]: after bias and penalties */
    uint32_t *uses;         /* [vocab]: in the answer, and USES_DONE; 0 between calls */
};

static const uint32_t USES_DONE = UINT32_C(1) << 31;

static int check_bias(const struct sampling *s, int32_t vocab, struct k3_error *err)
{
    if (s->biases < 0 || s->biases > SAMPLING_BIASES)
        return k3_errorf(err, "logit-bias must have at most %d entries", SAMPLING_BIASES);
    for (int32_t i = 0; i < s->biases; i++) {
        if (s->bias[i] < 0 || s->bias[i] >= vocab)
            return k3_errorf(err, "logit-bias: token id %u is not below %d, the size of the vocabulary",
                             (unsigned int)s->bias[i], vocab);
        if (!(fabsf(s->bias_value[i]) <= 100.0f))
            return k3_errorf(err, "logit-bias of token id %d must be from -100 to 100", s->bias[i]);
    }
    return 0;
}

int sampling_check(const struct sampling *s, int32_t vocab, struct k3_error *err)
{
    errno = EINVAL;
    if (!(s->temperature >= 0.0f && s->temperature <= 100.0f))
        return k3_errorf(err, "temperature must be from 0 to 100");
    if (!(s->top_p > 0.0f && s->top_p <= 1.0f))
        return k3_errorf(err, "top-p must be above 0 and at most 1");
    if (s->top_k < 0)
        return k3_errorf(err, "top-k must be 0 (all) or more");
    if (!(s->min_p >= 0.0f && s->min_p <= 1.0f))
        return k3_errorf(err, "min-p must be from 0 to 1");
    if (s->repetition != 0.0f && !(s->repetition >= 0.01f && s->repetition <= 100.0f))
        return k3_errorf(err, "repetition-penalty must be from 0.01 to 100, or 0 (none)");
    if (!(fabsf(s->presence) <= 2.0f))
        return k3_errorf(err, "presence-penalty must be from -2 to 2");
    if (!(fabsf(s->frequency) <= 2.0f))
        return k3_errorf(err, "frequency-penalty must be from -2 to 2");
    if (s->logprobs < 0 || s->logprobs > SAMPLING_LOGPROBS)
        return k3_errorf(err, "logprobs must be from 0 to %d", SAMPLING_LOGPROBS);
    return check_bias(s, vocab, err);
}

struct sampler *sampler_create(int32_t vocab)
{
    struct sampler *sm = k3_zalloc(sizeof *sm);

    sm->vocab = vocab;
    sm->heap = k3_calloc((size_t)vocab, sizeof *sm->heap);
    sm->weight = k3_calloc((size_t)vocab, sizeof *sm->weight);
    sm->logit = k3_calloc((size_t)vocab, sizeof *sm->logit);
    sm->uses = k3_calloc((size_t)vocab, sizeof *sm->uses);
    return sm;
}

void sampler_destroy(struct sampler *sm)
{
    if (!sm)
        return;
    free(sm->heap);
    free(sm->weight);
    free(sm->logit);
    free(sm->uses);
    free(sm);
}

static int repeats(const struct sampling *s)
{
    return s->repetition != 0.0f && s->repetition != 1.0f;
}

static float penalised(const struct sampling *s, float logit, uint32_t uses)
{
    if (repeats(s))
        logit = logit > 0 ? logit / s->repetition : logit * s->repetition;
    logit -= s->frequency * (float)uses;
    return uses > 0 ? logit - s->presence : logit;
}

static void penalise(struct sampler *sm, const struct sampling *s, const struct sampler_text *text)
{
    for (int32_t i = text->prompt; i < text->count; i++)
        sm->uses[text->token[i]]++;
    for (int32_t i = repeats(s) ? 0 : text->prompt; i < text->count; i++) {
        int32_t id = text->token[i];
        if (sm->uses[id] & USES_DONE)
            continue;
        sm->logit[id] = penalised(s, sm->logit[id], sm->uses[id]);
        sm->uses[id] |= USES_DONE;
    }
    for (int32_t i = 0; i < text->count; i++)
        sm->uses[text->token[i]] = 0;
}

static int penalises(const struct sampling *s)
{
    return repeats(s) || s->presence != 0.0f || s->frequency != 0.0f;
}

static int adjusts(const struct sampling *s)
{
    return penalises(s) || s->biases > 0;
}

/* The logits after bias and penalties. */
static const float *adjust(struct sampler *sm, const struct sampling *s, const float *logits,
                           const struct sampler_text *text)
{
    memcpy(sm->logit, logits, (size_t)sm->vocab * sizeof *logits);
    for (int32_t i = 0; i < s->biases; i++)
        sm->logit[s->bias[i]] += s->bias_value[i];
    if (penalises(s))
        penalise(sm, s, text);
    return sm->logit;
}

/* The largest logit's id, the lowest of equals; -1 when one is not a number that can be compared.  One comparison an
 * id: NaN is not at most anything. */
static int32_t largest(const float *logits, int32_t vocab)
{
    int32_t best = 0;

    for (int32_t i = 0; i < vocab; i++) {
        if (logits[i] <= logits[best])
            continue;
        if (isnan(logits[i]))
            return -1;
        best = i;
    }
    return isinf(logits[best]) ? -1 : best;
}

static int better(struct candidate a, struct candidate b)
{
    return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

static void sift_down(struct candidate *heap, int32_t n, int32_t at)
{
    struct candidate moved = heap[at];

    for (int32_t child; (child = 2 * at + 1) < n; at = child) {
        if (child + 1 < n && better(heap[child + 1], heap[child]))
            child++;
        if (!better(heap[child], moved))
            break;
        heap[at] = heap[child];
    }
    heap[at] = moved;
}

/* Take the best off the heap of n; it lies behind the heap then, at [n - 1]. */
static void pop(struct candidate *heap, int32_t n)
{
    struct candidate best = heap[0];

    heap[0] = heap[n - 1];
    heap[n - 1] = best;
    sift_down(heap, n - 1, 0);
}

/* Walk along weights until their sum passes u times `mass`; rounding must not carry us past the end. */
static int32_t walk(const double *weight, int32_t n, double mass, double u)
{
    double sum = 0;
    int32_t last = 0;

    for (int32_t i = 0; i < n; i++) {
        sum += weight[i];
        if (weight[i] > 0)
            last = i;
        if (sum > u * mass)
            return i;
    }
    return last;
}

/* No cut: nothing to sort. */
static int32_t pick_of_all(struct sampler *sm, const float *logits, float top, double temperature, double u)
{
    double mass = 0;

    for (int32_t i = 0; i < sm->vocab; i++)
        mass += sm->weight[i] = exp(((double)logits[i] - top) / temperature);
    return walk(sm->weight, sm->vocab, mass, u);
}

/* Take the best of the n that are left off the heap, and weigh it. */
static double pop_weight(struct sampler *sm, int32_t n, float top, double temperature)
{
    pop(sm->heap, n);
    return exp(((double)sm->heap[n - 1].logit - top) / temperature);
}

/* Best first, until there are top_k of them, or their share reaches top_p of what top_k left, or the next one falls
 * short of min_p: the best weighs 1. */
static int32_t pick_of_best(struct sampler *sm, const struct sampling *s, const float *logits, float top, double u)
{
    int32_t n = sm->vocab, most = s->top_k > 0 && s->top_k < n ? s->top_k : n, popped = 0, kept;
    double mass = 0, reached = 0, temperature = s->temperature;

    for (int32_t i = 0; i < n; i++) {
        sm->heap[i] = (struct candidate){logits[i], i};
        mass += exp(((double)logits[i] - top) / temperature);
    }
    for (int32_t i = n / 2 - 1; i >= 0; i--)
        sift_down(sm->heap, n, i);
    if (most < n) /* their mass has to be known before top_p can cut it */
        for (mass = 0; popped < most; popped++)
            mass += sm->weight[popped] = pop_weight(sm, n - popped, top, temperature);
    for (kept = 0; kept < most && !(reached >= s->top_p * mass); kept++) {
        if (kept == popped)
            sm->weight[kept] = pop_weight(sm, n - popped++, top, temperature);
        if (sm->weight[kept] < s->min_p)
            break;
        reached += sm->weight[kept];
    }
    return sm->heap[n - 1 - walk(sm->weight, kept, reached, u)].id;
}

int32_t sampler_pick(struct sampler *sm, const struct sampling *s, const float *logits, const struct sampler_text *text,
                     struct k3_error *err)
{
    int32_t best = largest(logits, sm->vocab);

    if (best >= 0 && adjusts(s)) {
        logits = adjust(sm, s, logits, text);
        best = largest(logits, sm->vocab);
    }
    if (best < 0) {
        errno = EDOM;
        return k3_errorf(err, "the model's output for position %d is not a number", text->count);
    }
    if (s->temperature == 0.0f)
        return best;
    double u = random_uniform(s->seed, (uint64_t)text->count);
    if (s->top_k == 0 && s->top_p == 1.0f && s->min_p == 0.0f)
        return pick_of_all(sm, logits, logits[best], s->temperature, u);
    return pick_of_best(sm, s, logits, logits[best], u);
}

static double log_of_sum(const float *logits, int32_t vocab)
{
    float top = logits[largest(logits, vocab)];
    double sum = 0;

    for (int32_t i = 0; i < vocab; i++)
        sum += exp((double)logits[i] - top);
    return top + log(sum);
}

static struct logprob logprob(const float *logits, int32_t id, double total)
{
    double value = logits[id] - total;

    return (struct logprob){id, value > LOGPROB_LEAST ? (float)value : LOGPROB_LEAST};
}

void sampler_logprobs(const struct sampler *sm, const float *logits, int32_t chosen, int32_t n, struct logprob *out)
{
    double total = log_of_sum(logits, sm->vocab);
    int32_t best[SAMPLING_LOGPROBS], found = 0;

    for (int32_t i = 0; i < sm->vocab; i++) {
        int32_t at = found;
        while (at > 0 && logits[i] > logits[best[at - 1]])
            at--;
        if (at == n)
            continue;
        found += found < n;
        memmove(best + at + 1, best + at, (size_t)(found - 1 - at) * sizeof *best);
        best[at] = i;
    }
    out[0] = logprob(logits, chosen, total);
    for (int32_t i = 0; i < n; i++)
        out[1 + i] = logprob(logits, best[i], total);
}
