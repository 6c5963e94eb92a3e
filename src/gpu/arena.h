/* arena.h - one block of memory, laid out once, with its budget by part
 *
 * The same function lays an arena out twice: while counting, arena_take() returns NULL and only adds up; after
 * arena_commit() the same calls return the places.  Nothing is given back before arena_destroy().  The block is memory
 * of a stream's backend (kernels.h, kern_alloc): the GPU's, or this process'. */
#ifndef K3_GPU_ARENA_H
#define K3_GPU_ARENA_H

#include <stdint.h>

#include "common/error.h"
#include "kernels/kernels.h"

enum { ARENA_ALIGN = 256, ARENA_PARTS = 8 };

struct arena;

struct arena *arena_create(void);
void arena_destroy(struct arena *a);

/* What is taken from now on counts for this part of the budget.  Borrows name; at most ARENA_PARTS names. */
void arena_part(struct arena *a, const char *name);
/* The next bytes, aligned to ARENA_ALIGN, in a part begun before.  After commit: the same sizes in the same order. */
void *arena_take(struct arena *a, uint64_t bytes);
/* Bytes taken until now: how far behind the block's start the next take lies. */
uint64_t arena_used(const struct arena *a);
/* Borrows s until arena_destroy(). */
int arena_commit(struct arena *a, struct k3_stream *s, struct k3_error *err);

/* Where the block begins. */
void *arena_base(const struct arena *a);

/* Bytes taken for one part; UINT64_MAX when they are beyond counting. */
uint64_t arena_bytes(const struct arena *a, const char *part);

/* Log a memory budget, one line a row and the total, at level info. */
struct arena_row {
    const char *name;
    uint64_t bytes;
};
void arena_log_budget(const struct arena_row *row, int rows);

#endif
