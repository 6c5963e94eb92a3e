/* add.c - y += x */
#include "kernels/ref/ref.h"

int ref_add(const struct add_args *a, struct k3_stream *s)
{
    (void)s;
    for (int64_t t = 0; t < a->y->rows; t++)
        for (int64_t d = 0; d < a->y->cols; d++)
            ref_put(a->y, t, d, ref_get(a->y, t, d) + ref_get(a->x, t, d));
    return 0;
}
