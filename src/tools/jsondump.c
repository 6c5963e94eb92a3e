#include "tools/jsondump.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void dump(const json_t *value, int depth, FILE *out);

static void dump_indent(int depth, FILE *out)
{
    fprintf(out, "\n%*s", depth, "");
}

/* One code point of valid UTF-8 from *s, moved on. */
static unsigned next_code_point(const unsigned char **s)
{
    unsigned c = *(*s)++;
    int more = c < 0x80 ? 0 : c < 0xe0 ? 1 : c < 0xf0 ? 2 : 3;

    if (more)
        c &= 0x3fu >> more;
    while (more--)
        c = c << 6 | (*(*s)++ & 0x3f);
    return c;
}

static void dump_string(const char *s, FILE *out)
{
    static const char named[] = "\"\"\\\\\nn\rr\tt\bb\ff"; /* pairs of a character and its escape */
    const unsigned char *p = (const unsigned char *)s;

    putc('"', out);
    while (*p) {
        unsigned c = next_code_point(&p);
        const char *escape = NULL;
        for (const char *n = named; *n; n += 2)
            if ((unsigned char)*n == c)
                escape = n + 1;
        if (escape)
            fprintf(out, "\\%c", *escape);
        else if (c >= ' ' && c <= 0x7e)
            putc((int)c, out);
        else if (c < 0x10000)
            fprintf(out, "\\u%04x", c);
        else
            fprintf(out, "\\u%04x\\u%04x", 0xd800 + ((c - 0x10000) >> 10), 0xdc00 + ((c - 0x10000) & 0x3ff));
    }
    putc('"', out);
}

/* The fewest digits that read back as x, as Python's repr(): plain from 1e-4 up to 1e16, else with an exponent of at
 * least two digits. */
static void dump_real(double x, FILE *out)
{
    char text[40], digits[20];
    int precision = 0;

    do
        snprintf(text, sizeof text, "%.*e", precision, x);
    while (strtod(text, NULL) != x && ++precision < 17);

    const char *mantissa = text + (*text == '-');
    int exponent = atoi(strchr(text, 'e') + 1), count = 0;
    for (const char *c = mantissa; *c != 'e'; c++)
        if (*c != '.')
            digits[count++] = *c;
    digits[count] = '\0';

    if (*text == '-')
        putc('-', out);
    if (exponent < -4 || exponent >= 16)
        fprintf(out, "%c%s%se%c%02d", *digits, count > 1 ? "." : "", digits + 1, exponent < 0 ? '-' : '+',
                abs(exponent));
    else if (exponent < 0)
        fprintf(out, "0.%.*s%s", -exponent - 1, "000", digits);
    else if (count <= exponent + 1)
        fprintf(out, "%s%.*s.0", digits, exponent + 1 - count, "0000000000000000");
    else
        fprintf(out, "%.*s.%s", exponent + 1, digits, digits + exponent + 1);
}

static void dump_object(const json_t *value, int depth, FILE *out)
{
    const char *key, *between = "";
    json_t *item;

    putc('{', out);
    json_object_foreach((json_t *)value, key, item)
    {
        fputs(between, out);
        dump_indent(depth + 1, out);
        dump_string(key, out);
        fputs(": ", out);
        dump(item, depth + 1, out);
        between = ",";
    }
    if (*between)
        dump_indent(depth, out);
    putc('}', out);
}

static void dump_array(const json_t *value, int depth, FILE *out)
{
    const char *between = "";
    json_t *item;
    size_t i;

    putc('[', out);
    json_array_foreach(value, i, item)
    {
        fputs(between, out);
        dump_indent(depth + 1, out);
        dump(item, depth + 1, out);
        between = ",";
    }
    if (*between)
        dump_indent(depth, out);
    putc(']', out);
}

/* Recursion is as deep as the value, which whoever parsed it has limited. */
static void dump(const json_t *value, int depth, FILE *out)
{
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        dump_object(value, depth, out);
        break;
    case JSON_ARRAY:
        dump_array(value, depth, out);
        break;
    case JSON_STRING:
        dump_string(json_string_value(value), out);
        break;
    case JSON_INTEGER:
        fprintf(out, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
        break;
    case JSON_REAL:
        dump_real(json_real_value(value), out);
        break;
    case JSON_TRUE:
        fputs("true", out);
        break;
    case JSON_FALSE:
        fputs("false", out);
        break;
    case JSON_NULL:
        fputs("null", out);
        break;
    }
}

void jsondump(const json_t *value, FILE *out)
{
    dump(value, 0, out);
}
