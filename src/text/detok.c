#include "text/detok.h"

#include <string.h>

#include "text/utf8.h"

/* Append the characters at s; returns how many bytes at its end are incomplete. */
static size_t decode(const char *s, size_t len, struct buf *out)
{
    size_t plain = 0;

    for (size_t at = 0; at < len;) {
        struct utf8 c = utf8_read(s + at, len - at);
        if (c.kind != UTF8_CHAR) {
            buf_add(out, s + plain, at - plain);
            if (c.kind == UTF8_SHORT)
                return len - at;
            buf_adds(out, UTF8_REPLACEMENT_BYTES);
            plain = at + c.bytes;
        }
        at += c.bytes;
    }
    buf_add(out, s + plain, len - plain);
    return 0;
}

void detok_feed(struct detok *d, const char *bytes, size_t len, struct buf *out)
{
    /* Complete the tail first, a byte at a time: it ends within the next three, well-formed or not. */
    while (d->n > 0 && len > 0) {
        char text[sizeof d->held + 1];
        size_t n = d->n;
        memcpy(text, d->held, n);
        text[n++] = *bytes;
        d->n = (unsigned char)decode(text, n, out);
        memcpy(d->held, text + n - d->n, d->n);
        bytes++;
        len--;
    }
    if (len == 0)
        return;
    d->n = (unsigned char)decode(bytes, len, out);
    memcpy(d->held, bytes + len - d->n, d->n);
}

void detok_flush(struct detok *d, struct buf *out)
{
    if (d->n > 0)
        buf_adds(out, UTF8_REPLACEMENT_BYTES);
    d->n = 0;
}
