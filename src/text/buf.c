#include "text/buf.h"

#include <stdlib.h>
#include <string.h>

#include "common/alloc.h"

char *buf_room(struct buf *b, size_t more)
{
    size_t cap = b->cap ? b->cap : 64;

    while (cap - b->n < more)
        cap *= 2;
    if (cap != b->cap)
        b->s = k3_reallocarray(b->s, cap, 1);
    b->cap = cap;
    return b->s + b->n;
}

void buf_add(struct buf *b, const char *s, size_t n)
{
    if (n == 0)
        return;
    memcpy(buf_room(b, n), s, n);
    b->n += n;
}

void buf_adds(struct buf *b, const char *s)
{
    buf_add(b, s, strlen(s));
}

void buf_addc(struct buf *b, char c)
{
    buf_add(b, &c, 1);
}

void buf_free(struct buf *b)
{
    free(b->s);
    *b = (struct buf){0};
}
