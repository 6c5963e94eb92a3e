/* conf.h - settings as rows
 *
 * One row a setting says its section and key in k3.conf, its type, where it is stored, its default, its range and one
 * sentence. The rows feed the parser, --show-config, --get and what manual.h prints; a file with a wrong key, type or
 * value is refused as a whole, with file and line.  Which settings there are is settings.h's. */
#ifndef K3_COMMON_CONF_H
#define K3_COMMON_CONF_H

#include <stddef.h>
#include <stdio.h>

#include "common/error.h"

enum conf_type {
    CONF_TEXT, /* char *, owned by the settings */
    CONF_INT,  /* int */
    CONF_REAL  /* double */
};

struct conf_row {
    const char *section, *key;
    enum conf_type type;
    size_t offset;              /* in the struct that holds the values */
    const char *initial;        /* as conf_get() gives it */
    double least, most;         /* of INT and REAL */
    const char *const *choices; /* of TEXT: NULL at the end; NULL: any text */
    const char *sentence;       /* or two; what follows a line feed is for the manual page only */
};

struct conf_section {
    const char *name, *sentence;
};

struct conf_table {
    const struct conf_section *sections;
    size_t section_count;
    const struct conf_row *rows; /* those of a section together */
    size_t count;
};

/* What a row's values are, for sentences: "a whole number, 1 to 64". */
void conf_wanted(const struct conf_row *row, char *text, size_t size);

struct conf;

/* All defaults into *values.  Borrows rows and values for its life. */
struct conf *conf_create(const struct conf_row *rows, size_t count, void *values);
/* Frees the texts in *values too.  Accepts NULL. */
void conf_destroy(struct conf *c);

/* Take over what a libconfig file says: groups named as the sections.  -1 (errno EINVAL, or open's) names file, line
 * and key and has changed nothing. */
int conf_read(struct conf *c, const char *path, struct k3_error *err);

/* Set "section.key" to what a person typed; origin says where ("K3SUBMIT_SEED"), for the sentence and --show-config. */
int conf_set(struct conf *c, const char *name, const char *text, const char *origin, struct k3_error *err);

/* Value of "section.key" as text without quotes, to be freed; NULL (errno ENOENT) when there is no such setting. */
char *conf_get(const struct conf *c, const char *name, struct k3_error *err);

/* Everything as a k3.conf, each value with its sentence, range and origin. */
void conf_show(const struct conf *c, FILE *out);

#endif
