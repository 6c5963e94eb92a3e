#include "common/manual.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "common/alloc.h"

static bool begins_section(const struct conf_table *t, size_t i)
{
    return i == 0 || strcmp(t->rows[i - 1].section, t->rows[i].section) != 0;
}

static const char *section_sentence(const struct conf_table *t, const char *name)
{
    for (size_t i = 0; i < t->section_count; i++)
        if (strcmp(t->sections[i].name, name) == 0)
            return t->sections[i].sentence;
    return "";
}

/* Length of the part of a sentence that is for everybody. */
static int short_length(const struct conf_row *row)
{
    return (int)strcspn(row->sentence, "\n");
}

static const char *quote(const struct conf_row *row)
{
    return row->type == CONF_TEXT ? "\"" : "";
}

/* --- roff */

static bool is_setting(const struct conf_table *t, const char *word, size_t len)
{
    for (size_t i = 0; i < t->count; i++) {
        const struct conf_row *row = &t->rows[i];
        size_t n = strlen(row->section);

        if (len == n + 1 + strlen(row->key) && !strncmp(word, row->section, n) && word[n] == '.' &&
            !strncmp(word + n + 1, row->key, len - n - 1))
            return true;
    }
    return false;
}

static void put_escaped(const char *text, size_t len, FILE *out)
{
    for (size_t i = 0; i < len; i++)
        if (text[i] == '"')
            fputs("\\(dq", out);
        else if (text[i] == '\\')
            fputs("\\e", out);
        else if (text[i] == '-')
            fputs("\\-", out);
        else
            putc(text[i], out);
}

/* Sentences on lines of their own, names of settings in bold. */
static void put_sentences(const struct conf_table *t, const char *text, size_t len, FILE *out)
{
    const char *end = text + len;

    while (text < end) {
        size_t word = strcspn(text, " \n");
        size_t bare = word;

        if (word > (size_t)(end - text))
            word = bare = (size_t)(end - text);
        while (bare > 0 && strchr(".,;:", text[bare - 1]))
            bare--;
        if (is_setting(t, text, bare)) {
            fprintf(out, "\\fB%.*s\\fP", (int)bare, text);
            put_escaped(text + bare, word - bare, out);
        } else {
            put_escaped(text, word, out);
        }
        text += word;
        if (text >= end)
            break;
        putc(*text == '\n' || text[1] == ' ' ? '\n' : ' ', out);
        while (text < end && isspace((unsigned char)*text))
            text++;
    }
    putc('\n', out);
}

void manual_page(const struct conf_table *t, FILE *out)
{
    for (size_t i = 0; i < t->count; i++) {
        const struct conf_row *row = &t->rows[i];
        size_t first = (size_t)short_length(row);
        char wanted[200];

        if (begins_section(t, i))
            fprintf(out, ".SS %s\n%s\n", row->section, section_sentence(t, row->section));
        fprintf(out, ".TP\n.BR %s.%s \" = ", row->section, row->key);
        put_escaped(quote(row), strlen(quote(row)), out);
        put_escaped(row->initial, strlen(row->initial), out);
        put_escaped(quote(row), strlen(quote(row)), out);
        fputs("\"\n", out);
        put_sentences(t, row->sentence, first, out);
        conf_wanted(row, wanted, sizeof wanted);
        fprintf(out, "(%c%s.)\n", toupper((unsigned char)wanted[0]), wanted + 1);
        if (row->sentence[first])
            put_sentences(t, row->sentence + first + 1, strlen(row->sentence + first + 1), out);
    }
}

/* --- plain text */

void manual_example(const struct conf_table *t, FILE *out)
{
    for (size_t i = 0; i < t->count; i++) {
        const struct conf_row *row = &t->rows[i];
        char wanted[200];

        if (begins_section(t, i))
            fprintf(out, "%s# %s\n%s:\n{\n", i ? "};\n\n" : "", section_sentence(t, row->section), row->section);
        else
            putc('\n', out);
        conf_wanted(row, wanted, sizeof wanted);
        fprintf(out, "    # %.*s (%s)\n    %s = %s%s%s;\n", short_length(row), row->sentence, wanted, row->key,
                quote(row), row->initial, quote(row));
    }
    fputs("};\n", out);
}

void manual_help(const struct conf_table *t, const char *section, FILE *out)
{
    fprintf(out, "Settings in section %s of k3.conf, with their defaults:\n", section);
    for (size_t i = 0; i < t->count; i++) {
        const struct conf_row *row = &t->rows[i];

        if (strcmp(row->section, section) == 0)
            fprintf(out, "  %s = %s%s%s\n      %.*s\n", row->key, quote(row), row->initial, quote(row),
                    short_length(row), row->sentence);
    }
}

char *manual_phrase(const struct conf_table *t, const char *name)
{
    const struct conf_row *row = NULL;
    char wanted[200] = "";
    char *phrase;

    for (size_t i = 0; i < t->count && !row; i++)
        if (is_setting(&(struct conf_table){.rows = &t->rows[i], .count = 1}, name, strlen(name)))
            row = &t->rows[i];
    if (!row)
        return k3_strdup("");
    if (row->choices)
        conf_wanted(row, wanted, sizeof wanted);
    phrase = k3_asprintf("%.*s%s%s", short_length(row) - 1, row->sentence, row->choices ? ": " : "", wanted);
    *phrase = (char)tolower((unsigned char)*phrase);
    return phrase;
}
