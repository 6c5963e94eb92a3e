/* sigmoid_gate.c - y = o sigmoid(gate) (SPEC 4.5 step 5) */
#include "kernels/ref/ref.h"

int ref_sigmoid_gate(const struct sigmoid_gate_args *a, struct k3_stream *s)
{
    (void)s;
    for (int64_t t = 0; t < a->y->rows; t++)
        for (int64_t d = 0; d < a->y->cols; d++)
            ref_put(a->y, t, d, ref_get(a->o, t, d) * ref_sigmoid(ref_get(a->gate, t, d)));
    return 0;
}
