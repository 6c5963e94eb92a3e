#include "round_trip.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <msgpack.h>

#include "fuzz.h"

static void require_same_header(const struct message_header *a, const struct message_header *b)
{
    require(a->version == b->version && a->type == b->type && a->flags == b->flags &&
                memcmp(&a->id, &b->id, sizeof a->id) == 0,
            "%s: its header changed", message_type_name(a->type));
}

static const msgpack_object *find(const msgpack_object *map, const msgpack_object *key)
{
    for (uint32_t i = 0; i < map->via.map.size; i++)
        if (msgpack_object_equal(map->via.map.ptr[i].key, *key))
            return &map->via.map.ptr[i].val;
    return NULL;
}

static double number(const msgpack_object *o)
{
    return o->type == MSGPACK_OBJECT_POSITIVE_INTEGER ? (double)o->via.u64 : o->via.f64;
}

/* All that went out had come in.  What had come in may be more: unknown keys, zeros. */
static bool came_in(const msgpack_object *out, const msgpack_object *in)
{
    if (!in)
        return false;
    if (out->type == MSGPACK_OBJECT_FLOAT64)
        return number(in) == number(out);
    if (out->type != MSGPACK_OBJECT_ARRAY && out->type != MSGPACK_OBJECT_MAP)
        return msgpack_object_equal(*out, *in);
    if (out->type != in->type)
        return false;
    if (out->type == MSGPACK_OBJECT_MAP) {
        for (uint32_t i = 0; i < out->via.map.size; i++)
            if (!came_in(&out->via.map.ptr[i].val, find(in, &out->via.map.ptr[i].key)))
                return false;
        return true;
    }
    for (uint32_t i = 0; i < out->via.array.size; i++)
        if (i >= in->via.array.size || !came_in(&out->via.array.ptr[i], &in->via.array.ptr[i]))
            return false;
    return out->via.array.size == in->via.array.size;
}

/* Both were accepted, so unpacking them is safe. */
static void require_came_in(const struct message_bytes *encoded, const void *body, size_t len)
{
    msgpack_unpacked out, in;

    msgpack_unpacked_init(&out);
    msgpack_unpacked_init(&in);
    require(msgpack_unpack_next(&out, (char *)encoded->data, encoded->len, NULL) == MSGPACK_UNPACK_SUCCESS &&
                msgpack_unpack_next(&in, body, len, NULL) == MSGPACK_UNPACK_SUCCESS,
            "not unpacked");
    require(came_in(&out.data, &in.data), "another value than came in");
    msgpack_unpacked_destroy(&out);
    msgpack_unpacked_destroy(&in);
}

void round_trip(const struct message_header *head, const void *body, size_t len)
{
    uint8_t header[MESSAGE_HEADER];
    struct message_bytes first, second;
    struct message_header again;
    struct message m, untouched;
    struct k3_error err = {""};

    memset(&m, 0x5a, sizeof m);
    untouched = m;
    if (message_decode(&m, head, body, len, &err) < 0) {
        fuzz_require_sentence(&err);
        require(memcmp(&m, &untouched, sizeof m) == 0, "a refused body changed the message");
        return;
    }
    require(message_encode(&m, header, &first, &err) == 0, "decoded, but not encoded: %s", err.text);
    message_clear(&m);
    require_came_in(&first, body, len);
    require(message_decode_header(&again, header, sizeof header, &err) == 0, "%s", err.text);
    require_same_header(head, &again);
    require(message_decode(&m, &again, first.data, first.len, &err) == 0, "not decoded again: %s", err.text);
    require(message_encode(&m, header, &second, &err) == 0, "not encoded again: %s", err.text);
    message_clear(&m);
    require(first.len == second.len && memcmp(first.data, second.data, first.len) == 0,
            "%s: the second encoding differs", message_type_name(head->type));
    free(first.data);
    free(second.data);
}
