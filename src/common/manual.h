/* manual.h - the rows of the settings as people read them: manual page, example file, --help
 *
 * All with the defaults.  What is in force, and why, is conf_show()'s. */
#ifndef K3_COMMON_MANUAL_H
#define K3_COMMON_MANUAL_H

#include <stdio.h>

#include "common/conf.h"

/* The settings' part of k3.conf(5): roff, a subsection a section. */
void manual_page(const struct conf_table *t, FILE *out);
/* A k3.conf that changes nothing. */
void manual_example(const struct conf_table *t, FILE *out);
/* For the --help of the program that a section is for. */
void manual_help(const struct conf_table *t, const char *section, FILE *out);
/* What "section.key" is in the words of an option's help: no capital, no full stop, choices behind it.  To be freed. */
char *manual_phrase(const struct conf_table *t, const char *name);

#endif
