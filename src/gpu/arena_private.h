/* arena_private.h - an arena from within: counting needs no backend, placing does */
#ifndef K3_GPU_ARENA_PRIVATE_H
#define K3_GPU_ARENA_PRIVATE_H

#include "gpu/arena.h"

struct arena {
    struct k3_stream *stream;
    void (*release)(struct k3_stream *s, void *p, size_t bytes);
    char *base;          /* NULL while counting */
    uint64_t used, size; /* size is known at commit */
    struct arena_row part[ARENA_PARTS];
    int parts, current;
};

#endif
