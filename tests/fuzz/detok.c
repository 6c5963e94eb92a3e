/* detok.c - text from bytes that come in pieces, against Python's bytes.decode(errors="replace") written plainly */
#include <stdbool.h>
#include <string.h>

#include "fuzz.h"
#include "text/buf.h"
#include "text/detok.h"

/* Do these n bytes begin a well-formed sequence, or are they one?  A lead byte tells the length; what the bytes leave
 * open is a range of points, and one of them must be allowed at that length. */
static bool begins_character(const uint8_t *s, size_t n, size_t *length)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000}, most[] = {0, 0x7f, 0x7ff, 0xffff, 0x10ffff};

    *length = s[0] < 0x80 ? 1 : (s[0] >> 5) == 0x6 ? 2 : (s[0] >> 4) == 0xe ? 3 : (s[0] >> 3) == 0x1e ? 4 : 0;
    if (*length == 0 || n > *length)
        return false;
    uint32_t low = *length == 1 ? s[0] : s[0] & (0x7fu >> *length);
    for (size_t i = 1; i < n; i++) {
        if ((s[i] & 0xc0) != 0x80)
            return false;
        low = low << 6 | (s[i] & 0x3f);
    }
    unsigned int open = 6 * (unsigned int)(*length - n);
    low <<= open;
    uint32_t high = low | ((1u << open) - 1);
    if (low < least[*length])
        low = least[*length];
    if (high > most[*length])
        high = most[*length];
    bool surrogates_only = low >= 0xd800 && high <= 0xdfff;
    return low <= high && !surrogates_only;
}

static void decode_plainly(const uint8_t *s, size_t n, struct buf *out)
{
    for (size_t at = 0, taken; at < n; at += taken) {
        size_t length = 0;
        for (taken = 1; at + taken < n && begins_character(s + at, taken + 1, &length);)
            taken++;
        if (begins_character(s + at, taken, &length) && taken == length)
            buf_add(out, (const char *)s + at, taken);
        else
            buf_adds(out, "\xef\xbf\xbd");
    }
}

static void require_same(const struct buf *got, const struct buf *want, const char *how)
{
    require(got->n == want->n && (got->n == 0 || memcmp(got->s, want->s, got->n) == 0), "%s: another text", how);
}

/* The first byte says how the rest is cut: into pieces of this many bytes and fewer. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input in = {data, size};
    struct buf want = {0}, whole = {0}, pieces = {0};
    struct detok d = {0};
    size_t most = fuzz_byte(&in) % 8 + 1;

    decode_plainly(in.at, in.left, &want);
    detok_feed(&d, (const char *)in.at, in.left, &whole);
    detok_flush(&d, &whole);
    require_same(&whole, &want, "whole");
    for (size_t next = most; in.left > 0; next = next > 1 ? next - 1 : most) {
        size_t n = next, before = pieces.n;
        const char *piece = fuzz_take(&in, &n);
        detok_feed(&d, piece, n, &pieces);
        require(pieces.n - before <= 3 * (n + 3), "%zu bytes out of %zu", pieces.n - before, n);
    }
    detok_flush(&d, &pieces);
    require_same(&pieces, &want, "in pieces");
    buf_free(&want);
    buf_free(&whole);
    buf_free(&pieces);
    return 0;
}
