/* detok.h - bytes of tokens in, whole UTF-8 characters out
 *
 * Tokens split characters.  The incomplete tail, at most three bytes, waits for the next token; each ill-formed
 * sequence becomes one U+FFFD (utf8.h).  However a stream is cut into tokens, the text is the same. */
#ifndef K3_TEXT_DETOK_H
#define K3_TEXT_DETOK_H

#include <stddef.h>

#include "text/buf.h"

/* Caller-owned; start from a zeroed struct.  The fields belong to detok.c. */
struct detok {
    char held[3];
    unsigned char n;
};

/* Append to out what len more bytes complete: at most 3 * (len + 3) bytes. */
void detok_feed(struct detok *d, const char *bytes, size_t len, struct buf *out);
/* The stream ended: a tail that still waits becomes U+FFFD. */
void detok_flush(struct detok *d, struct buf *out);

#endif
