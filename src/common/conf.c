#include "common/conf.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <libconfig.h>

#include "common/alloc.h"

struct conf {
    const struct conf_row *rows;
    size_t count;
    char *values;
    char **origins; /* one a row */
};

/* A value that was checked but not stored yet. */
union parsed {
    const char *text;
    int number;
    double real;
};

static const struct conf_row *find_row(const struct conf *c, const char *section, size_t section_len, const char *key)
{
    for (size_t i = 0; i < c->count; i++)
        if (strlen(c->rows[i].section) == section_len && !memcmp(c->rows[i].section, section, section_len) &&
            strcmp(c->rows[i].key, key) == 0)
            return &c->rows[i];
    return NULL;
}

static const struct conf_row *find_name(const struct conf *c, const char *name, struct k3_error *err)
{
    const char *dot = strchr(name, '.');
    const struct conf_row *row = dot ? find_row(c, name, (size_t)(dot - name), dot + 1) : NULL;

    if (!row) {
        errno = ENOENT;
        k3_errorf(err, "there is no setting %s", name);
    }
    return row;
}

static bool has_section(const struct conf *c, const char *section)
{
    for (size_t i = 0; i < c->count; i++)
        if (strcmp(c->rows[i].section, section) == 0)
            return true;
    return false;
}

void conf_wanted(const struct conf_row *row, char *text, size_t size)
{
    if (row->type != CONF_TEXT) {
        snprintf(text, size, "%s, %.10g to %.10g", row->type == CONF_INT ? "a whole number" : "a number", row->least,
                 row->most);
        return;
    }
    size_t n = (size_t)snprintf(text, size, row->choices ? "one of" : "text in quotes");
    for (size_t i = 0; row->choices && row->choices[i] && n < size; i++)
        n += (size_t)snprintf(text + n, size - n, " %s", row->choices[i]);
}

/* The sentence when parse() refuses. */
static int refuse(const struct conf_row *row, const char *where, const char *got, struct k3_error *err)
{
    char wanted[200];

    conf_wanted(row, wanted, sizeof wanted);
    errno = EINVAL;
    return k3_errorf(err, "%s: %s.%s: %s is not %s", where, row->section, row->key, got, wanted);
}

static int parse(const struct conf_row *row, const char *text, union parsed *value)
{
    char *end;

    if (row->type == CONF_TEXT) {
        bool known = !row->choices;
        for (size_t i = 0; !known && row->choices[i]; i++)
            known = strcmp(row->choices[i], text) == 0;
        value->text = text;
        return known ? 0 : -1;
    }
    errno = 0;
    double real = strtod(text, &end);
    if (end == text || *end || errno || !isfinite(real) || real < row->least || real > row->most)
        return -1;
    if (row->type == CONF_INT) {
        long number = strtol(text, &end, 10);
        if (*end || number < INT_MIN || number > INT_MAX)
            return -1;
        value->number = (int)number;
    } else {
        value->real = real;
    }
    return 0;
}

static void store(struct conf *c, const struct conf_row *row, union parsed value, const char *origin)
{
    char *member = c->values + row->offset;
    char **at = &c->origins[row - c->rows];

    if (row->type == CONF_TEXT) {
        free(*(char **)member);
        *(char **)member = k3_strdup(value.text);
    } else if (row->type == CONF_INT) {
        *(int *)member = value.number;
    } else {
        *(double *)member = value.real;
    }
    free(*at);
    *at = k3_strdup(origin);
}

struct conf *conf_create(const struct conf_row *rows, size_t count, void *values)
{
    struct conf *c = k3_zalloc(sizeof *c);

    *c = (struct conf){rows, count, values, k3_calloc(count, sizeof *c->origins)};
    for (size_t i = 0; i < count; i++) {
        union parsed value = {0};
        parse(&rows[i], rows[i].initial, &value); /* a default is right by itself; a test looks */
        if (rows[i].type == CONF_TEXT)
            *(char **)(c->values + rows[i].offset) = NULL;
        store(c, &rows[i], value, "built in");
    }
    return c;
}

void conf_destroy(struct conf *c)
{
    int saved = errno;

    if (!c)
        return;
    for (size_t i = 0; i < c->count; i++) {
        free(c->origins[i]);
        if (c->rows[i].type == CONF_TEXT) {
            free(*(char **)(c->values + c->rows[i].offset));
            *(char **)(c->values + c->rows[i].offset) = NULL;
        }
    }
    free(c->origins);
    free(c);
    errno = saved;
}

