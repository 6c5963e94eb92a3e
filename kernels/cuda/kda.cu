#include "kernels/cuda/cuda.h"

extern "C" int cuda_kda(const struct kda_args *a, struct k3_stream *s)
{
    (void)a, (void)s;
    errno = EINVAL;
    return -1;
}

extern "C" int cuda_kda_block(const struct kda_block_args *a, struct k3_stream *s)
{
    if (cuda_conv(&a->q, s) < 0 || cuda_conv(&a->k, s) < 0 || cuda_conv(&a->v, s) < 0 || cuda_kda_gate(&a->gate, s) < 0)
        return -1;
    return cuda_kda(&a->delta, s) < 0 ? -1 : cuda_gated_norm(&a->norm, s);
}
