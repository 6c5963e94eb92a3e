/* stop.c - where text is cut and held back, against a naive search
 *
 * The first byte is the number of strings, then each has its length before it; the rest is text, fed in pieces of the
 * first byte's high half and fewer. */
#include "text/stop.h"

#include <stdbool.h>
#include <string.h>

#include "fuzz.h"

struct strings {
    const char *s[STOP_STRINGS_MAX];
    size_t len[STOP_STRINGS_MAX], n;
};

static bool ends_with(const char *text, size_t len, const char *s, size_t n)
{
    return n <= len && memcmp(text + len - n, s, n) == 0;
}

/* Most bytes at the end of the text that begin a string, or are one when it must be complete. */
static size_t longest(const struct strings *strings, const char *text, size_t len, bool complete)
{
    size_t most = 0;

    for (size_t i = 0; i < strings->n; i++)
        for (size_t n = complete ? strings->len[i] : 1; n <= strings->len[i]; n++)
            if (n > most && ends_with(text, len, strings->s[i], n))
                most = n;
    return most;
}

/* Where the first string that ends within the text begins; false when there is none. */
static bool search(const struct strings *strings, const char *text, size_t len, uint64_t *begin)
{
    for (size_t end = 1; end <= len; end++) {
        size_t n = longest(strings, text, end, true);
        *begin = end - n;
        if (n > 0)
            return true;
    }
    return false;
}

static void feed(struct stop *s, const struct strings *strings, const char *text, size_t len, size_t most)
{
    uint64_t release = 0, shown = 0, want;

    for (size_t at = 0, n; at < len; at += n) {
        n = at % most + 1 < len - at ? at % most + 1 : len - at;
        bool found = stop_feed(s, text + at, n, &release);
        require(search(strings, text, at + n, &want) == found, "found: %d after %zu bytes", found, at + n);
        if (!found)
            want = at + n - longest(strings, text, at + n, false);
        require(release == want, "released %llu, not %llu of %zu bytes", (unsigned long long)release,
                (unsigned long long)want, at + n);
        require(release >= shown, "took back what was released");
        shown = release;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input in = {data, size};
    struct k3_error err = {""};
    struct strings strings = {.n = 0};
    uint8_t first = fuzz_byte(&in);

    for (; strings.n < (first & 15u); strings.n++) {
        strings.len[strings.n] = fuzz_byte(&in);
        strings.s[strings.n] = fuzz_take(&in, &strings.len[strings.n]);
    }
    struct stop *s = stop_create(strings.s, strings.len, strings.n, &err);
    if (s)
        feed(s, &strings, (const char *)in.at, in.left < 512 ? in.left : 512, (first >> 4) + 1u);
    else
        fuzz_require_sentence(&err);
    stop_destroy(s);
    return 0;
}
