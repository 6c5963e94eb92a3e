#include "text/tokens.h"

#include <stdlib.h>
#include <string.h>

#include "common/alloc.h"

static void make_room(struct tokens *t, size_t more)
{
    size_t cap = t->cap ? t->cap : 64;

    while (cap - t->n < more)
        cap *= 2;
    if (cap != t->cap)
        t->id = k3_reallocarray(t->id, cap, sizeof *t->id);
    t->cap = cap;
}

void tokens_push(struct tokens *t, int32_t id)
{
    make_room(t, 1);
    t->id[t->n++] = id;
}

void tokens_append(struct tokens *t, const int32_t *id, size_t n)
{
    if (n == 0)
        return;
    make_room(t, n);
    memcpy(t->id + t->n, id, n * sizeof *id);
    t->n += n;
}

void tokens_clear(struct tokens *t)
{
    t->n = 0;
}

void tokens_free(struct tokens *t)
{
    free(t->id);
    *t = (struct tokens){0};
}
