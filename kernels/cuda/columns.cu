/* columns.cu - the ranks' columns side by side
 *
 * One block a row and 1,024 columns; each thread looks for the part that its column is of. */
#include "kernels/cuda/cuda.h"

enum { THREADS = 256, SPAN = 1024 };

/* By value, as the caller's lists are not for the device. */
struct parts {
    const float *data[K3_MAX_PARTS];
    int32_t begin[K3_MAX_PARTS + 1];
    int32_t count;
};

/* The last part that begins at or before column d: those that begin where it does are empty. */
static __device__ int part_of(const struct parts &parts, int32_t d)
{
    int low = 0, high = parts.count;

    while (high - low > 1) {
        int middle = (low + high) / 2;
        if (parts.begin[middle] <= d)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static __global__ void columns(const __grid_constant__ struct parts parts, float *y, int64_t y_stride)
{
    int64_t t = blockIdx.x;
    int32_t begin = (int32_t)blockIdx.y * SPAN, end = min(begin + SPAN, parts.begin[parts.count]);

    cuda_next();
    cuda_wait();
    for (int32_t d = begin + (int32_t)threadIdx.x; d < end; d += THREADS) {
        int p = part_of(parts, d);
        int32_t width = parts.begin[p + 1] - parts.begin[p];
        y[t * y_stride + d] = parts.data[p][t * width + d - parts.begin[p]];
    }
}

extern "C" int cuda_columns(const struct columns_args *a, struct k3_stream *s)
{
    dim3 grid((unsigned)a->y->rows, (unsigned)((a->y->cols + SPAN - 1) / SPAN));
    struct parts parts = {};

    if (a->y->cols > INT32_MAX - SPAN) {
        errno = EINVAL;
        return -1;
    }
    parts.count = a->parts;
    for (int32_t p = 0; p < a->parts; p++)
        parts.data[p] = a->part[p];
    for (int32_t p = 0; p <= a->parts; p++)
        parts.begin[p] = (int32_t)a->begin[p];
    return cuda_launch(s, "columns", columns, grid, THREADS, 0, parts, (float *)a->y->data, a->y->stride);
}
