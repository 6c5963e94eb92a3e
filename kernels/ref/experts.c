/* experts.c - y[t] = sum_j weight[t,j] w2_e SiTU(w1_e z[t], w3_e z[t]), e = id[t,j] (SPEC 4.6 steps 5 and 6) */
#include <errno.h>

#include "kernels/ref/ref.h"

/* The e-th of those that are held. */
static struct k3_tensor expert(const struct kern_expert_matrix *m, int e)
{
    struct k3_tensor w = m->first;
    w.data = (uint8_t *)w.data + e * m->data_step;
    if (w.scale != NULL)
        w.scale = (uint8_t *)w.scale + e * m->scale_step;
    return w;
}

static double dot(const struct k3_tensor *w, int64_t o, const struct k3_tensor *x, int64_t t)
{
    double sum = 0;
    for (int64_t i = 0; i < w->cols; i++)
        sum += ref_get(w, o, i) * ref_get(x, t, i);
    return sum;
}

int ref_experts(const struct experts_args *a, struct k3_stream *s)
{
    int64_t width = a->z->cols, inner = a->w1->first.rows;
    double *h = ref_scratch(s, (size_t)(inner + width)), *y = h + inner;
    if (h == NULL)
        return -1;
    for (int64_t t = 0; t < a->z->rows; t++) {
        for (int64_t l = 0; l < width; l++)
            y[l] = 0;
        for (int j = 0; j < a->topk; j++) {
            int id = a->id[t * a->topk + j], e = id - a->first;
            if (id < 0 || id >= a->experts) {
                errno = EINVAL;
                return -1;
            }
            if (e < 0 || e >= a->held)
                continue;
            struct k3_tensor w1 = expert(a->w1, e), w3 = expert(a->w3, e), w2 = expert(a->w2, e);
            for (int64_t i = 0; i < inner; i++)
                h[i] = ref_situ_of(dot(&w1, i, a->z, t), dot(&w3, i, a->z, t), a->beta, a->linear_beta);
            for (int64_t l = 0; l < width; l++) {
                double u = 0;
                for (int64_t i = 0; i < inner; i++)
                    u += ref_get(&w2, l, i) * h[i];
                y[l] += a->weight[t * a->topk + j] * u;
            }
        }
        for (int64_t l = 0; l < width; l++)
            ref_put(a->y, t, l, y[l]);
    }
    return 0;
}
