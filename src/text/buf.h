/* buf.h - bytes that grow at the end
 *
 * Start from a zeroed struct, end with buf_free().  Growth uses k3_reallocarray(): whoever appends bounds how much. */
#ifndef K3_TEXT_BUF_H
#define K3_TEXT_BUF_H

#include <stddef.h>

struct buf {
    char *s; /* n bytes, not terminated; NULL while nothing was added */
    size_t n, cap;
};

/* Room for `more` bytes past the end, which the caller fills and counts in n. */
char *buf_room(struct buf *b, size_t more);
void buf_add(struct buf *b, const char *s, size_t n);
void buf_adds(struct buf *b, const char *s);
void buf_addc(struct buf *b, char c);
void buf_free(struct buf *b);

#endif
