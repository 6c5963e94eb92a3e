#include "kernels/cpu/attend.h"

#include <math.h>

#include "kernels/cpu/fmath.h"
#include "kernels/cpu/matmul.h"

enum { TILE = DOT_ROWS };

static void score(const struct attend_form *f, const struct attend_query *q, int n, int count, const float *const *key,
                  float p[][ATTEND_BLOCK])
{
    for (int j = 0; j < n; j += TILE) {
        int rows = n - j < TILE ? n - j : TILE;
        const float *qs[TILE];
        for (int r = 0; r < rows; r++)
            qs[r] = q[j + r].q;
        for (int pos = 0; pos < count; pos += DOT_OUTS)
            CPU(dot)
        (rows, count - pos < DOT_OUTS ? count - pos : DOT_OUTS, f->key, qs, key + pos, &p[j][pos], ATTEND_BLOCK);
    }
}

/* The first `seen` scores of a query become weights relative to its running maximum, the others 0. */
static void weigh(const struct attend_form *f, struct attend_query *q, int seen, float *p)
{
    float max = q->max, factor;
    vec sum = vec_set(0);
    for (int i = 0; i < ATTEND_BLOCK; i++) {
        p[i] = i < seen ? p[i] * f->scale : -INFINITY;
        max = p[i] > max ? p[i] : max;
    }
    for (int i = 0; i < ATTEND_BLOCK; i += LANES) {
        vec e = vec_exp(vec_load(p + i) - vec_set(max));
        vec_store(p + i, e);
        sum += e;
    }
    factor = vec_exp(vec_set(q->max - max))[0];
    q->sum = q->sum * factor + vec_sum(sum);
    q->max = max;
    for (int d = 0; d < f->value; d += LANES)
        vec_store(q->acc + d, vec_load(q->acc + d) * vec_set(factor));
}

/* acc[r] += sum_pos p[r][pos] value[pos] for positions [begin, end) and 2 LANES columns, d from the key's start. */
SIMD_INLINE void mix_tile(const int R, const struct attend_query *q, float p[][ATTEND_BLOCK], int begin, int end,
                          const float *const *key, int value_at, int d)
{
    vec acc[TILE][2];
    UNROLL
    for (int r = 0; r < R; r++) {
        UNROLL
        for (int j = 0; j < 2; j++)
            acc[r][j] = vec_load(q[r].acc + d + j * LANES);
    }
    for (int pos = begin; pos < end; pos++) {
        const float *value = key[pos] + value_at + d;
        vec v0 = vec_load(value), v1 = vec_load(value + LANES);
        UNROLL
        for (int r = 0; r < R; r++) {
            vec w = vec_set(p[r][pos]);
            acc[r][0] = vec_fma(w, v0, acc[r][0]);
            acc[r][1] = vec_fma(w, v1, acc[r][1]);
        }
    }
    UNROLL
    for (int r = 0; r < R; r++) {
        UNROLL
        for (int j = 0; j < 2; j++)
            vec_store(q[r].acc + d + j * LANES, acc[r][j]);
    }
}

static void mix(const struct attend_form *f, const struct attend_query *q, int n, const int *seen,
                const float *const *key, float p[][ATTEND_BLOCK])
{
    for (int j = 0; j < n; j += TILE) {
        int rows = n - j < TILE ? n - j : TILE, all = rows == TILE ? seen[j] : 0;
        for (int r = 0; r < rows; r++)
            all = seen[j + r] < all ? seen[j + r] : all;
        for (int d = 0; d < f->value; d += 2 * LANES) {
            if (all > 0)
                mix_tile(TILE, q + j, p + j, 0, all, key, f->value_at, d);
            for (int r = 0; r < rows; r++)
                if (seen[j + r] > all)
                    mix_tile(1, q + j + r, p + j + r, all, seen[j + r], key, f->value_at, d);
        }
    }
}

void CPU(attend_block)(const struct attend_form *f, struct attend_query *q, int n, int64_t pos, int count,
                       const float *const *key, float p[][ATTEND_BLOCK])
{
    int seen[ATTEND_QUERIES];
    score(f, q, n, count, key, p);
    for (int j = 0; j < n; j++) {
        int64_t rest = q[j].positions - pos;
        seen[j] = rest < 0 ? 0 : rest < count ? (int)rest : count;
        if (seen[j] > 0)
            weigh(f, &q[j], seen[j], p[j]);
    }
    mix(f, q, n, seen, key, p);
}

void CPU(attend_end)(const struct attend_form *f, const struct attend_query *q, int n)
{
    for (int j = 0; j < n; j++)
        for (int d = 0; d < f->value; d += LANES)
            vec_store(q[j].acc + d, vec_load(q[j].acc + d) / vec_set(q[j].sum));
}
