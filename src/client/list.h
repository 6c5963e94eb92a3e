/* list.h - what is in the queue, asked of k3queued */
#ifndef K3_CLIENT_LIST_H
#define K3_CLIENT_LIST_H

#include <stdbool.h>
#include <stddef.h>

#include "client/connect.h"
#include "wire/message.h"

enum { LIST_SHORT = 8 }; /* digits of an id that people see, at least */

/* Rows in the daemon's order; start from a zeroed struct. */
struct list {
    struct message_listing_row *v;
    size_t n;
    struct message *messages; /* own what the rows point to */
    size_t message_count;
};

/* Add rows: those of the asking user, those whose ids begin with these digits (finished ones too), or all that wait or
 * run (me false, digits NULL). */
enum exit_code list_fetch(struct connection *c, bool me, const char *digits, struct list *l, struct k3_error *err);
void list_clear(struct list *l);

/* The one request whose id begins with these digits; a sentence when there is none, or several.  tokens: NULL, or those
 * that its answer has. */
enum exit_code list_find(struct connection *c, const char *digits, struct k3_id *id, uint64_t *tokens,
                         struct k3_error *err);

/* Fewest digits, LIST_SHORT at least, that tell all rows apart. */
int list_digits(const struct list *l);

#endif
