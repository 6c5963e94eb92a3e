/* router.c - which experts a token goes to, and their weights (SPEC 4.6 steps 1 to 3)
 *
 * Scores are rounded to fp32, as SPEC has them, so that what ties in the fast backends ties here. */
#include <math.h>

#include "kernels/ref/ref.h"

/* Index of the largest of x[0..n-1], the lowest of equals; -INFINITY marks what is out. */
static int largest(const double *x, int n)
{
    int best = 0;
    for (int i = 1; i < n; i++)
        if (x[i] > x[best])
            best = i;
    return best;
}

/* Mask the experts of all groups but the topk_group best with -INFINITY. */
static void keep_groups(const struct router_args *a, double *biased, int experts, double *group)
{
    int size = experts / a->groups;
    for (int g = 0; g < a->groups; g++) {
        double first = -INFINITY, second = -INFINITY;
        for (int e = g * size; e < (g + 1) * size; e++) {
            second = fmax(second, fmin(first, biased[e]));
            first = fmax(first, biased[e]);
        }
        group[g] = size > 1 ? (float)(first + second) : first;
    }
    for (int j = 0; j < a->topk_group; j++)
        group[largest(group, a->groups)] = -INFINITY;
    for (int g = 0; g < a->groups; g++)
        for (int e = g * size; group[g] != -INFINITY && e < (g + 1) * size; e++)
            biased[e] = -INFINITY;
}

int ref_router(const struct router_args *a, struct k3_stream *s)
{
    int experts = (int)a->logits->cols;
    double *biased = ref_scratch(s, (size_t)experts + (size_t)a->groups);
    if (biased == NULL)
        return -1;
    for (int64_t t = 0; t < a->logits->rows; t++) {
        int finite = 1;
        double sum = 0;
        for (int e = 0; e < experts; e++) {
            finite = finite && isfinite(ref_get(a->logits, t, e));
            biased[e] = (float)((float)ref_sigmoid(ref_get(a->logits, t, e)) + ref_get(a->bias, 0, e));
        }
        if (finite && a->groups > 1)
            keep_groups(a, biased, experts, biased + experts);
        for (int j = 0; j < a->topk; j++) {
            int e = finite ? largest(biased, experts) : j;
            biased[e] = -INFINITY;
            a->id[t * a->topk + j] = e;
            sum += ref_sigmoid(ref_get(a->logits, t, e));
        }
        for (int j = 0; j < a->topk; j++) {
            double w = ref_sigmoid(ref_get(a->logits, t, a->id[t * a->topk + j]));
            a->weight[t * a->topk + j] = finite ? (float)((a->renormalize ? w / (sum + 1e-20) : w) * a->scaling) : NAN;
        }
    }
    return 0;
}
