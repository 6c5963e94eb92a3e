#include "config.h"

#include "client/options.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/alloc.h"
#include "common/manual.h"
#include "wire/message.h"

enum { HELP = 1000, USAGE, SHOW_CONFIG, FIRST_ROW }; /* what getopt_long returns; rows follow */

static const struct {
    const char *name;
    int letter, value;
    const char *sentence;
} common[] = {
    {"help", 0, HELP, "print this and exit"},
    {"usage", 0, USAGE, "print a short usage and exit"},
    {"version", 'V', 'V', "print the version and exit"},
    {"show-config", 0, SHOW_CONFIG, "print every setting and where it comes from, and exit"},
};
enum { COMMON = sizeof common / sizeof *common };

int options_fail(const struct option_program *p, int code, const char *sentence)
{
    fprintf(stderr, "%s: %s\n", p->name, sentence);
    return code;
}

static void print_usage(const struct option_program *p)
{
    int column = printf("Usage: %s", p->name), indent = column;

    for (size_t i = 0; i < p->count + COMMON; i++) {
        const struct option_row *row = i < p->count ? &p->rows[i] : NULL;
        const char *name = row ? row->name : common[i - p->count].name;
        int letter = row ? row->letter : common[i - p->count].letter;
        char text[100];
        if (name)
            snprintf(text, sizeof text, " [--%s%s%s]", name, row && row->value ? " " : "",
                     row && row->value ? row->value : "");
        else
            snprintf(text, sizeof text, " [-%c%s%s]", letter, row && row->value ? " " : "",
                     row && row->value ? row->value : "");
        if (column + (int)strlen(text) > 79)
            column = printf("\n%*s", indent, "") - 1;
        column += printf("%s", text);
    }
    printf("%s%s\n", *p->operands ? " " : "", p->operands);
}

static void print_option(int letter, const char *name, const char *value, const char *sentence)
{
    char text[80];

    snprintf(text, sizeof text, "%c%c%s%s%s%s%s", letter ? '-' : ' ', letter ? letter : ' ',
             !name    ? ""
             : letter ? ", "
                      : "  ",
             name ? "--" : "", name ? name : "", value ? " " : "", value ? value : "");
    if (strlen(text) > 30)
        printf("  %s\n  %-30s %s\n", text, "", sentence);
    else
        printf("  %-30s %s\n", text, sentence);
}

static void print_help(const struct option_program *p)
{
    printf("Usage: %s [OPTION]...%s%s\n%s\n\n", p->name, *p->operands ? " " : "", p->operands, p->about);
    for (size_t i = 0; i < p->count; i++) {
        const struct option_row *row = &p->rows[i];
        char *phrase = row->kind == OPTION_SETTING ? manual_phrase(settings_table(), row->setting) : NULL;

        print_option(row->letter, row->name, row->value, phrase ? phrase : row->sentence);
        free(phrase);
    }
    for (size_t i = 0; i < COMMON; i++)
        print_option(common[i].letter, common[i].name, NULL, common[i].sentence);
    if (p->environment)
        printf("\nAn option that takes a value, or a flag, may also come from the environment: --%s from %s_%s.\n",
               "reasoning-effort", p->environment, "REASONING_EFFORT");
}

/* Store one value; origin is what the sentence names. */
static int take(const struct option_row *row, const char *text, const char *origin, void *values,
                struct settings *settings, struct k3_error *err)
{
    char *member = (char *)values + row->offset, *end;

    switch (row->kind) {
    case OPTION_FLAG:
        *(bool *)member = true;
        return 0;
    case OPTION_TEXT:
        *(const char **)member = text;
        return 0;
    case OPTION_TEXTS: {
        struct option_texts *texts = (struct option_texts *)member;
        if (texts->n == sizeof texts->v / sizeof *texts->v)
            return k3_errorf(err, "%s: more than %zu of them", origin, texts->n);
        texts->v[texts->n++] = text;
        return 0;
    }
    case OPTION_NUMBER: {
        struct option_number *number = (struct option_number *)member;
        errno = 0;
        uint64_t n = strtoull(text, &end, 10);
        if (!isdigit((unsigned char)*text) || *end || errno || (double)n < row->least || (double)n > row->most)
            return k3_errorf(err, "%s: %s is not a whole number, %.0f to %.0f", origin, text, row->least, row->most);
        *number = (struct option_number){true, n};
        return 0;
    }
    case OPTION_REAL: {
        double d = strtod(text, &end);
        if (end == text || *end || !isfinite(d) || d < row->least || d > row->most)
            return k3_errorf(err, "%s: %s is not a number, %g to %g", origin, text, row->least, row->most);
        *(double *)member = d;
        return 0;
    }
    case OPTION_SETTING:
        return settings_set(settings, row->setting, text, origin, err);
    }
    return -1;
}

