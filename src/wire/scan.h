/* scan.h - look a msgpack body over before anything is allocated for it
 *
 * msgpack-c 4.0 reserves memory for as many elements as an array's or map's header declares before it has seen one:
 * five bytes make it ask for gigabytes (https://github.com/msgpack/msgpack-c/issues/1013).  So every body passes here
 * first. */
#ifndef K3_WIRE_SCAN_H
#define K3_WIRE_SCAN_H

#include <stddef.h>

#include "common/error.h"

/* Is this one msgpack map and nothing after it, with string keys, no ext types, every declared length within the bytes
 * that are left, and entries, elements, depth and number of values within the limits of message.h?  0, or -1 with
 * errno EPROTO.  Takes time in proportion to len and no memory. */
int scan_body(const void *body, size_t len, struct k3_error *err);

#endif
