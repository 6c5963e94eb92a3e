/* arena_commit.c - an arena gets its memory */
#include <errno.h>

#include "gpu/arena_private.h"

int arena_commit(struct arena *a, struct k3_stream *s, struct k3_error *err)
{
    uint64_t size = a->used ? a->used : ARENA_ALIGN;

    errno = ENOMEM;
    void *base = size <= SIZE_MAX / 2 ? kern_alloc(s, size) : NULL;
    if (!base)
        return k3_errorf(err, "no memory for %llu bytes: %s", (unsigned long long)size, kern_stream_error(s));
    a->stream = s;
    a->release = kern_free;
    a->base = base;
    a->size = size;
    a->used = 0;
    return 0;
}
