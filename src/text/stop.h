/* stop.h - where a stop string begins in text that comes in parts
 *
 * The matcher reads the emitted text once and keeps none of it: offsets count bytes from the stream's first.  The
 * caller keeps the text from the last released offset on, which is less than STOP_BYTES_MAX bytes and what was just
 * fed. */
#ifndef K3_TEXT_STOP_H
#define K3_TEXT_STOP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"

#define STOP_STRINGS_MAX 16
#define STOP_BYTES_MAX 256 /* of one string */

struct stop;

/* Copies n strings of len[i] bytes; n may be 0, for which nothing ever matches or is held back. */
struct stop *stop_create(const char *const *strings, const size_t *len, size_t n, struct k3_error *err);
void stop_destroy(struct stop *s);

/* Read more of the stream.  Everything before *release may be shown: no match can begin there any more.  True once a
 * string is complete: of those that end first the longest counts, it begins at *release, and what follows is ignored.
 * How the stream is cut into parts does not matter; *release never falls inside a character of UTF-8 text. */
bool stop_feed(struct stop *s, const char *text, size_t len, uint64_t *release);

#endif
