/* unicode.h - what the pre-tokenizer asks of a code point, from Unicode 15.0 (SPEC 7.2)
 *
 * The table behind it is generated: contrib/unicode/mktable writes unicode_table.c. */
#ifndef K3_TEXT_UNICODE_H
#define K3_TEXT_UNICODE_H

#include <stdbool.h>
#include <stdint.h>

enum unicode_class {
    UNICODE_UPPER = 1,  /* Lu, Lt, Lm, Lo or M, and not Han */
    UNICODE_LOWER = 2,  /* Ll, Lm, Lo or M, and not Han */
    UNICODE_LETTER = 4, /* L, Han or not */
    UNICODE_NUMBER = 8, /* N */
    UNICODE_SPACE = 16, /* White_Space */
    UNICODE_HAN = 32,   /* Script=Han (not Script_Extensions) */
};

#define UNICODE_BLOCK 128
extern const uint32_t unicode_table_end; /* code points from here on have no class */
extern const uint8_t unicode_index[];
extern const uint8_t unicode_blocks[][UNICODE_BLOCK];

/* The enum unicode_class bits of a code point; 0 for one without any. */
static inline unsigned unicode_class(uint32_t point)
{
    if (point >= unicode_table_end)
        return 0;
    return unicode_blocks[unicode_index[point / UNICODE_BLOCK]][point % UNICODE_BLOCK];
}

/* Python's str.isspace(): White_Space and the four ASCII separators.  The reference encoder strips and cuts by it. */
static inline bool unicode_python_space(uint32_t point)
{
    return (point >= 0x1c && point <= 0x1f) || (unicode_class(point) & UNICODE_SPACE);
}

#endif
