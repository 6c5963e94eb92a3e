/* gather.c - y[i] = x[row[i]] */
#include <errno.h>

#include "kernels/cpu/cpu.h"

int CPU(gather)(const struct gather_args *a, struct k3_stream *s)
{
    (void)s;
    for (int64_t i = 0; i < a->y->rows; i++) {
        if (a->row[i] < 0 || a->row[i] >= a->x->rows) {
            errno = EINVAL;
            return -1;
        }
        memcpy(cpu_row(a->y, i), cpu_row(a->x, a->row[i]), (size_t)a->y->cols * sizeof(float));
    }
    return 0;
}
