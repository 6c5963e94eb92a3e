/* synthetic.h - weights out of nothing but a config, the same bytes everywhere
 *
 * For a tensor whose name hashes (FNV-1a 64) to h, z(i) is output i of splitmix64 seeded with h, and
 * r(i) = 2 * ((z(i) >> 40) / 2^24) - 1, uniform in [-1, 1).  Element i of the row-major tensor, computed in fp64, is
 *
 *   linear weight [out, in]      r * sqrt(3 / in)          norm weight                1 + r / 8
 *   ... that ends a branch       r * sqrt(3 / in) / 4      A_log                      r / 2, past the heads 0
 *   residual-mixing projection   r * sqrt(3 / in) / 2      dt_bias                    r - 3
 *   conv weight [C, 1, K]        r * sqrt(3 / K)           e_score_correction_bias    r / 8
 *   embedding                    r * sqrt(3)               MXFP4 packed byte          z >> 56
 *   MXFP4 scale byte             127 - e + (z % 3 - 1), e the least integer with 4^e >= 9 in
 *
 * rounded to fp32 and, for BF16, from there to BF16, to nearest even each time. */
#ifndef K3_MODEL_SYNTHETIC_H
#define K3_MODEL_SYNTHETIC_H

#include "common/error.h"
#include "model/inventory.h"

/* Write a whole checkpoint's model.safetensors (no other file) to path; nothing is left there on failure. */
int synthetic_write(const struct k3_config *c, const char *path, struct k3_error *err);

/* Elements [first, first + count) of one tensor into out, as the file stores them. */
void synthetic_fill(const struct k3_config *c, const struct tensor_desc *t, uint64_t first, size_t count, void *out);

#endif
