/* tokens.h - a growing list of token ids
 *
 * Start from a zeroed struct (struct tokens t = {0}), end with tokens_free().  Growth uses k3_reallocarray(): whoever
 * pushes bounds how much, and everything in src/text does so by its limit on bytes of text. */
#ifndef K3_TEXT_TOKENS_H
#define K3_TEXT_TOKENS_H

#include <stddef.h>
#include <stdint.h>

struct tokens {
    int32_t *id;
    size_t n, cap;
};

void tokens_push(struct tokens *t, int32_t id);
/* Copies n ids; they may not lie in t itself. */
void tokens_append(struct tokens *t, const int32_t *id, size_t n);
/* Forget the ids, keep the memory. */
void tokens_clear(struct tokens *t);
/* Release the memory; t is an empty list again. */
void tokens_free(struct tokens *t);

#endif
