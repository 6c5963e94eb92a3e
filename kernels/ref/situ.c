/* situ.c - y = SiTU(gate, up) (SPEC 4.1) */
#include "kernels/ref/ref.h"

int ref_situ(const struct situ_args *a, struct k3_stream *s)
{
    (void)s;
    for (int64_t t = 0; t < a->y->rows; t++)
        for (int64_t d = 0; d < a->y->cols; d++)
            ref_put(a->y, t, d, ref_situ_of(ref_get(a->gate, t, d), ref_get(a->up, t, d), a->beta, a->linear_beta));
    return 0;
}
