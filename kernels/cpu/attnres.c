/* attnres.c - the mixture of the block snapshots and the running residual (SPEC 4.3, "mix")
 *
 * A row is read twice, for its scores and for the mixture; sums are fp32 on lanes, the candidates are added in their
 * order. */
#include <math.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/fmath.h"

/* v . (norm * proj) and v . v over 2 LANES columns at a time; what is left of a row, as zeros, joins the last. */
static float score(const struct attnres_args *a, const float *v)
{
    int64_t n = a->p->cols, d = 0;
    vec dot[2] = {vec_set(0), vec_set(0)}, square[2] = {vec_set(0), vec_set(0)};
    for (; d + 2 * LANES <= n; d += 2 * LANES) {
        UNROLL
        for (int j = 0; j < 2; j++) {
            int64_t at = d + j * LANES;
            vec x = vec_load(v + at);
            dot[j] = vec_fma(x, cpu_weights(a->norm, at, LANES) * cpu_weights(a->proj, at, LANES), dot[j]);
            square[j] = vec_fma(x, x, square[j]);
        }
    }
    for (; d < n; d += LANES) {
        int64_t left = n - d < LANES ? n - d : LANES;
        vec x = vec_load_n(v + d, left);
        dot[0] = vec_fma(x, cpu_weights(a->norm, d, left) * cpu_weights(a->proj, d, left), dot[0]);
        square[0] = vec_fma(x, x, square[0]);
    }
    return vec_sum(dot[0] + dot[1]) / sqrtf(vec_sum(square[0] + square[1]) / (float)n + a->eps);
}

/* w[0 ... m] becomes its softmax. */
static void softmax(float *w, int m)
{
    float max = w[0], sum = 0;
    for (int i = 1; i <= m; i++)
        max = w[i] > max ? w[i] : max;
    for (int i = 0; i <= m; i++)
        sum += w[i] = vec_exp(vec_set(w[i] - max))[0];
    for (int i = 0; i <= m; i++)
        w[i] /= sum;
}

/* y = sum_i w[i] v[i], i = 0 ... m. */
static void mix(const float *const *v, const float *w, int m, int64_t n, float *y)
{
    int64_t d = 0;
    for (; d + 2 * LANES <= n; d += 2 * LANES) {
        vec sum[2] = {vec_set(0), vec_set(0)};
        for (int i = 0; i <= m; i++) {
            sum[0] = vec_fma(vec_set(w[i]), vec_load(v[i] + d), sum[0]);
            sum[1] = vec_fma(vec_set(w[i]), vec_load(v[i] + d + LANES), sum[1]);
        }
        vec_store(y + d, sum[0]);
        vec_store(y + d + LANES, sum[1]);
    }
    for (; d < n; d += LANES) {
        int64_t left = n - d < LANES ? n - d : LANES;
        vec sum = vec_set(0);
        for (int i = 0; i <= m; i++)
            sum = vec_fma(vec_set(w[i]), vec_load_n(v[i] + d, left), sum);
        vec_store_n(y + d, sum, left);
    }
}

static void rows(struct cpu_worker *worker, const void *arg)
{
    const struct attnres_args *a = arg;
    int64_t begin, end, n = a->p->cols;
    int m = a->snapshots;
    cpu_share(worker, a->p->rows, 1, &begin, &end);
    for (int64_t t = begin; t < end; t++) {
        const float *v[K3_MAX_SNAPSHOTS + 1];
        float w[K3_MAX_SNAPSHOTS + 1];
        for (int i = 0; i <= m; i++) {
            v[i] = cpu_row(i < m ? &a->snapshot[i] : a->p, t);
            w[i] = m > 0 ? score(a, v[i]) : 0;
        }
        softmax(w, m);
        mix(v, w, m, n, cpu_row(a->y, t));
    }
}

int CPU(attnres)(const struct attnres_args *a, struct k3_stream *s)
{
    if (a->branch != NULL)
        CPU(add)(&(struct add_args){a->branch, a->p}, s);
    CPU(run)(s, 1 + a->p->rows * a->p->cols * a->snapshots / 16384, rows, a);
    return a->out ? CPU(rmsnorm)(&(struct rmsnorm_args){a->y, a->out, a->y, a->eps}, s) : 0;
}
