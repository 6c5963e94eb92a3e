/* mla_append.c - a token's normalised latents and raw shared key go into its page (SPEC 4.5 step 2, 6) */
#include <math.h>

#include "kernels/ref/ref.h"

int ref_mla_append(const struct mla_append_args *a, struct k3_stream *s)
{
    const struct kern_batch *b = a->batch;
    (void)s;
    for (int i = 0; i < b->seqs; i++)
        for (int64_t t = b->begin[i]; t < b->begin[i + 1]; t++) {
            float *c = ref_latent(a->cache, b, i, b->pos[i] + t - b->begin[i]);
            double sum = 0;
            for (int d = 0; d < K3_LATENT_DIM; d++)
                sum += ref_get(a->kv, t, d) * ref_get(a->kv, t, d);
            double r = 1 / sqrt(sum / K3_LATENT_DIM + a->eps);
            for (int d = 0; d < K3_CACHE_DIM; d++)
                c[d] = (float)(ref_get(a->kv, t, d) * (d < K3_LATENT_DIM ? r * ref_get(a->w, 0, d) : 1));
        }
    return 0;
}