static int take_environment(const struct option_program *p, void *values, struct settings *settings,
                            struct k3_error *err)
{
    for (size_t i = 0; i < p->count; i++) {
        char name[64];
        if (!p->rows[i].name)
            continue;
        snprintf(name, sizeof name, "%s_%s", p->environment, p->rows[i].name);
        for (char *c = name; *c; c++)
            *c = (char)(*c == '-' ? '_' : toupper((unsigned char)*c));
        const char *text = getenv(name);
        if (!text || !*text || (p->rows[i].kind == OPTION_FLAG && strcmp(text, "0") == 0))
            continue;
        if (take(&p->rows[i], text, name, values, settings, err) < 0)
            return -1;
    }
    return 0;
}

/* getopt's tables from the rows. */
struct grammar {
    struct option *longs;
    char *shorts;
};

static struct grammar make_grammar(const struct option_program *p)
{
    struct grammar g = {k3_calloc(p->count + COMMON + 1, sizeof *g.longs), k3_zalloc(2 * p->count + COMMON + 1)};
    size_t n = 0, s = 0;

    for (size_t i = 0; i < p->count; i++) {
        const struct option_row *row = &p->rows[i];
        if (row->name)
            g.longs[n++] =
                (struct option){row->name, row->value ? required_argument : no_argument, NULL, FIRST_ROW + (int)i};
        if (row->letter)
            g.shorts[s++] = (char)row->letter;
        if (row->letter && row->value)
            g.shorts[s++] = ':';
    }
    for (size_t i = 0; i < COMMON; i++) {
        g.longs[n++] = (struct option){common[i].name, no_argument, NULL, common[i].value};
        if (common[i].letter)
            g.shorts[s++] = (char)common[i].letter;
    }
    return g;
}

static const struct option_row *row_of(const struct option_program *p, int c)
{
    for (size_t i = 0; i < p->count; i++)
        if (c == FIRST_ROW + (int)i || (c && c == p->rows[i].letter))
            return &p->rows[i];
    return NULL;
}

/* One pass over the command line.  Without settings only what needs none is done, so that --help works with a broken
 * k3.conf.  0; 1: the program ends with *code. */
static int walk(const struct option_program *p, const struct grammar *g, int argc, char **argv, void *values,
                struct settings *settings, int *code)
{
    struct k3_error err;
    int c;

    *code = EXIT_CODE_OK;
    optind = 0; /* start over */
    while ((c = getopt_long(argc, argv, g->shorts, g->longs, NULL)) != -1) {
        const struct option_row *row = row_of(p, c);
        char origin[80];
        if (c == '?') {
            fprintf(stderr, "Try '%s --help'.\n", p->name);
            *code = EXIT_CODE_USAGE;
            return 1;
        }
        if (row && settings) {
            if (row->name)
                snprintf(origin, sizeof origin, "--%s", row->name);
            else
                snprintf(origin, sizeof origin, "-%c", row->letter);
            if (take(row, optarg, origin, values, settings, &err) < 0) {
                *code = options_fail(p, EXIT_CODE_USAGE, err.text);
                return 1;
            }
        }
        if (c == HELP || c == USAGE || c == 'V') {
            if (c == HELP)
                print_help(p);
            else if (c == USAGE)
                print_usage(p);
            else
                printf("%s %s\n", p->name, PACKAGE_VERSION);
            return 1;
        }
    }
    return 0;
}

static bool wants_config(const struct grammar *g, int argc, char **argv)
{
    int c;

    optind = 0;
    while ((c = getopt_long(argc, argv, g->shorts, g->longs, NULL)) != -1)
        if (c == SHOW_CONFIG)
            return true;
    return false;
}

/* A descriptor that came closed would be handed to the next socket, and the answer written into it. */
static void hold_standard_descriptors(void)
{
    while (fcntl(STDERR_FILENO, F_GETFD) < 0 || fcntl(STDOUT_FILENO, F_GETFD) < 0 || fcntl(STDIN_FILENO, F_GETFD) < 0)
        if (open("/dev/null", O_RDONLY) < 0)
            return;
}

int options_parse(const struct option_program *p, int argc, char **argv, void *values, struct settings *settings,
                  int *code)
{
    struct grammar g = make_grammar(p);
    struct k3_error err;
    int operand = -1;

    hold_standard_descriptors();
    if (walk(p, &g, argc, argv, values, NULL, code))
        goto out;
    if (settings_load(settings, NULL, &err) < 0) {
        *code = options_fail(p, EXIT_CODE_FAILED, err.text);
        goto out;
    }
    if (p->environment && take_environment(p, values, settings, &err) < 0) {
        *code = options_fail(p, EXIT_CODE_USAGE, err.text);
        settings_clear(settings);
        goto out;
    }
    int ends = walk(p, &g, argc, argv, values, settings, code);
    operand = optind;
    if (!ends && wants_config(&g, argc, argv)) {
        settings_show(settings, stdout);
        ends = 1;
    }
    if (ends) {
        settings_clear(settings);
        operand = -1;
    }
out:
    free(g.longs);
    free(g.shorts);
    return operand;
}
