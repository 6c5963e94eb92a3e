/* random.h - random numbers that depend on a key and a place only, not on how many were drawn before
 *
 * Philox4x32-10 of Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3" (SC 2011).  A
 * sequence's token at position n gets the same number whatever else runs beside it, and again after it moved to another
 * engine. */
#ifndef K3_ENGINE_RANDOM_H
#define K3_ENGINE_RANDOM_H

#include <stdint.h>

void random_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);

/* Uniform in [0, 1), a multiple of 2^-53. */
double random_uniform(uint64_t seed, uint64_t position);

#endif
