/* status.h - one live line on a terminal
 *
 * Drawn on stderr, over itself, and gone when it is cleared.  Silent when stderr is no terminal that can do this. */
#ifndef K3_CLIENT_STATUS_H
#define K3_CLIENT_STATUS_H

#include <stdbool.h>

struct status;

struct status *status_create(void);
void status_destroy(struct status *s); /* clears; accepts NULL */

/* Is there such a terminal? */
bool status_live(const struct status *s);

/* Show this instead of what is there; nothing is written when it is the same.  Cut to the terminal's width. */
void status_show(struct status *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void status_clear(struct status *s);

/* 1240 as "1,240". */
const char *status_count(unsigned long long n, char text[32]);

#endif
