#include "text/pretok.h"

#include "text/unicode.h"
#include "text/utf8.h"

size_t pretok_slice(struct pretok_slices *s, const char *text, size_t len)
{
    size_t at = 0;

    while (at < len) {
        if (s->chars == PRETOK_SLICE_CHARS) {
            *s = (struct pretok_slices){0};
            return at;
        }
        struct utf8 c = utf8_read(text + at, len - at);
        bool white = unicode_python_space(c.point);
        if (s->run > 0 && white != s->run_is_white)
            s->run = 0;
        if (s->run == PRETOK_RUN_CHARS) {
            s->run = 0; /* the character opens the next slice, which counts it again */
            return at;
        }
        s->run_is_white = white;
        s->run++;
        s->chars++;
        at += c.bytes;
    }
    return at;
}

/* A place in the slice and the character there; at the end `class` is 0 and `bytes` is 0. */
struct cursor {
    const char *text;
    size_t len, at;
    uint32_t point;
    unsigned class;
    uint8_t bytes;
};

static void look(struct cursor *c)
{
    if (c->at == c->len) {
        c->point = 0;
        c->class = 0;
        c->bytes = 0;
        return;
    }
    struct utf8 u = utf8_read(c->text + c->at, c->len - c->at);
    c->point = u.point;
    c->class = unicode_class(u.point);
    c->bytes = u.bytes;
}

static void step(struct cursor *c)
{
    c->at += c->bytes;
    look(c);
}

static bool at_end(const struct cursor *c)
{
    return c->bytes == 0;
}

static bool is_line_end(const struct cursor *c)
{
    return !at_end(c) && (c->point == '\r' || c->point == '\n');
}

static void skip_class(struct cursor *c, unsigned class)
{
    while (c->class & class)
        step(c);
}

/* ('s|'t|'re|'ve|'m|'ll|'d)? without regard to case; U+017F, the long s, folds to s. */
static void skip_contraction(struct cursor *c)
{
    static const char *const endings[] = {"s", "t", "re", "ve", "m", "ll", "d"};

    if (at_end(c) || c->point != '\'')
        return;
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        struct cursor try = *c;
        const char *e = endings[i];
        step(&try);
        while (*e && !at_end(&try) &&
               ((try.point < 0x80 && (try.point | 0x20) == (uint32_t)*e) || (*e == 's' && try.point == 0x17f))) {
            step(&try);
            e++;
        }
        if (!*e) {
            *c = try;
            return;
        }
    }
}

/* U*W+ with U the upper and W the lower set, which overlap: greedy U*, then giving characters back until a W follows.
 * That is everything up to the last W of the run of U, and all of W's run when that comes after it. */
static bool skip_upper_lower(struct cursor *c)
{
    struct cursor end = *c, last = *c;
    bool found = false;

    for (; end.class & UNICODE_UPPER; step(&end))
        if (end.class & UNICODE_LOWER) {
            last = end;
            found = true;
        }
    if (end.class & UNICODE_LOWER) {
        skip_class(&end, UNICODE_LOWER);
        *c = end;
        return true;
    }
    if (found) {
        step(&last);
        *c = last;
    }
    return found;
}

/* U+W*, tried when U*W+ failed here: so no W follows. */
static bool skip_upper(struct cursor *c)
{
    if (!(c->class & UNICODE_UPPER))
        return false;
    skip_class(c, UNICODE_UPPER);
    return true;
}

/* The alternatives of a word: each with the optional first character [^\r\n\p{L}\p{N}], then without. */
static bool skip_word(struct cursor *c)
{
    bool prefixed = !at_end(c) && !is_line_end(c) && !(c->class & (UNICODE_LETTER | UNICODE_NUMBER));
    bool (*const bodies[])(struct cursor *) = {skip_upper_lower, skip_upper};

    for (int body = 0; body < 2; body++)
        for (int prefix = prefixed; prefix >= 0; prefix--) {
            struct cursor try = *c;
            if (prefix)
                step(&try);
            if (bodies[body](&try)) {
                skip_contraction(&try);
                *c = try;
                return true;
            }
        }
    return false;
}

/* ` ?[^\s\p{L}\p{N}]+[\r\n]*` */
static bool skip_symbols(struct cursor *c)
{
    const unsigned others = UNICODE_SPACE | UNICODE_LETTER | UNICODE_NUMBER;
    struct cursor try = *c;

    if (try.point == ' ')
        step(&try);
    if (at_end(&try) || (try.class & others))
        return false;
    while (!at_end(&try) && !(try.class & others))
        step(&try);
    while (is_line_end(&try))
        step(&try);
    *c = try;
    return true;
}

/* `\s*[\r\n]+`, then `\s+(?!\S)`, then `\s+`: up to the last line end of the white run if it has one; else all of it at
 * the end of the text or when it is one character; else all but the last, which goes with the next word. */
static void skip_white(struct cursor *c)
{
    const struct cursor start = *c;
    struct cursor last = *c, after_line_end = *c;

    while (c->class & UNICODE_SPACE) {
        last = *c;
        step(c);
        if (is_line_end(&last))
            after_line_end = *c;
    }
    if (after_line_end.at > start.at)
        *c = after_line_end;
    else if (!at_end(c) && last.at > start.at)
        *c = last;
}

size_t pretok_piece(const char *text, size_t len)
{
    struct cursor c = {.text = text, .len = len};

    look(&c);
    if (c.class & UNICODE_HAN) {
        skip_class(&c, UNICODE_HAN);
    } else if (skip_word(&c)) {
        ;
    } else if (c.class & UNICODE_NUMBER) {
        for (int digits = 0; digits < 3 && (c.class & UNICODE_NUMBER); digits++)
            step(&c);
    } else if (!skip_symbols(&c)) {
        skip_white(&c);
    }
    return c.at;
}