/* What stands in the file as text, or NULL when it is of no type that the row can take. */
static const char *setting_text(const struct conf_row *row, const config_setting_t *s, char buffer[64])
{
    switch (config_setting_type(s)) {
    case CONFIG_TYPE_STRING:
        return row->type == CONF_TEXT ? config_setting_get_string(s) : NULL;
    case CONFIG_TYPE_INT:
    case CONFIG_TYPE_INT64:
        snprintf(buffer, 64, "%lld", config_setting_get_int64(s));
        return row->type == CONF_TEXT ? NULL : buffer;
    case CONFIG_TYPE_FLOAT:
        snprintf(buffer, 64, "%.17g", config_setting_get_float(s));
        return row->type == CONF_REAL ? buffer : NULL;
    default:
        return NULL;
    }
}

static const char *type_name(const config_setting_t *s)
{
    switch (config_setting_type(s)) {
    case CONFIG_TYPE_STRING:
        return "text in quotes";
    case CONFIG_TYPE_FLOAT:
        return "a number with a fraction";
    case CONFIG_TYPE_BOOL:
        return "true or false";
    case CONFIG_TYPE_INT:
    case CONFIG_TYPE_INT64:
        return "a number";
    default:
        return "a group or list";
    }
}

/* One setting of the file: check it, and store it when that is asked. */
static int take_setting(struct conf *c, const char *section, const config_setting_t *s, const char *where, bool apply,
                        struct k3_error *err)
{
    const char *key = config_setting_name(s);
    const struct conf_row *row = find_row(c, section, strlen(section), key);
    union parsed value;
    char buffer[64];

    if (!row) {
        errno = EINVAL;
        return k3_errorf(err, "%s: there is no setting %s.%s", where, section, key);
    }
    const char *text = setting_text(row, s, buffer);
    if (!text)
        return refuse(row, where, type_name(s), err);
    if (parse(row, text, &value) < 0) {
        char quoted[80];
        snprintf(quoted, sizeof quoted, row->type == CONF_TEXT ? "\"%s\"" : "%s", text);
        return refuse(row, where, quoted, err);
    }
    if (apply)
        store(c, row, value, where);
    return 0;
}

/* What follows to the end of the line, of a text in quotes or of a comment, is no number. */
static void skip_text(FILE *in, const char *end, int *line)
{
    int c, before = 0;

    while ((c = getc(in)) != EOF) {
        *line += c == '\n';
        if (*end == '"' && c == '\\')
            *line += getc(in) == '\n';
        else if (end[1] ? before == end[0] && c == end[1] : c == *end)
            return;
        before = c;
    }
}

static int check_number(const char *word, const char *path, int line, struct k3_error *err)
{
    bool hex = word[0] == '0' && tolower((unsigned char)word[1]) == 'x';
    char *end;

    errno = 0;
    unsigned long long n = strtoull(word, &end, hex ? 16 : 10);
    if (*end || (!errno && n <= INT_MAX))
        return 0;
    errno = EINVAL;
    return k3_errorf(err, "%s:%d: %s is more than any setting can be", path, line, word);
}

/* libconfig 1.5 reads a whole number that does not fit an int as another one, and says nothing. */
static int check_numbers(FILE *in, const char *path, struct k3_error *err)
{
    char word[64];
    size_t n = 0;
    int c, before = 0, line = 1;

    do {
        c = getc(in);
        if (c != EOF && (isalnum(c) || c == '_' || c == '.')) {
            if (n + 1 < sizeof word)
                word[n++] = (char)c;
            continue;
        }
        word[n] = '\0';
        if (n > 0 && isdigit((unsigned char)*word) && check_number(word, path, line, err) < 0)
            return -1;
        n = 0;
        line += c == '\n';
        if (c == '"')
            skip_text(in, "\"", &line);
        else if (c == '#' || (c == '/' && before == '/'))
            skip_text(in, "\n", &line);
        else if (c == '*' && before == '/')
            skip_text(in, "*/", &line);
        before = c;
    } while (c != EOF);
    return 0;
}

static int check_included(const char *path, struct k3_error *err)
{
    FILE *in = fopen(path, "re");
    int rc = in ? check_numbers(in, path, err) : k3_errorf(err, "%s: %s", path, strerror(errno));

    if (in)
        fclose(in);
    return rc;
}

