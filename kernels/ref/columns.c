/* columns.c - the ranks' columns side by side */
#include "kernels/ref/ref.h"

int ref_columns(const struct columns_args *a, struct k3_stream *s)
{
    (void)s;
    for (int32_t p = 0; p < a->parts; p++) {
        int64_t width = a->begin[p + 1] - a->begin[p];
        for (int64_t t = 0; t < a->y->rows; t++)
            for (int64_t i = 0; i < width; i++)
                ref_put(a->y, t, a->begin[p] + i, (double)a->part[p][t * width + i]);
    }
    return 0;
}
