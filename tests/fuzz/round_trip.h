/* round_trip.h - what holds for every body of the wire protocol */
#ifndef K3_FUZZ_ROUND_TRIP_H
#define K3_FUZZ_ROUND_TRIP_H

#include <stddef.h>

#include "wire/message.h"

/* Decode a body of this header.  A refused one has a sentence and leaves the message alone; an accepted one encodes
 * into values that came in, and decodes again into the same bytes. */
void round_trip(const struct message_header *head, const void *body, size_t len);

#endif
