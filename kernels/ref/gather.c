/* gather.c - y[i] = x[row[i]] */
#include <errno.h>

#include "kernels/ref/ref.h"

int ref_gather(const struct gather_args *a, struct k3_stream *s)
{
    (void)s;
    for (int64_t i = 0; i < a->y->rows; i++) {
        if (a->row[i] < 0 || a->row[i] >= a->x->rows) {
            errno = EINVAL;
            return -1;
        }
        for (int64_t d = 0; d < a->y->cols; d++)
            ref_put(a->y, i, d, ref_get(a->x, a->row[i], d));
    }
    return 0;
}
