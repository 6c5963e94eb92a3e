#include "wire/id.h"

#include <errno.h>
#include <string.h>

#include <sodium.h>

static int digit_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

void k3_id_random(struct k3_id *id)
{
    randombytes_buf(id->bytes, sizeof id->bytes);
}

char *k3_id_format(const struct k3_id *id, char text[K3_ID_DIGITS + 1])
{
    static const char digits[] = "0123456789abcdef";

    for (int i = 0; i < K3_ID_DIGITS; i++)
        text[i] = digits[id->bytes[i / 2] >> (i % 2 ? 0 : 4) & 15];
    text[K3_ID_DIGITS] = '\0';
    return text;
}

int k3_id_parse(struct k3_id *id, const char *text)
{
    struct k3_id parsed = {{0}};

    if (strlen(text) != K3_ID_DIGITS || !k3_id_is_prefix(text)) {
        errno = EINVAL;
        return -1;
    }
    for (int i = 0; i < K3_ID_DIGITS; i++)
        parsed.bytes[i / 2] = (uint8_t)(parsed.bytes[i / 2] << 4 | digit_value(text[i]));
    *id = parsed;
    return 0;
}

bool k3_id_equal(const struct k3_id *a, const struct k3_id *b)
{
    return memcmp(a->bytes, b->bytes, sizeof a->bytes) == 0;
}

bool k3_id_is_none(const struct k3_id *id)
{
    static const struct k3_id none;
    return k3_id_equal(id, &none);
}

bool k3_id_is_prefix(const char *digits)
{
    size_t n = strlen(digits);

    for (size_t i = 0; i < n; i++)
        if (digit_value(digits[i]) < 0)
            return false;
    return n > 0 && n <= K3_ID_DIGITS;
}

bool k3_id_has_prefix(const struct k3_id *id, const char *digits)
{
    char text[K3_ID_DIGITS + 1];

    return k3_id_is_prefix(digits) && strncasecmp(k3_id_format(id, text), digits, strlen(digits)) == 0;
}
