/* kda.c - the gated delta rule, one token after the other (SPEC 4.4 step 3, 5.1)
 *
 *   S <- diag(e^g) S;  e = beta (v - S^T k);  S <- S + k e^T;  o = S^T q
 *
 * The state lies transposed, [v][k], and is held in fp64 between the tokens of a call. */
#include <math.h>

#include "kernels/ref/ref.h"

enum { D = K3_HEAD_DIM };

static void normalised(const struct k3_tensor *x, int64_t t, int64_t first, double factor, double *y)
{
    double sum = 0;
    for (int d = 0; d < D; d++)
        sum += ref_get(x, t, first + d) * ref_get(x, t, first + d);
    for (int d = 0; d < D; d++)
        y[d] = ref_get(x, t, first + d) / sqrt(sum + 1e-6) * factor;
}

static void token(const struct kda_args *a, int64_t t, int h, double *S)
{
    double q[D], k[D];
    int64_t first = (int64_t)h * D;
    normalised(a->q, t, first, 1 / sqrt(D), q);
    normalised(a->k, t, first, 1, k);
    for (int v = 0; v < D; v++) {
        double *row = S + v * D, kept = 0, o = 0;
        for (int d = 0; d < D; d++) {
            row[d] *= exp(ref_get(a->g, t, first + d));
            kept += row[d] * k[d];
        }
        double e = ref_get(a->beta, t, h) * (ref_get(a->v, t, first + v) - kept);
        for (int d = 0; d < D; d++) {
            row[d] += k[d] * e;
            o += row[d] * q[d];
        }
        ref_put(a->o, t, first + v, o);
    }
}

int ref_kda(const struct kda_args *a, struct k3_stream *s)
{
    const struct kern_batch *b = a->batch;
    double *S = ref_scratch(s, D * D);
    if (S == NULL)
        return -1;
    for (int i = 0; i < b->seqs; i++)
        for (int h = 0; h < a->heads; h++) {
            float *state = (float *)a->state + ((int64_t)b->slot[i] * a->heads + h) * D * D;
            if (b->begin[i] == b->begin[i + 1])
                continue;
            for (int j = 0; j < D * D; j++)
                S[j] = b->pos[i] == 0 ? 0 : state[j];
            for (int64_t t = b->begin[i]; t < b->begin[i + 1]; t++)
                token(a, t, h, S);
            for (int j = 0; j < D * D; j++)
                state[j] = (float)S[j];
        }
    return 0;
}
