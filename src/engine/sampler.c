#include "engine/sampler.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

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
};

int sampling_check(const struct sampling *s, struct k3_error *err)
{
    errno = EINVAL;
    if (!(s->temperature >= 0.0f && s->temperature <= 100.0f))
        return k3_errorf(err, "temperature must be from 0 to 100");
    if (!(s->top_p > 0.0f && s->top_p <= 1.0f))
        return k3_errorf(err, "top-p must be above 0 and at most 1");
    if (s->top_k < 0)
        return k3_errorf(err, "top-k must be 0 (all) or more");
    return 0;
}

struct sampler *sampler_create(int32_t vocab)
{
    struct sampler *sm = k3_zalloc(sizeof *sm);

    sm->vocab = vocab;
    sm->heap = k3_calloc((size_t)vocab, sizeof *sm->heap);
    sm->weight = k3_calloc((size_t)vocab, sizeof *sm->weight);
    return sm;
}

void sampler_destroy(struct sampler *sm)
{
    if (!sm)
        return;
    free(sm->heap);
    free(sm->weight);
    free(sm);
}

/* The largest logit's id, the lowest of equals; -1 when one is not a number that can be compared. */
static int32_t largest(const float *logits, int32_t vocab)
{
    int32_t best = 0;

    for (int32_t i = 0; i < vocab; i++) {
        if (isnan(logits[i]) || logits[i] == INFINITY)
            return -1;
        if (logits[i] > logits[best])
            best = i;
    }
    return logits[best] == -INFINITY ? -1 : best;
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

/* Best first, until there are top_k of them or their share reaches top_p of what top_k left. */
static int32_t pick_of_best(struct sampler *sm, const struct sampling *s, const float *logits, float top, double u)
{
    int32_t n = sm->vocab, most = s->top_k > 0 && s->top_k < n ? s->top_k : n, kept = 0;
    double mass = 0, reached = 0, temperature = s->temperature;

    for (int32_t i = 0; i < n; i++) {
        sm->heap[i] = (struct candidate){logits[i], i};
        mass += exp(((double)logits[i] - top) / temperature);
    }
    for (int32_t i = n / 2 - 1; i >= 0; i--)
        sift_down(sm->heap, n, i);
    /* With both cuts the mass of the best top_k has to be known before top_p can cut it. */
    int known = most == n;
    while (kept < most && !(known && reached >= s->top_p * mass)) {
        pop(sm->heap, n - kept);
        sm->weight[kept] = exp(((double)sm->heap[n - 1 - kept].logit - top) / temperature);
        reached += sm->weight[kept++];
    }
    if (!known) {
        mass = reached;
        for (reached = 0, kept = 0; kept < most && !(reached >= s->top_p * mass);)
            reached += sm->weight[kept++];
    }
    return sm->heap[n - 1 - walk(sm->weight, kept, reached, u)].id;
}

int32_t sampler_pick(struct sampler *sm, const struct sampling *s, const float *logits, uint64_t position,
                     struct k3_error *err)
{
    int32_t best = largest(logits, sm->vocab);

    if (best < 0) {
        errno = EDOM;
        return k3_errorf(err, "the model's output for position %llu is not a number", (unsigned long long)position);
    }
    if (s->temperature == 0.0f)
        return best;
    double u = random_uniform(s->seed, position);
    if (s->top_k == 0 && s->top_p == 1.0f)
        return pick_of_all(sm, logits, logits[best], s->temperature, u);
    return pick_of_best(sm, s, logits, logits[best], u);
}
