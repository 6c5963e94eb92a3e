/* sigmoid_gate.c - y = o sigmoid(gate) (SPEC 4.5 step 5), fp32 */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/fmath.h"

static void rows(struct cpu_worker *w, const void *arg)
{
    const struct sigmoid_gate_args *a = arg;
    int64_t begin, end, n = a->y->cols;
    cpu_share(w, n, 16, &begin, &end);
    for (int64_t t = 0; t < a->y->rows; t++) {
        const float *o = cpu_row(a->o, t), *gate = cpu_row(a->gate, t);
        float *y = cpu_row(a->y, t);
        int64_t d = begin;
        for (; d + LANES <= end; d += LANES)
            vec_store(y + d, vec_load(o + d) * vec_sigmoid(vec_load(gate + d)));
        if (d < end)
            vec_store_n(y + d, vec_load_n(o + d, end - d) * vec_sigmoid(vec_load_n(gate + d, end - d)), end - d);
    }
}

int CPU(sigmoid_gate)(const struct sigmoid_gate_args *a, struct k3_stream *s)
{
    CPU(run)(s, 1 + a->y->rows * a->y->cols / 8192, rows, a);
    return 0;
}
