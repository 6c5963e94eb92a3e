/* mla_append.c - a token's normalised latents and raw shared key go into its page (SPEC 4.5 step 2, 6), fp32 */
#include "kernels/cpu/norm.h"

int CPU(mla_append)(const struct mla_append_args *a, struct k3_stream *s)
{
    const struct kern_batch *b = a->batch;
    (void)s;
    for (int i = 0; i < b->seqs; i++)
        for (int64_t t = b->begin[i]; t < b->begin[i + 1]; t++) {
            const float *kv = cpu_row(a->kv, t);
            float *c = cpu_latent(a->cache, b, i, b->pos[i] + t - b->begin[i]);
            norm_scale(kv, K3_LATENT_DIM, norm_factor(kv, K3_LATENT_DIM, a->eps), a->w, c);
            memcpy(c + K3_LATENT_DIM, kv + K3_LATENT_DIM, K3_ROPE_DIM * sizeof *c);
        }
    return 0;
}