static int take_file(struct conf *c, const config_t *file, const char *path, bool apply, struct k3_error *err)
{
    const config_setting_t *root = config_root_setting(file);

    for (int i = 0; i < config_setting_length(root); i++) {
        const config_setting_t *group = config_setting_get_elem(root, (unsigned int)i);
        const char *section = config_setting_name(group);
        char where[300];
        snprintf(where, sizeof where, "%s:%u", path, (unsigned int)config_setting_source_line(group));
        if (!has_section(c, section) || !config_setting_is_group(group)) {
            errno = EINVAL;
            return has_section(c, section)
                       ? k3_errorf(err, "%s: %s is a section: write %s: { ... }", where, section, section)
                       : k3_errorf(err, "%s: there is no section %s", where, section);
        }
        for (int k = 0; k < config_setting_length(group); k++) {
            const config_setting_t *s = config_setting_get_elem(group, (unsigned int)k);
            const char *included = config_setting_source_file(s); /* NULL when it is the file itself */
            if (included && !apply && check_included(included, err) < 0)
                return -1;
            snprintf(where, sizeof where, "%s:%u", included ? included : path,
                     (unsigned int)config_setting_source_line(s));
            if (take_setting(c, section, s, where, apply, err) < 0)
                return -1;
        }
    }
    return 0;
}

int conf_read(struct conf *c, const char *path, struct k3_error *err)
{
    config_t file;
    FILE *in;
    int rc = -1;

    config_init(&file);
    if (!(in = fopen(path, "re"))) {
        k3_errorf(err, "%s: %s", path, strerror(errno));
        goto out;
    }
    if (fgetc(in) == EOF && ferror(in)) { /* a directory: libconfig's scanner would end the program */
        k3_errorf(err, "%s: %s", path, strerror(errno));
        goto out;
    }
    rewind(in);
    if (config_read(&file, in) != CONFIG_TRUE) {
        const char *included = config_error_file(&file);
        errno = EINVAL;
        k3_errorf(err, "%s:%d: %s", included ? included : path, config_error_line(&file), config_error_text(&file));
        goto out;
    }
    rewind(in);
    /* All of it is checked before any of it counts. */
    if (check_numbers(in, path, err) < 0 || take_file(c, &file, path, false, err) < 0)
        goto out;
    rc = take_file(c, &file, path, true, err);
out:;
    int saved = errno;
    if (in)
        fclose(in);
    config_destroy(&file);
    errno = saved;
    return rc;
}

int conf_set(struct conf *c, const char *name, const char *text, const char *origin, struct k3_error *err)
{
    const struct conf_row *row = find_name(c, name, err);
    union parsed value;

    if (!row)
        return -1;
    if (parse(row, text, &value) < 0)
        return refuse(row, origin, text, err);
    store(c, row, value, origin);
    return 0;
}

static char *value_text(const struct conf *c, const struct conf_row *row)
{
    const char *member = c->values + row->offset;
    char text[40];

    if (row->type == CONF_TEXT)
        return k3_strdup(*(char *const *)member);
    if (row->type == CONF_INT)
        return k3_asprintf("%d", *(const int *)member);
    snprintf(text, sizeof text, "%.15g", *(const double *)member);
    /* libconfig tells a number with a fraction by its point. */
    return k3_asprintf(strpbrk(text, ".e") ? "%s" : "%s.0", text);
}

char *conf_get(const struct conf *c, const char *name, struct k3_error *err)
{
    const struct conf_row *row = find_name(c, name, err);

    return row ? value_text(c, row) : NULL;
}

static void show_text(const char *text, FILE *out)
{
    putc('"', out);
    for (; *text; text++) {
        if (*text == '"' || *text == '\\')
            putc('\\', out);
        putc(*text, out);
    }
    putc('"', out);
}

void conf_show(const struct conf *c, FILE *out)
{
    for (size_t i = 0; i < c->count; i++) {
        const struct conf_row *row = &c->rows[i];
        bool first = i == 0 || strcmp(row[-1].section, row->section) != 0;
        char wanted[200];
        if (first)
            fprintf(out, "%s%s:\n{\n", i ? "};\n\n" : "", row->section);
        conf_wanted(row, wanted, sizeof wanted);
        fprintf(out, "%s    # %.*s (%s)\n    %s = ", first ? "" : "\n", (int)strcspn(row->sentence, "\n"),
                row->sentence, wanted, row->key);
        char *text = value_text(c, row);
        if (row->type == CONF_TEXT)
            show_text(text, out);
        else
            fputs(text, out);
        fprintf(out, "; # %s\n", c->origins[i]);
        free(text);
    }
    fputs("};\n", out);
}
