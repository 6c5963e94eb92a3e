#include "client/format.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "client/words.h"
#include "common/alloc.h"

struct context {
    const struct message_listing_row *row;
    int digits;
    double now;
};

static char *id(const struct context *c)
{
    char text[K3_ID_DIGITS + 1];

    return k3_asprintf("%.*s", c->digits, k3_id_format(&c->row->id, text));
}

static char *whole_id(const struct context *c)
{
    char text[K3_ID_DIGITS + 1];

    return k3_strdup(k3_id_format(&c->row->id, text));
}

static char *name(const struct context *c)
{
    return words_safe(c->row->name);
}

static char *user(const struct context *c)
{
    return words_safe(c->row->user);
}

static char *state(const struct context *c)
{
    return k3_strdup(words_state(c->row->state));
}

static char *state_name(const struct context *c)
{
    return k3_strdup(request_state_name(c->row->state));
}

static char *reason(const struct context *c)
{
    return words_safe(c->row->reason ? c->row->reason : "None");
}

static char *job_or_reason(const struct context *c)
{
    char *why, *text;

    if (c->row->job)
        return k3_asprintf("%u", (unsigned int)c->row->job);
    why = reason(c);
    text = k3_asprintf("(%s)", why);
    free(why);
    return text;
}

/* Zero is nothing to show. */
static char *number(uint32_t n)
{
    return n ? k3_asprintf("%u", (unsigned int)n) : k3_strdup("-");
}

static char *place(const struct context *c)
{
    return number(c->row->place);
}

static char *job(const struct context *c)
{
    return number(c->row->job);
}

static char *prompt_tokens(const struct context *c)
{
    return number(c->row->ptok);
}

static char *answer_tokens(const struct context *c)
{
    return k3_asprintf("%u", (unsigned int)c->row->ctok);
}

static char *max_tokens(const struct context *c)
{
    return number(c->row->max);
}

static char *time_used(const struct context *c)
{
    char text[32];
    bool runs = c->row->start_t > 0 && (c->row->state == REQUEST_RUNNING || c->row->state == REQUEST_ENDING);

    return k3_strdup(words_duration(runs ? c->now - c->row->start_t : 0, text));
}

static char *submit_time(const struct context *c)
{
    char text[32];

    return k3_strdup(words_time(c->row->submit_t, text));
}

static char *start_time(const struct context *c)
{
    char text[32];

    return k3_strdup(words_time(c->row->start_t, text));
}

static const struct column {
    char letter;
    const char *type; /* as squeue --Format names it, where it has it */
    const char *heading;
    char *(*text)(const struct context *c);
} columns[] = {
    {'i', "ID", "ID", id},
    {'I', "RequestID", "REQUEST", whole_id},
    {'j', "Name", "NAME", name},
    {'u', "UserName", "USER", user},
    {'t', "StateCompact", "ST", state},
    {'T', "State", "STATE", state_name},
    {'M', "TimeUsed", "TIME", time_used},
    {'k', "Tokens", "TOKENS", answer_tokens},
    {'m', "MaxTokens", "MAX", max_tokens},
    {'p', "PromptTokens", "PROMPT", prompt_tokens},
    {'P', "Place", "PLACE", place},
    {'r', "Reason", "REASON", reason},
    {'R', "ReasonList", "JOB(REASON)", job_or_reason},
    {'A', "JobID", "JOBID", job},
    {'V', "SubmitTime", "SUBMIT_TIME", submit_time},
    {'S', "StartTime", "START_TIME", start_time},
};

static const struct column *find_column(char letter)
{
    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++)
        if (columns[i].letter == letter)
            return &columns[i];
    return NULL;
}

static const struct column *find_type(const char *type, size_t len)
{
    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++)
        if (strlen(columns[i].type) == len && strncasecmp(columns[i].type, type, len) == 0)
            return &columns[i];
    return NULL;
}

/* TYPE[:[.]WIDTH], len bytes of text, as a field of a format; NULL when it is none. */
static char *field_of_type(const char *text, size_t len)
{
    size_t name = strcspn(text, ":,");
    const struct column *column = find_type(text, name);

    if (!column)
        return NULL;
    if (name == len)
        return k3_asprintf("%%20%c", column->letter);
    const char *width = text + name + 1;
    bool right = *width == '.';
    width += right;
    size_t digits = strspn(width, "0123456789");
    if (digits < 1 || digits > 3 || width + digits != text + len)
        return NULL;
    return k3_asprintf("%%%s%.*s%c", right ? "." : "", (int)digits, width, column->letter);
}

char *format_of_types(const char *types, struct k3_error *err)
{
    char *format = k3_strdup("");

    for (const char *at = types;; at++) {
        size_t len = strcspn(at, ",");
        char *field = field_of_type(at, len);
        char *longer = field ? k3_asprintf("%s%s", format, field) : NULL;
        if (!field)
            k3_errorf(err, "--Format: there is no column %.*s", (int)len, at);
        free(field);
        free(format);
        format = longer;
        at += len;
        if (!format || !*at)
            return format;
    }
}

/* One "%[.][width]letter" at *at, which is moved behind it. */
struct field {
    const struct column *column; /* NULL: unknown letter, or a plain "%%" */
    bool right;
    size_t width; /* 0: as wide as the text */
};

static struct field next_field(const char **at)
{
    struct field f = {0};
    const char *c = *at + 1;

    if (*c == '.') {
        f.right = true;
        c++;
    }
    for (; isdigit((unsigned char)*c); c++)
        if (f.width < 1000)
            f.width = f.width * 10 + (size_t)(*c - '0');
    f.column = *c ? find_column(*c) : NULL;
    *at = *c ? c + 1 : c;
    return f;
}

int format_check(const char *format, struct k3_error *err)
{
    for (const char *at = format; *at;) {
        if (*at != '%') {
            at++;
            continue;
        }
        const char *begin = at;
        struct field f = next_field(&at);
        if (!f.column && strncmp(begin, "%%", 2) != 0)
            return k3_errorf(err, "--format: there is no column %.*s", (int)(at - begin), begin);
    }
    return 0;
}

static void put(const struct field *f, const char *text, FILE *out)
{
    size_t width = words_width(text);

    if (f->width && width > f->width) {
        fwrite(text, 1, words_cut(text, f->width), out);
        return;
    }
    int pad = f->width > width ? (int)(f->width - width) : 0;
    fprintf(out, f->right ? "%2$*1$s%3$s" : "%3$s%2$*1$s", pad, "", text);
}

/* context NULL: the headings. */
static void print(const char *format, const struct context *context, FILE *out)
{
    for (const char *at = format; *at;) {
        if (*at != '%') {
            putc(*at++, out);
            continue;
        }
        struct field f = next_field(&at);
        if (!f.column) {
            putc('%', out);
            continue;
        }
        char *text = context ? f.column->text(context) : k3_strdup(f.column->heading);
        put(&f, text, out);
        free(text);
    }
    putc('\n', out);
}

void format_heading(const char *format, FILE *out)
{
    print(format, NULL, out);
}

void format_row(const char *format, const struct message_listing_row *row, int digits, double now, FILE *out)
{
    struct context c = {row, digits, now};

    print(format, &c, out);
}
