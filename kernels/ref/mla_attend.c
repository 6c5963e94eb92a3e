/* mla_attend.c - attention over the latents, keys and values absorbed (SPEC 6)
 *
 *   qa = UK^T qn;  score_s = scale (qa . c_s + qp . kp_s);  p = softmax(score);  cbar = sum_s p_s c_s;  o = UV cbar */
#include <math.h>

#include "kernels/ref/ref.h"

static void head(const struct mla_attend_args *a, int i, int64_t t, int h, double *p)
{
    int64_t positions = a->batch->pos[i] + t - a->batch->begin[i] + 1;
    int64_t uk = (int64_t)h * (K3_NOPE_DIM + K3_V_DIM), uv = uk + K3_NOPE_DIM;
    double qa[K3_CACHE_DIM], cbar[K3_LATENT_DIM] = {0}, max = -INFINITY, sum = 0;

    for (int d = 0; d < K3_CACHE_DIM; d++) {
        qa[d] = d < K3_LATENT_DIM ? 0 : ref_get(a->q, t, h * K3_QK_DIM + K3_NOPE_DIM + d - K3_LATENT_DIM);
        for (int n = 0; d < K3_LATENT_DIM && n < K3_NOPE_DIM; n++)
            qa[d] += ref_get(a->kv_b, uk + n, d) * ref_get(a->q, t, h * K3_QK_DIM + n);
    }
    for (int64_t pos = 0; pos < positions; pos++) {
        const float *c = ref_latent(a->cache, a->batch, i, pos);
        p[pos] = 0;
        for (int d = 0; d < K3_CACHE_DIM; d++)
            p[pos] += a->scale * qa[d] * c[d];
        max = fmax(max, p[pos]);
    }
    for (int64_t pos = 0; pos < positions; pos++)
        sum += p[pos] = exp(p[pos] - max);
    for (int64_t pos = 0; pos < positions; pos++) {
        const float *c = ref_latent(a->cache, a->batch, i, pos);
        for (int d = 0; d < K3_LATENT_DIM; d++)
            cbar[d] += p[pos] / sum * c[d];
    }
    for (int v = 0; v < K3_V_DIM; v++) {
        double o = 0;
        for (int d = 0; d < K3_LATENT_DIM; d++)
            o += ref_get(a->kv_b, uv + v, d) * cbar[d];
        ref_put(a->o, t, h * K3_V_DIM + v, o);
    }
}

int ref_mla_attend(const struct mla_attend_args *a, struct k3_stream *s)
{
    const struct kern_batch *b = a->batch;
    for (int i = 0; i < b->seqs; i++) {
        double *p = ref_scratch(s, (size_t)(b->pos[i] + b->begin[i + 1] - b->begin[i]));
        if (p == NULL)
            return -1;
        for (int64_t t = b->begin[i]; t < b->begin[i + 1]; t++)
            for (int h = 0; h < a->heads; h++)
                head(a, i, t, h, p);
    }
    return 0;
}
