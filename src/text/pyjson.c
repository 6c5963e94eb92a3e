#include "text/pyjson.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/alloc.h"
#include "text/unicode.h"
#include "text/utf8.h"

/* Integers of fewer digits fit Jansson's 64 bits. */
#define WIDE_DIGITS 19

/* Bytes of the wide integer literal at s, or 0: -?[1-9][0-9]* of many digits and nothing that would make it a real. */
static size_t wide_integer(const char *s, size_t len)
{
    size_t i = len > 0 && s[0] == '-', first = i;

    while (i < len && isdigit((unsigned char)s[i]))
        i++;
    if (i - first < WIDE_DIGITS || s[first] == '0' || (i < len && strchr(".eE", s[i])))
        return 0;
    return i;
}

/* Copy text for Jansson.  A wide integer becomes the string NUL digits; a string that begins with a NUL gets another in
 * front, so that the two stay apart.  Refuses nesting beyond max_depth; other errors are left to Jansson. */
static int widen(struct buf *out, const char *text, size_t len, int max_depth, struct k3_error *err)
{
    static const char nul[] = "\\u0000";
    bool in_string = false;
    int depth = 0;

    for (size_t i = 0; i < len; i++) {
        const char *s = text + i;
        size_t left = len - i, wide = 0;

        if (in_string && *s == '\\' && left > 1) {
            buf_add(out, s, 2);
            i++;
            continue;
        }
        if (*s == '"') {
            in_string = !in_string;
            buf_addc(out, '"');
            if (in_string && left > strlen(nul) && memcmp(s + 1, nul, strlen(nul)) == 0)
                buf_adds(out, nul);
            continue;
        }
        if (!in_string) {
            if ((*s == '{' || *s == '[') && ++depth > max_depth)
                return k3_errorf(err, "nested more than %d deep", max_depth);
            depth -= *s == '}' || *s == ']';
            if (*s == '-' || isdigit((unsigned char)*s)) {
                wide = wide_integer(s, left);
                size_t end = wide;
                /* Copy the whole number at once: its tail must not be taken for a number of its own. */
                while (end < left && (isalnum((unsigned char)s[end]) || (s[end] && strchr("+-.", s[end]))))
                    end++;
                if (wide && end == wide) {
                    buf_addc(out, '"');
                    buf_adds(out, nul);
                    buf_add(out, s, wide);
                    buf_addc(out, '"');
                } else {
                    buf_add(out, s, end);
                }
                i += end - 1;
                continue;
            }
        }
        buf_addc(out, *s);
    }
    return 0;
}

json_t *pyjson_load(const char *text, size_t len, int max_depth, struct k3_error *err)
{
    struct buf copy = {0};
    json_t *value = NULL;
    json_error_t e;

    if (widen(&copy, text, len, max_depth, err) < 0)
        goto out;
    value = json_loadb(copy.s ? copy.s : "", copy.n, JSON_DECODE_ANY | JSON_ALLOW_NUL, &e);
    if (!value) {
        /* Jansson goes on with "near" and a bit of the text, which may be a prompt: not for sentences that get logged.
         */
        char *near = strstr(e.text, " near ");
        k3_errorf(err, "line %d column %d: %.*s", e.line, e.column, near ? (int)(near - e.text) : -1, e.text);
    }
out:
    buf_free(&copy);
    return value;
}

static bool is_wide_integer(const json_t *value)
{
    const char *s = json_string_value(value);

    return s && json_string_length(value) > 1 && s[0] == '\0' && s[1] != '\0';
}

bool pyjson_string(const json_t *value, const char **s, size_t *n)
{
    if (!json_is_string(value) || is_wide_integer(value))
        return false;
    *s = json_string_value(value);
    *n = json_string_length(value);
    if (*n > 0 && **s == '\0') {
        ++*s;
        --*n;
    }
    return true;
}

const char *pyjson_type(const json_t *value)
{
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        return "object";
    case JSON_ARRAY:
        return "array";
    case JSON_STRING:
        return is_wide_integer(value) ? "number" : "string";
    case JSON_INTEGER:
    case JSON_REAL:
        return "number";
    case JSON_TRUE:
    case JSON_FALSE:
        return "boolean";
    case JSON_NULL:
        break;
    }
    return "null";
}

void pyjson_escape(struct buf *out, const char *s, size_t n)
{
    static const char from[] = "\"\\\b\f\n\r\t", to[] = "\"\\bfnrt";
    size_t plain = 0;

    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)s[i];
        const char *special = c ? strchr(from, c) : NULL;
        if (c >= 0x20 && !special)
            continue;
        buf_add(out, s + plain, i - plain);
        plain = i + 1;
        if (special) {
            buf_addc(out, '\\');
            buf_addc(out, to[special - from]);
        } else {
            char *u = buf_room(out, 7);
            out->n += (size_t)snprintf(u, 7, "\\u%04x", c);
        }
    }
    if (plain < n) /* s may be NULL when n is 0 */
        buf_add(out, s + plain, n - plain);
}

