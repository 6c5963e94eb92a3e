/* format.h - lines of k3queue from a format as squeue's: "%.8i %9u %t %R" */
#ifndef K3_CLIENT_FORMAT_H
#define K3_CLIENT_FORMAT_H

#include <stdio.h>

#include "common/error.h"
#include "wire/message.h"

/* Is every letter in it known? */
int format_check(const char *format, struct k3_error *err);

/* The format of a list as squeue --Format takes it: "JobID:8,UserName:.10,State".  NULL when a type is unknown. */
char *format_of_types(const char *types, struct k3_error *err);

/* The line of headings, and of one request.  digits: of a short id.  now: seconds since 1970. */
void format_heading(const char *format, FILE *out);
void format_row(const char *format, const struct message_listing_row *row, int digits, double now, FILE *out);

#endif
