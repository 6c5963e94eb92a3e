/* id.h - the 128-bit id of a request
 *
 * The client draws it, so that a retry is the same request.  People see and type the 32 lower-case hex digits, or as
 * many of the first as are unambiguous; which ids there are to be ambiguous with only the daemon knows. */
#ifndef K3_WIRE_ID_H
#define K3_WIRE_ID_H

#include <stdbool.h>
#include <stdint.h>

enum { K3_ID_BYTES = 16, K3_ID_DIGITS = 32 };

struct k3_id {
    uint8_t bytes[K3_ID_BYTES];
};

/* From the kernel's random source. */
void k3_id_random(struct k3_id *id);

/* The 32 digits and a NUL into text, which is returned. */
char *k3_id_format(const struct k3_id *id, char text[K3_ID_DIGITS + 1]);

/* Exactly 32 hex digits of either case.  0, or -1 with errno EINVAL and *id untouched. */
int k3_id_parse(struct k3_id *id, const char *text);

bool k3_id_equal(const struct k3_id *a, const struct k3_id *b);
/* All zero: no request has this id. */
bool k3_id_is_none(const struct k3_id *id);

/* 1 to 32 hex digits: something that k3_id_has_prefix() can look for. */
bool k3_id_is_prefix(const char *digits);
/* Does id begin with these digits (either case)? */
bool k3_id_has_prefix(const struct k3_id *id, const char *digits);

#endif
