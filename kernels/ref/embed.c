/* embed.c - y[t] = table[token[t] - first], zeros outside the shard */
#include "kernels/ref/ref.h"

int ref_embed(const struct embed_args *a, struct k3_stream *s)
{
    (void)s;
    for (int64_t t = 0; t < a->y->rows; t++) {
        int64_t row = (int64_t)a->token[t] - a->first;
        int here = row >= 0 && row < a->table->rows;
        for (int64_t d = 0; d < a->y->cols; d++)
            ref_put(a->y, t, d, here ? ref_get(a->table, row, d) : 0);
    }
    return 0;
}
