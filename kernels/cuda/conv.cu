/* conv.cu - causal depthwise convolution and SiLU (SPEC 4.4 step 2, 5.2)
 *
 * A thread a channel and TILE rows of a sequence.  Only the block of a sequence's first rows looks at the state, so it
 * may move it on as well.  All fp32. */
#include "kernels/cuda/kda.h"

enum { THREADS = 128, TILE = 32, KEPT = K3_TAPS - 1 };

__global__ static void __launch_bounds__(THREADS)
    convolve(struct cuda_rows x, struct cuda_rows w, struct cuda_rows y, float *state, struct kern_batch b,
             int channels, int prompts_alone)
{
    int c = (int)(blockIdx.x * THREADS + threadIdx.x), i = (int)blockIdx.y, tile = (int)blockIdx.z * TILE;
    float tap[K3_TAPS], last[KEPT] = {0};

    cuda_wait();
    cuda_next();
    int begin = b.begin[i], rows = b.begin[i + 1] - begin, end = min(rows, tile + TILE);
    if (c >= channels || tile >= rows || (prompts_alone && b.prefill[i] == 0))
        return;
    float *kept = state + (int64_t)b.slot[i] * KEPT * channels + c;
    for (int j = 0; j < K3_TAPS; j++)
        tap[j] = w[c][j];
    for (int j = 0; j < KEPT; j++)
        if (tile > 0)
            last[j] = x[begin + tile - KEPT + j][c];
        else if (b.pos[i] > 0)
            last[j] = kept[(int64_t)j * channels];
    if (tile == 0) {
        float next[KEPT] = {last[0], last[1], last[2]};
        for (int t = max(0, rows - KEPT); t < rows; t++)
            next[0] = next[1], next[1] = next[2], next[2] = x[begin + t][c];
        for (int j = 0; j < KEPT; j++)
            kept[(int64_t)j * channels] = next[j];
    }
#pragma unroll 4
    for (int t = tile; t < end; t++) {
        float now = x[begin + t][c];
        float z = tap[0] * last[0] + tap[1] * last[1] + tap[2] * last[2] + tap[3] * now;
        y[begin + t][c] = z * cuda_sigmoid(z);
        last[0] = last[1], last[1] = last[2], last[2] = now;
    }
}

static int launch(const struct conv_args *a, int prompts_alone, struct k3_stream *s)
{
    int channels = (int)a->x->cols;
    dim3 grid((unsigned)(channels + THREADS - 1) / THREADS, (unsigned)a->batch->seqs,
              (unsigned)(a->batch->rows + TILE - 1) / TILE);

    return cuda_launch(s, "conv", convolve, grid, THREADS, 0, cuda_rows_of(a->x), cuda_rows_of(a->w),
                       cuda_rows_of(a->y), (float *)a->state, *a->batch, channels, prompts_alone);
}

extern "C" int cuda_conv(const struct conv_args *a, struct k3_stream *s)
{
    return launch(a, 0, s);
}

int cuda_conv_prompts(const struct conv_args *a, struct k3_stream *s)
{
    return launch(a, 1, s);
}
