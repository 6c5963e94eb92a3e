/* ref.h - the reference backend: what every operation's plain twin shares
 *
 * One thread, one element at a time, sums in fp64: written to be compared with SPEC's formulas by eye.  The only memory
 * it owns is a scratch of doubles that grows to the largest size asked for. */
#ifndef K3_KERNELS_REF_H
#define K3_KERNELS_REF_H

#include "kernels/backend.h"

#define X(op) int ref_##op(const struct op##_args *a, struct k3_stream *s);
KERN_OPERATIONS(X)
#undef X

/* n doubles, good until the next call; NULL with errno ENOMEM. */
double *ref_scratch(struct k3_stream *s, size_t n);

/* Element [r, c] of a tensor of any dtype that holds weights or activations. */
double ref_get(const struct k3_tensor *t, int64_t r, int64_t c);

/* Set element [r, c] of an F32 tensor. */
void ref_put(const struct k3_tensor *t, int64_t r, int64_t c, double v);

double ref_sigmoid(double x);
double ref_situ_of(double gate, double up, double beta, double linear_beta);

/* The 576 cached values of sequence i's token at position pos. */
float *ref_latent(const struct kern_latents *cache, const struct kern_batch *b, int i, int64_t pos);

#endif
