/* situ.c - y = SiTU(gate, up) (SPEC 4.1), fp32 */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/fmath.h"

static void rows(struct cpu_worker *w, const void *arg)
{
    const struct situ_args *a = arg;
    int64_t begin, end, n = a->y->cols;
    cpu_share(w, n, 16, &begin, &end);
    for (int64_t t = 0; t < a->y->rows; t++) {
        const float *gate = cpu_row(a->gate, t), *up = cpu_row(a->up, t);
        float *y = cpu_row(a->y, t);
        int64_t d = begin;
        for (; d + LANES <= end; d += LANES)
            vec_store(y + d, vec_situ(vec_load(gate + d), vec_load(up + d), a->beta, a->linear_beta));
        if (d < end)
            vec_store_n(y + d,
                        vec_situ(vec_load_n(gate + d, end - d), vec_load_n(up + d, end - d), a->beta, a->linear_beta),
                        end - d);
    }
}

int CPU(situ)(const struct situ_args *a, struct k3_stream *s)
{
    CPU(run)(s, 1 + a->y->rows * a->y->cols / 4096, rows, a);
    return 0;
}