static void dump_string(struct buf *out, const char *s, size_t n)
{
    buf_addc(out, '"');
    pyjson_escape(out, s, n);
    buf_addc(out, '"');
}

/* Does the decimal, or else the next greater one of as many digits, read back as x?  At a power of two the doubles
 * below are twice as dense as those above, and the nearest decimal may lie below and out of reach while the next one is
 * not. */
static bool reads_back(char *text, double x)
{
    char *last = strchr(text, 'e') - 1;

    if (strtod(text, NULL) == x)
        return true;
    if (*last == '9') /* the carry would make a shorter decimal, which was tried */
        return false;
    ++*last;
    return strtod(text, NULL) == x;
}

/* As Python's float.__repr__: the fewest digits that read back as x, with an exponent from 1e16 on and below 1e-4. */
static void dump_real(struct buf *out, double x)
{
    char text[40], digits[24];
    int n = 0, exponent;

    for (int precision = 0; precision < 17; precision++) {
        snprintf(text, sizeof text, "%.*e", precision, fabs(x));
        if (reads_back(text, fabs(x)))
            break;
    }
    /* Only the digits: what stands between them is the locale's. */
    for (const char *s = text; *s != 'e'; s++)
        if (isdigit((unsigned char)*s))
            digits[n++] = *s;
    exponent = atoi(strchr(text, 'e') + 1);

    if (signbit(x))
        buf_addc(out, '-');
    if (exponent < -4 || exponent >= 16) {
        buf_addc(out, digits[0]);
        if (n > 1)
            buf_addc(out, '.');
        buf_add(out, digits + 1, (size_t)n - 1);
        char *e = buf_room(out, 8);
        out->n += (size_t)snprintf(e, 8, "e%+03d", exponent);
        return;
    }
    for (int i = exponent < 0 ? exponent : 0; i <= exponent || i < n || i == exponent + 1; i++) {
        if (i == exponent + 1)
            buf_addc(out, '.');
        buf_addc(out, i >= 0 && i < n ? digits[i] : '0');
    }
}

struct member {
    const char *key;
    json_t *value;
};

static int by_key(const void *a, const void *b)
{
    /* UTF-8 sorts by bytes as by code points. */
    return strcmp(((const struct member *)a)->key, ((const struct member *)b)->key);
}

static void dump_object(struct buf *out, const json_t *object, enum pyjson_style style)
{
    size_t n = 0, count = json_object_size(object);
    struct member *members = k3_calloc(count, sizeof *members);
    const char *key;
    json_t *value;

    json_object_foreach((json_t *)object, key, value) members[n++] = (struct member){key, value};
    if (style == PYJSON_SORTED)
        qsort(members, n, sizeof *members, by_key);

    buf_addc(out, '{');
    for (size_t i = 0; i < n; i++) {
        if (i > 0)
            buf_adds(out, style == PYJSON_SORTED ? "," : ", ");
        dump_string(out, members[i].key, strlen(members[i].key));
        buf_adds(out, style == PYJSON_SORTED ? ":" : ": ");
        pyjson_dump(out, members[i].value, style);
    }
    buf_addc(out, '}');
    free(members);
}

static void dump_array(struct buf *out, const json_t *array, enum pyjson_style style)
{
    buf_addc(out, '[');
    for (size_t i = 0; i < json_array_size(array); i++) {
        if (i > 0)
            buf_adds(out, style == PYJSON_SORTED ? "," : ", ");
        pyjson_dump(out, json_array_get(array, i), style);
    }
    buf_addc(out, ']');
}

void pyjson_dump(struct buf *out, const json_t *value, enum pyjson_style style)
{
    const char *s;
    size_t n;

    switch (json_typeof(value)) {
    case JSON_OBJECT:
        dump_object(out, value, style);
        break;
    case JSON_ARRAY:
        dump_array(out, value, style);
        break;
    case JSON_STRING:
        if (pyjson_string(value, &s, &n))
            dump_string(out, s, n);
        else
            buf_add(out, json_string_value(value) + 1, json_string_length(value) - 1);
        break;
    case JSON_INTEGER: {
        char *i = buf_room(out, 24);
        out->n += (size_t)snprintf(i, 24, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
        break;
    }
    case JSON_REAL:
        dump_real(out, json_real_value(value));
        break;
    case JSON_TRUE:
        buf_adds(out, "true");
        break;
    case JSON_FALSE:
        buf_adds(out, "false");
        break;
    case JSON_NULL:
        buf_adds(out, "null");
        break;
    }
}

bool pyjson_blank(const char *s, size_t n)
{
    for (size_t i = 0; i < n;) {
        struct utf8 c = utf8_read(s + i, n - i);
        if (!unicode_python_space(c.point))
            return false;
        i += c.bytes;
    }
    return true;
}
