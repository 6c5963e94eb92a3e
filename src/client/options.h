/* options.h - command lines of the user's commands
 *
 * One row an option feeds the parser, --help, --usage and, for commands that have one, the environment (K3SUBMIT_SEED
 * is
 * --seed).  Order: built in, k3.conf, environment, command line.  Every command has --help, --usage, -V and
 * --show-config. */
#ifndef K3_CLIENT_OPTIONS_H
#define K3_CLIENT_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/settings.h"

enum option_kind {
    OPTION_FLAG,   /* bool */
    OPTION_TEXT,   /* const char *, borrowed from argv or the environment */
    OPTION_TEXTS,  /* struct option_texts: may be given more than once */
    OPTION_NUMBER, /* struct option_number: whole */
    OPTION_REAL,   /* double */
    OPTION_SETTING /* into the settings, by the name in .setting */
};

struct option_texts {
    const char *v[16];
    size_t n;
};
struct option_number {
    bool given;
    uint64_t n;
};

struct option_row {
    const char *name; /* without dashes; NULL: only the letter */
    int letter;       /* 0: none */
    enum option_kind kind;
    size_t offset;        /* in the struct that takes the values */
    const char *setting;  /* of OPTION_SETTING: "k3submit.top_p" */
    double least, most;   /* of NUMBER and REAL */
    const char *value;    /* as --help calls it; NULL for a flag */
    const char *sentence; /* NULL for a SETTING: its own */
};

struct option_program {
    const char *name, *operands, *about;
    const char *environment; /* "K3SUBMIT", or NULL: none is read */
    const struct option_row *rows;
    size_t count;
};

/* Load the settings and take environment and command line over into *values and *settings.  Index of the first operand,
 * or -1: the program ends now, with *code (what had to be said was said).  The settings are the caller's to clear when
 * an index was returned. */
int options_parse(const struct option_program *p, int argc, char **argv, void *values, struct settings *settings,
                  int *code);

/* "k3submit: SENTENCE" on stderr; returns code. */
int options_fail(const struct option_program *p, int code, const char *sentence);

#endif
