/* embed.c - y[t] = table[token[t] - first], zeros outside the shard */
#include "kernels/cpu/cpu.h"

int CPU(embed)(const struct embed_args *a, struct k3_stream *s)
{
    (void)s;
    for (int64_t t = 0; t < a->y->rows; t++) {
        int64_t row = (int64_t)a->token[t] - a->first;
        float *y = cpu_row(a->y, t);
        if (row < 0 || row >= a->table->rows) {
            memset(y, 0, (size_t)a->y->cols * sizeof *y);
            continue;
        }
        const uint16_t *from = (const uint16_t *)a->table->data + row * a->table->stride;
        for (int64_t d = 0; d < a->y->cols; d++)
            y[d] = cpu_bf16(from[d]);
    }
    return 0;
}
