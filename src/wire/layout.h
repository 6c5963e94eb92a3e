/* layout.h - a struct and a msgpack map, told apart by a table
 *
 * One row a field; the same row encodes, decodes and frees.  Used by message.c only. */
#ifndef K3_WIRE_LAYOUT_H
#define K3_WIRE_LAYOUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <msgpack.h>

#include "common/error.h"

enum field_kind {
    FIELD_BOOL,
    FIELD_U32,
    FIELD_U64,
    FIELD_F64,     /* finite, not negative */
    FIELD_SIGNED,  /* double, finite, from -limit to limit */
    FIELD_NAME,    /* an enum; its name on the wire */
    FIELD_STRING,  /* char *, UTF-8 without NUL */
    FIELD_TEXT,    /* struct message_text */
    FIELD_BYTES,   /* struct message_bytes */
    FIELD_ID,      /* struct k3_id */
    FIELD_U32S,    /* struct message_u32s */
    FIELD_U64S,    /* struct message_u64s */
    FIELD_F32S,    /* struct message_f32s, each from -`each` to `each` */
    FIELD_STRINGS, /* struct message_strings */
    FIELD_MAPS     /* { struct X *v; size_t n; } with a layout of its own */
};

struct field {
    const char *key;
    enum field_kind kind;
    bool required; /* others are left out when zero or empty, and zero when left out */
    size_t offset;
    size_t limit; /* bytes or elements at most; the largest U32 or F64 (0: any); names of a NAME */
    size_t each;  /* STRINGS: bytes of one at most; F32S: the largest magnitude */
    const char *const *names;
    const char *const *old_names; /* what a peer of version 1 is told instead, where it does not know all */
    const struct layout *of;
    uint16_t since; /* the version that brought it (0: the first) and before which nobody is told ... */
    bool vital;     /* ... or without which the message would mean something else, so that it is refused */
};

struct layout {
    const char *name; /* for sentences */
    size_t size;      /* of the struct */
    size_t count;     /* rows, at most 64 */
    const struct field *fields;
};

/* The struct's fields as a msgpack map for a peer of this version; -1 names the field that breaks its limit (errno
 * EMSGSIZE or EINVAL) or that the peer does not know (EPROTONOSUPPORT). */
int layout_encode(const struct layout *l, uint16_t version, const void *from, msgpack_packer *to, struct k3_error *err);

/* The map's fields into a zeroed struct, as copies; what this version does not have is skipped; -1 names the key (errno
 * EPROTO, ENOMEM) and leaves it zeroed. */
int layout_decode(const struct layout *l, uint16_t version, const msgpack_object *from, void *to, struct k3_error *err);

/* Free the copies and zero the struct. */
void layout_clear(const struct layout *l, void *s);

#endif
