/* bpe.h - byte pair encoding of one piece by ranks (SPEC 7.3)
 *
 * Tokens are found by their bytes alone: the pair of least rank is merged, leftmost on ties, until no pair has one. */
#ifndef K3_TEXT_BPE_H
#define K3_TEXT_BPE_H

#include <stddef.h>
#include <stdint.h>

#include "text/tokens.h"

/* Byte strings to ranks. */
struct bpe;

/* An empty table with room for n tokens.  The bytes given to bpe_add() are borrowed until bpe_destroy(). */
struct bpe *bpe_create(size_t n);
void bpe_destroy(struct bpe *b);

/* Give the bytes the next rank, counted from 0.  Returns that rank, or -1 - r where rank r has the same bytes already.
 */
int32_t bpe_add(struct bpe *b, const char *bytes, size_t len);
/* The rank of the bytes, or -1. */
int32_t bpe_rank(const struct bpe *b, const char *bytes, size_t len);

/* Working memory of bpe_encode(), kept from piece to piece; start from a zeroed struct. */
struct bpe_scratch {
    void *parts, *heap;
    size_t parts_cap, heap_cap;
};
void bpe_scratch_free(struct bpe_scratch *s);

/* Append the ids of a piece of 0 < len < 2^31 bytes to out.  All 256 single bytes must have ranks. */
void bpe_encode(const struct bpe *b, const char *piece, size_t len, struct bpe_scratch *s, struct tokens *out);

#endif
