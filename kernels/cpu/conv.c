/* conv.c - causal depthwise convolution and SiLU (SPEC 4.4 step 2, 5.2), fp32
 *
 * A worker owns a range of channels, and a channel's history is its own: TILE channels at a time walk through the rows
 * of a sequence with the last inputs in registers or the first-level cache. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/fmath.h"

enum { KEPT = K3_TAPS - 1, TILE = 64 };

/* Channels [c, c + n) of sequence i. */
static void tile(const struct conv_args *a, int i, int64_t c, int64_t n)
{
    const struct kern_batch *b = a->batch;
    float *state = (float *)a->state + (int64_t)b->slot[i] * KEPT * a->x->cols + c;
    float w[K3_TAPS][TILE] = {0}, last[K3_TAPS][TILE] = {0}; /* last: inputs of rows t - 3 ... t, row t at t % 4 */
    int begin = b->begin[i], end = b->begin[i + 1];

    for (int64_t j = 0; j < n; j++)
        for (int tap = 0; tap < K3_TAPS; tap++)
            w[tap][j] = cpu_row(a->w, c + j)[tap];
    for (int j = 0; b->pos[i] > 0 && j < KEPT; j++)
        memcpy(last[(begin + j + 1) % K3_TAPS], state + j * a->x->cols, (size_t)n * sizeof(float));
    for (int t = begin; t < end; t++) {
        float y[TILE];
        memcpy(last[t % K3_TAPS], cpu_row(a->x, t) + c, (size_t)n * sizeof(float));
        for (int j = 0; j < TILE; j += LANES) {
            vec z = vec_set(0);
            for (int tap = 0; tap < K3_TAPS; tap++)
                z = vec_fma(vec_load(w[tap] + j), vec_load(last[(t + 1 + tap) % K3_TAPS] + j), z);
            vec_store(y + j, z * vec_sigmoid(z));
        }
        memcpy(cpu_row(a->y, t) + c, y, (size_t)n * sizeof(float));
    }
    for (int j = 0; j < KEPT; j++)
        memcpy(state + j * a->x->cols, last[(end + 1 + j) % K3_TAPS], (size_t)n * sizeof(float));
}

static void channels(struct cpu_worker *w, const void *arg)
{
    const struct conv_args *a = arg;
    int64_t c0, c1;
    cpu_share(w, a->x->cols, TILE, &c0, &c1);
    for (int i = 0; i < a->batch->seqs; i++)
        for (int64_t c = c0; c < c1 && a->batch->begin[i] < a->batch->begin[i + 1]; c += TILE)
            tile(a, i, c, c1 - c < TILE ? c1 - c : TILE);
}

int CPU(conv)(const struct conv_args *a, struct k3_stream *s)
{
    CPU(run)(s, 1 + a->x->rows * a->x->cols / 4096, channels, a);
    return 0;
}
