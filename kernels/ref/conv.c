/* conv.c - causal depthwise convolution and SiLU (SPEC 4.4 step 2, 5.2) */
#include "kernels/ref/ref.h"

enum { KEPT = K3_TAPS - 1 };

/* Channel c of the input `back` tokens before row t of sequence i; before the step's rows it lies in the state, before
 * the sequence it is zero. */
static double input(const struct conv_args *a, int i, const float *state, int64_t t, int back, int64_t c)
{
    int64_t row = t - back, begin = a->batch->begin[i];
    if (row >= begin)
        return ref_get(a->x, row, c);
    if (a->batch->pos[i] == 0)
        return 0;
    return state[(KEPT - (begin - row)) * a->x->cols + c];
}

int ref_conv(const struct conv_args *a, struct k3_stream *s)
{
    const struct kern_batch *b = a->batch;
    int64_t channels = a->x->cols;
    (void)s;
    for (int i = 0; i < b->seqs; i++) {
        float *state = (float *)a->state + b->slot[i] * KEPT * channels;
        if (b->begin[i] == b->begin[i + 1])
            continue;
        for (int64_t c = 0; c < channels; c++) {
            for (int64_t t = b->begin[i]; t < b->begin[i + 1]; t++) {
                double z = 0;
                for (int back = 0; back < K3_TAPS; back++)
                    z += ref_get(a->w, c, K3_TAPS - 1 - back) * input(a, i, state, t, back, c);
                ref_put(a->y, t, c, z * ref_sigmoid(z));
            }
            float next[KEPT];
            for (int j = 0; j < KEPT; j++)
                next[j] = (float)input(a, i, state, b->begin[i + 1] - 1, KEPT - 1 - j, c);
            for (int j = 0; j < KEPT; j++)
                state[j * channels + c] = next[j];
        }
    }
    return 0;
}
