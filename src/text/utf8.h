/* utf8.h - one character at a time out of bytes that may be ill-formed
 *
 * Ill-formed input is consumed by maximal subparts (Unicode 15.0, section 3.9, "U+FFFD Substitution of Maximal
 * Subparts"), as Python's bytes.decode(errors="replace") does. */
#ifndef K3_TEXT_UTF8_H
#define K3_TEXT_UTF8_H

#include <stddef.h>
#include <stdint.h>

#define UTF8_REPLACEMENT 0xfffd
#define UTF8_REPLACEMENT_BYTES "\xef\xbf\xbd"

enum utf8_kind {
    UTF8_CHAR,  /* a character */
    UTF8_BAD,   /* an ill-formed sequence; point is U+FFFD */
    UTF8_SHORT, /* the text ends inside what may become a character; point is U+FFFD */
};

struct utf8 {
    uint32_t point;
    uint8_t bytes; /* how many this consumes, at least 1 */
    enum utf8_kind kind;
};

/* Read the sequence at s, of which len > 0 bytes are there. */
struct utf8 utf8_read(const char *s, size_t len);

#endif
