/* router.c - which experts a token goes to, and their weights (SPEC 4.6 steps 1 to 3), fp32 */
#include <errno.h>
#include <math.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/fmath.h"

/* Index of the largest of x[0..n-1], the lowest of equals; -INFINITY marks what is out. */
static int largest(const float *x, int n)
{
    int best = 0;
    for (int i = 1; i < n; i++)
        if (x[i] > x[best])
            best = i;
    return best;
}

/* Mask the experts of all groups but the topk_group best with -INFINITY. */
static void keep_groups(const struct router_args *a, float *biased, int experts, float *group)
{
    int size = experts / a->groups;
    for (int g = 0; g < a->groups; g++) {
        float first = -INFINITY, second = -INFINITY;
        for (int e = g * size; e < (g + 1) * size; e++) {
            float x = biased[e];
            second = fmaxf(second, fminf(first, x));
            first = fmaxf(first, x);
        }
        group[g] = size > 1 ? first + second : first;
    }
    for (int j = 0; j < a->topk_group; j++)
        group[largest(group, a->groups)] = -INFINITY;
    for (int g = 0; g < a->groups; g++)
        for (int e = g * size; group[g] != -INFINITY && e < (g + 1) * size; e++)
            biased[e] = -INFINITY;
}

/* Sigmoids of a row and their biased form; 0 if a logit is not finite. */
static int scores(const struct router_args *a, int64_t t, int experts, float *score, float *biased)
{
    const float *logit = cpu_row(a->logits, t), *bias = cpu_row(a->bias, 0);
    int finite = 1;
    for (int e = 0; e < experts; e += LANES) {
        int n = experts - e < LANES ? experts - e : LANES;
        vec s = vec_sigmoid(vec_load_n(logit + e, n));
        vec_store_n(score + e, s, n);
        vec_store_n(biased + e, s + vec_load_n(bias + e, n), n);
    }
    for (int e = 0; e < experts; e++)
        finite &= isfinite(logit[e]) != 0;
    return finite;
}

static void rows(struct cpu_worker *w, const void *arg)
{
    const struct router_args *a = arg;
    int experts = (int)a->logits->cols;
    float *score = w->own, *biased = score + experts, *group = biased + experts;
    int64_t begin, end;
    cpu_share(w, a->logits->rows, 1, &begin, &end);
    for (int64_t t = begin; t < end; t++) {
        int32_t *id = a->id + t * a->topk;
        float *weight = a->weight + t * a->topk, sum = 0;
        int finite = scores(a, t, experts, score, biased);
        if (finite && a->groups > 1)
            keep_groups(a, biased, experts, group);
        for (int j = 0; j < a->topk; j++) {
            id[j] = finite ? largest(biased, experts) : j;
            biased[id[j]] = -INFINITY;
            sum += score[id[j]];
        }
        for (int j = 0; j < a->topk; j++)
            weight[j] = finite ? score[id[j]] / (a->renormalize ? sum + 1e-20f : 1) * a->scaling : NAN;
    }
}

int CPU(router)(const struct router_args *a, struct k3_stream *s)
{
    if (a->logits->cols > CPU_OWN_FLOATS / 3) {
        errno = EINVAL;
        return -1;
    }
    CPU(run)(s, a->logits->rows, rows, a);
    return 0;
}
