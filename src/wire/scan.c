#include "wire/scan.h"

#include <errno.h>
#include <stdint.h>

#include "wire/message.h"

struct scan {
    const uint8_t *at, *end;
    size_t objects;
    struct k3_error *err;
};

/* What a value's first byte says: bytes that follow as its payload, or elements. */
enum shape { SHAPE_SCALAR, SHAPE_STRING, SHAPE_BINARY, SHAPE_ARRAY, SHAPE_MAP };
struct head {
    enum shape shape;
    uint64_t count; /* bytes of a scalar, string or binary; elements of an array; entries of a map */
};

static int refuse(struct scan *s, const char *what)
{
    errno = EPROTO;
    return k3_errorf(s->err, "message body refused: %s", what);
}

static size_t left(const struct scan *s)
{
    return (size_t)(s->end - s->at);
}

/* A length of 1, 2 or 4 bytes, big endian. */
static int take_length(struct scan *s, int bytes, struct head *h, enum shape shape)
{
    if (left(s) < (size_t)bytes)
        return refuse(s, "it ends inside a length");
    h->shape = shape;
    h->count = 0;
    for (int i = 0; i < bytes; i++)
        h->count = h->count << 8 | *s->at++;
    return 0;
}

static int take_head(struct scan *s, struct head *h)
{
    if (left(s) == 0)
        return refuse(s, "it ends before its last value");
    if (++s->objects > MESSAGE_OBJECTS)
        return refuse(s, "too many values");

    uint8_t b = *s->at++;
    *h = (struct head){SHAPE_SCALAR, 0};
    if (b <= 0x7f || b >= 0xe0) /* small integers */
        return 0;
    if (b <= 0x8f)
        *h = (struct head){SHAPE_MAP, b & 15};
    else if (b <= 0x9f)
        *h = (struct head){SHAPE_ARRAY, b & 15};
    else if (b <= 0xbf)
        *h = (struct head){SHAPE_STRING, b & 31};
    else
        switch (b) {
        case 0xc0: /* nil, false, true */
        case 0xc2:
        case 0xc3:
            break;
        case 0xc4: /* bin 8, 16, 32 */
        case 0xc5:
        case 0xc6:
            return take_length(s, 1 << (b - 0xc4), h, SHAPE_BINARY);
        case 0xca: /* float 32, 64 */
        case 0xcb:
            h->count = b == 0xca ? 4 : 8;
            break;
        case 0xcc: /* uint and int of 8, 16, 32, 64 bits */
        case 0xcd:
        case 0xce:
        case 0xcf:
        case 0xd0:
        case 0xd1:
        case 0xd2:
        case 0xd3:
            h->count = 1u << ((b - 0xcc) & 3);
            break;
        case 0xd9: /* str 8, 16, 32 */
        case 0xda:
        case 0xdb:
            return take_length(s, 1 << (b - 0xd9), h, SHAPE_STRING);
        case 0xdc: /* array 16, 32 */
        case 0xdd:
            return take_length(s, b == 0xdc ? 2 : 4, h, SHAPE_ARRAY);
        case 0xde: /* map 16, 32 */
        case 0xdf:
            return take_length(s, b == 0xde ? 2 : 4, h, SHAPE_MAP);
        default: /* 0xc1 is never used; the others are ext types */
            return refuse(s, b == 0xc1 ? "a byte that msgpack does not use" : "an ext type");
        }
    return 0;
}

static int skip_payload(struct scan *s, const struct head *h)
{
    if (h->count > left(s))
        return refuse(s, "a declared length is larger than what is left");
    s->at += h->count;
    return 0;
}

static int value(struct scan *s, int depth);

static int container(struct scan *s, const struct head *h, int depth)
{
    bool map = h->shape == SHAPE_MAP;

    if (depth > MESSAGE_DEPTH)
        return refuse(s, "nested too deep");
    if (h->count > (uint64_t)(map ? MESSAGE_ENTRIES : MESSAGE_IDS))
        return refuse(s, map ? "a map with too many entries" : "an array with too many elements");
    if (h->count * (map ? 2 : 1) > left(s)) /* a value takes a byte at least */
        return refuse(s, "a declared count is larger than what is left");
    for (uint64_t i = 0; i < h->count; i++) {
        if (map) {
            struct head key;
            if (take_head(s, &key) < 0)
                return -1;
            if (key.shape != SHAPE_STRING)
                return refuse(s, "a key that is not a string");
            if (skip_payload(s, &key) < 0)
                return -1;
        }
        if (value(s, depth) < 0)
            return -1;
    }
    return 0;
}

/* depth: of the container that holds the value.  Recursion ends at MESSAGE_DEPTH. */
static int value(struct scan *s, int depth)
{
    struct head h;

    if (take_head(s, &h) < 0)
        return -1;
    if (h.shape == SHAPE_ARRAY || h.shape == SHAPE_MAP)
        return container(s, &h, depth + 1);
    return skip_payload(s, &h);
}

int scan_body(const void *body, size_t len, struct k3_error *err)
{
    struct scan s = {.at = body, .end = (const uint8_t *)body + len, .err = err};
    struct head h;

    if (len > MESSAGE_BODY)
        return refuse(&s, "larger than 8 MiB");
    if (take_head(&s, &h) < 0)
        return -1;
    if (h.shape != SHAPE_MAP)
        return refuse(&s, "not a map");
    if (container(&s, &h, 1) < 0)
        return -1;
    if (left(&s) > 0)
        return refuse(&s, "bytes after its end");
    return 0;
}
