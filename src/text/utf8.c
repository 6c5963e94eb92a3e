#include "text/utf8.h"

/* What a lead byte demands (Unicode 15.0, table 3-7): the sequence's length, and the range of its second byte, which is
 * where overlong forms, surrogates and points beyond U+10FFFF are told apart. */
struct lead {
    uint8_t bytes, low, high;
};

static struct lead lead_of(uint8_t c)
{
    if (c < 0x80)
        return (struct lead){1, 0, 0};
    if (c < 0xc2 || c > 0xf4)
        return (struct lead){0, 0, 0};
    if (c < 0xe0)
        return (struct lead){2, 0x80, 0xbf};
    if (c < 0xf0)
        return (struct lead){3, c == 0xe0 ? 0xa0 : 0x80, c == 0xed ? 0x9f : 0xbf};
    return (struct lead){4, c == 0xf0 ? 0x90 : 0x80, c == 0xf4 ? 0x8f : 0xbf};
}

struct utf8 utf8_read(const char *text, size_t len)
{
    const uint8_t *s = (const uint8_t *)text;
    struct lead lead = lead_of(s[0]);

    if (lead.bytes == 1)
        return (struct utf8){s[0], 1, UTF8_CHAR};
    if (lead.bytes == 0)
        return (struct utf8){UTF8_REPLACEMENT, 1, UTF8_BAD};
    uint32_t point = s[0] & (0x7f >> lead.bytes);
    for (uint8_t i = 1; i < lead.bytes; i++) {
        if (i == len)
            return (struct utf8){UTF8_REPLACEMENT, i, UTF8_SHORT};
        if (s[i] < (i == 1 ? lead.low : 0x80) || s[i] > (i == 1 ? lead.high : 0xbf))
            return (struct utf8){UTF8_REPLACEMENT, i, UTF8_BAD};
        point = point << 6 | (s[i] & 0x3f);
    }
    return (struct utf8){point, lead.bytes, UTF8_CHAR};
}
