/* columns.c - the ranks' columns side by side */
#include "kernels/cpu/cpu.h"

int CPU(columns)(const struct columns_args *a, struct k3_stream *s)
{
    (void)s;
    for (int32_t p = 0; p < a->parts; p++) {
        int64_t width = a->begin[p + 1] - a->begin[p];
        for (int64_t t = 0; t < a->y->rows && width > 0; t++)
            memcpy(cpu_row(a->y, t) + a->begin[p], a->part[p] + t * width, (size_t)width * sizeof(float));
    }
    return 0;
}
