#include "wire/layout.h"

#include <errno.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "common/alloc.h"
#include "wire/message.h"

/* What the array kinds have in common.  Reached by memcpy: the members' own pointer types differ. */
struct list {
    void *v;
    size_t n;
};

static struct list list_of(const void *member)
{
    struct list l;
    memcpy(&l, member, sizeof l);
    return l;
}

static int list_store(void *member, void *v, size_t n)
{
    struct list l = {v, n};
    memcpy(member, &l, sizeof l);
    return 0;
}

/* UTF-8 as in RFC 3629: no overlong forms, no surrogates, nothing above U+10FFFF. */
static bool is_utf8(const char *s, size_t len)
{
    const unsigned char *p = (const unsigned char *)s, *end = p + len;

    while (p < end) {
        unsigned char b = *p++;
        int more = b < 0x80                 ? 0
                   : b >= 0xc2 && b <= 0xdf ? 1
                   : b >= 0xe0 && b <= 0xef ? 2
                   : b >= 0xf0 && b <= 0xf4 ? 3
                                            : -1;
        if (more < 0 || end - p < more)
            return false;
        if ((b == 0xe0 && *p < 0xa0) || (b == 0xed && *p > 0x9f) || (b == 0xf0 && *p < 0x90) ||
            (b == 0xf4 && *p > 0x8f))
            return false;
        for (; more > 0; more--)
            if ((*p++ & 0xc0) != 0x80)
                return false;
    }
    return true;
}

/* Encoding.  A function that refuses returns the reason, else NULL. */

static const char too_large[] = "larger than allowed";
static const char not_utf8[] = "not UTF-8 text";
static const char no_memory[] = "out of memory";

static const char *put_str(msgpack_packer *to, const char *s, size_t len, size_t limit)
{
    if (len > limit)
        return too_large;
    if (!is_utf8(s, len))
        return not_utf8;
    msgpack_pack_str_with_body(to, s, len);
    return NULL;
}

static const char *put_bool(const struct field *f, const void *from, msgpack_packer *to)
{
    (void)f;
    if (*(const bool *)from)
        msgpack_pack_true(to);
    else
        msgpack_pack_false(to);
    return NULL;
}

static const char *put_u32(const struct field *f, const void *from, msgpack_packer *to)
{
    uint32_t u = *(const uint32_t *)from;

    if (f->limit && u > f->limit)
        return too_large;
    msgpack_pack_uint32(to, u);
    return NULL;
}

static const char *put_u64(const struct field *f, const void *from, msgpack_packer *to)
{
    (void)f;
    msgpack_pack_uint64(to, *(const uint64_t *)from);
    return NULL;
}

static const char *check_f64(const struct field *f, double d)
{
    if (!isfinite(d) || d < 0)
        return "not a number from 0 up";
    return f->limit && d > (double)f->limit ? too_large : NULL;
}

static const char *put_f64(const struct field *f, const void *from, msgpack_packer *to)
{
    double d = *(const double *)from;
    const char *wrong = check_f64(f, d);

    if (!wrong)
        msgpack_pack_double(to, d);
    return wrong;
}

static const char *check_signed(double most, double d)
{
    return isfinite(d) && fabs(d) <= most ? NULL : "not a number within its limits";
}

static const char *put_signed(const struct field *f, const void *from, msgpack_packer *to)
{
    double d = *(const double *)from;
    const char *wrong = check_signed((double)f->limit, d);

    if (!wrong)
        msgpack_pack_double(to, d);
    return wrong;
}

static const char *put_name(const struct field *f, const void *from, msgpack_packer *to)
{
    unsigned int e = *(const unsigned int *)from;

    if (e >= f->limit)
        return "not one of its values";
    return put_str(to, f->names[e], strlen(f->names[e]), MESSAGE_NAME);
}

static const char *put_string(const struct field *f, const void *from, msgpack_packer *to)
{
    const char *s = *(char *const *)from;

    return s ? put_str(to, s, strlen(s), f->limit) : "missing";
}

static const char *put_text(const struct field *f, const void *from, msgpack_packer *to)
{
    const struct message_text *t = from;

    return put_str(to, t->len ? t->data : "", t->len, f->limit);
}

static const char *put_bytes(const struct field *f, const void *from, msgpack_packer *to)
{
    const struct message_bytes *b = from;

    if (b->len > f->limit)
        return too_large;
    msgpack_pack_bin_with_body(to, b->len ? b->data : (const uint8_t *)"", b->len);
    return NULL;
}

static const char *put_id(const struct field *f, const void *from, msgpack_packer *to)
{
    const struct k3_id *id = from;

    (void)f;
    msgpack_pack_bin_with_body(to, id->bytes, sizeof id->bytes);
    return NULL;
}

static const char *put_u32s(const struct field *f, const void *from, msgpack_packer *to)
{
    const struct message_u32s *a = from;

    if (a->n > f->limit)
        return too_large;
    msgpack_pack_array(to, a->n);
    for (size_t i = 0; i < a->n; i++)
        msgpack_pack_uint32(to, a->v[i]);
    return NULL;
}

static const char *put_u64s(const struct field *f, const void *from, msgpack_packer *to)
{
    const struct message_u64s *a = from;

    if (a->n > f->limit)
        return too_large;
    msgpack_pack_array(to, a->n);
    for (size_t i = 0; i < a->n; i++)
        msgpack_pack_uint64(to, a->v[i]);
    return NULL;
}

static const char *put_f32s(const struct field *f, const void *from, msgpack_packer *to)
{
    const struct message_f32s *a = from;
    const char *wrong = a->n > f->limit ? too_large : NULL;

    msgpack_pack_array(to, a->n);
    for (size_t i = 0; i < a->n && !wrong; i++) {
        wrong = check_signed((double)f->each, a->v[i]);
        msgpack_pack_float(to, a->v[i]);
    }
    return wrong;
}

static const char *put_strings(const struct field *f, const void *from, msgpack_packer *to)
{
    const struct message_strings *a = from;
    const char *wrong = a->n > f->limit ? too_large : NULL;

    msgpack_pack_array(to, a->n);
    for (size_t i = 0; i < a->n && !wrong; i++)
        wrong = put_str(to, a->v[i], strlen(a->v[i]), f->each);
    return wrong;
}

/* Decoding, into zeroed members. */

static const char *take_str(const msgpack_object *o, char **text, size_t *len, size_t limit)
{
    if (o->type != MSGPACK_OBJECT_STR)
        return "not a string";
    if (o->via.str.size > limit)
        return too_large;
    if (!is_utf8(o->via.str.ptr, o->via.str.size))
        return not_utf8;
    if (!(*text = k3_try_alloc(o->via.str.size + 1, 1)))
        return no_memory;
    if (o->via.str.size)
        memcpy(*text, o->via.str.ptr, o->via.str.size);
    *len = o->via.str.size;
    return NULL;
}

/* A string of ours ends at its NUL, so it holds no other. */
static const char *take_cstr(const msgpack_object *o, char **text, size_t limit)
{
    size_t len;

    if (o->type == MSGPACK_OBJECT_STR && o->via.str.size && memchr(o->via.str.ptr, 0, o->via.str.size))
        return "a string with a NUL in it";
    return take_str(o, text, &len, limit);
}

static const char *take_bool(const struct field *f, const msgpack_object *o, void *to)
{
    (void)f;
    if (o->type != MSGPACK_OBJECT_BOOLEAN)
        return "not true or false";
    *(bool *)to = o->via.boolean;
    return NULL;
}

static const char *take_u32(const struct field *f, const msgpack_object *o, void *to)
{
    if (o->type != MSGPACK_OBJECT_POSITIVE_INTEGER)
        return "not an unsigned integer";
    if (o->via.u64 > (f->limit ? f->limit : UINT32_MAX))
        return too_large;
    *(uint32_t *)to = (uint32_t)o->via.u64;
    return NULL;
}

static const char *take_u64(const struct field *f, const msgpack_object *o, void *to)
{
    (void)f;
    if (o->type != MSGPACK_OBJECT_POSITIVE_INTEGER)
        return "not an unsigned integer";
    *(uint64_t *)to = o->via.u64;
    return NULL;
}

static bool is_number(const msgpack_object *o, double *d)
{
    if (o->type == MSGPACK_OBJECT_FLOAT64 || o->type == MSGPACK_OBJECT_FLOAT32)
        *d = o->via.f64;
    else if (o->type == MSGPACK_OBJECT_POSITIVE_INTEGER)
        *d = (double)o->via.u64;
    else if (o->type == MSGPACK_OBJECT_NEGATIVE_INTEGER)
        *d = (double)o->via.i64;
    else
        return false;
    return true;
}

static const char *take_f64(const struct field *f, const msgpack_object *o, void *to)
{
    double d;
    const char *wrong = is_number(o, &d) ? check_f64(f, d) : "not a number from 0 up";

    if (!wrong)
        *(double *)to = d;
    return wrong;
}

static const char *take_signed(const struct field *f, const msgpack_object *o, void *to)
{
    double d;
    const char *wrong = is_number(o, &d) ? check_signed((double)f->limit, d) : "not a number";

    if (!wrong)
        *(double *)to = d;
    return wrong;
}

static const char *take_name(const struct field *f, const msgpack_object *o, void *to)
{
    if (o->type != MSGPACK_OBJECT_STR)
        return "not a string";
    for (unsigned int e = 0; e < f->limit; e++)
        if (strlen(f->names[e]) == o->via.str.size && !memcmp(f->names[e], o->via.str.ptr, o->via.str.size)) {
            *(unsigned int *)to = e;
            return NULL;
        }
    return "not one of its values";
}

static const char *take_string(const struct field *f, const msgpack_object *o, void *to)
{
    return take_cstr(o, to, f->limit);
}

static const char *take_text(const struct field *f, const msgpack_object *o, void *to)
{
    struct message_text *t = to;

    return take_str(o, &t->data, &t->len, f->limit);
}

static const char *take_bytes(const struct field *f, const msgpack_object *o, void *to)
{
    struct message_bytes *b = to;

    if (o->type != MSGPACK_OBJECT_BIN)
        return "not binary";
    if (o->via.bin.size > f->limit)
        return too_large;
    if (o->via.bin.size == 0)
        return NULL;
    if (!(b->data = k3_try_alloc(o->via.bin.size, 1)))
        return no_memory;
    memcpy(b->data, o->via.bin.ptr, o->via.bin.size);
    b->len = o->via.bin.size;
    return NULL;
}

static const char *take_id(const struct field *f, const msgpack_object *o, void *to)
{
    struct k3_id *id = to;

    (void)f;
    if (o->type != MSGPACK_OBJECT_BIN || o->via.bin.size != sizeof id->bytes)
        return "not an id of 16 bytes";
    memcpy(id->bytes, o->via.bin.ptr, sizeof id->bytes);
    return NULL;
}

/* Memory for the elements of an array kind, hung into the member at once so that layout_clear() finds it. */
static const char *take_list(const struct field *f, const msgpack_object *o, void *to, size_t size, void **v)
{
    if (o->type != MSGPACK_OBJECT_ARRAY)
        return "not an array";
    if (o->via.array.size > f->limit)
        return too_large;
    *v = NULL;
    if (o->via.array.size == 0)
        return NULL;
    if (!(*v = k3_try_alloc(o->via.array.size, size)))
        return no_memory;
    list_store(to, *v, o->via.array.size);
    return NULL;
}

static const char *take_u32s(const struct field *f, const msgpack_object *o, void *to)
{
    static const struct field any = {.kind = FIELD_U32};
    void *v;
    const char *wrong = take_list(f, o, to, sizeof(uint32_t), &v);

    for (uint32_t i = 0; !wrong && i < o->via.array.size; i++)
        wrong = take_u32(&any, &o->via.array.ptr[i], (uint32_t *)v + i);
    return wrong;
}

static const char *take_u64s(const struct field *f, const msgpack_object *o, void *to)
{
    void *v;
    const char *wrong = take_list(f, o, to, sizeof(uint64_t), &v);

    for (uint32_t i = 0; !wrong && i < o->via.array.size; i++)
        wrong = take_u64(f, &o->via.array.ptr[i], (uint64_t *)v + i);
    return wrong;
}

static const char *take_f32s(const struct field *f, const msgpack_object *o, void *to)
{
    void *v;
    double d;
    const char *wrong = take_list(f, o, to, sizeof(float), &v);

    for (uint32_t i = 0; !wrong && i < o->via.array.size; i++) {
        wrong = is_number(&o->via.array.ptr[i], &d) ? check_signed((double)f->each, d) : "not a number";
        ((float *)v)[i] = wrong ? 0 : (float)d;
    }
    return wrong;
}

static const char *take_strings(const struct field *f, const msgpack_object *o, void *to)
{
    void *v;
    const char *wrong = take_list(f, o, to, sizeof(char *), &v);

    for (uint32_t i = 0; !wrong && i < o->via.array.size; i++)
        wrong = take_cstr(&o->via.array.ptr[i], (char **)v + i, f->each);
    return wrong;
}

/* MAPS have sentences of their own, so they go by layout_*() below. */
static const struct {
    const char *(*put)(const struct field *f, const void *from, msgpack_packer *to);
    const char *(*take)(const struct field *f, const msgpack_object *o, void *to);
} kinds[] = {
    [FIELD_BOOL] = {put_bool, take_bool}, [FIELD_U32] = {put_u32, take_u32},
    [FIELD_U64] = {put_u64, take_u64},    [FIELD_F64] = {put_f64, take_f64},
    [FIELD_NAME] = {put_name, take_name}, [FIELD_STRING] = {put_string, take_string},
    [FIELD_TEXT] = {put_text, take_text}, [FIELD_BYTES] = {put_bytes, take_bytes},
    [FIELD_ID] = {put_id, take_id},       [FIELD_U32S] = {put_u32s, take_u32s},
    [FIELD_U64S] = {put_u64s, take_u64s}, [FIELD_SIGNED] = {put_signed, take_signed},
    [FIELD_F32S] = {put_f32s, take_f32s}, [FIELD_STRINGS] = {put_strings, take_strings},
    [FIELD_MAPS] = {NULL, NULL},
};

static bool is_blank(const struct field *f, const void *member)
{
    switch (f->kind) {
    case FIELD_BOOL:
        return !*(const bool *)member;
    case FIELD_U32:
        return *(const uint32_t *)member == 0;
    case FIELD_U64:
        return *(const uint64_t *)member == 0;
    case FIELD_F64:
    case FIELD_SIGNED:
        return *(const double *)member == 0;
    case FIELD_NAME:
        return *(const unsigned int *)member == 0;
    case FIELD_STRING:
        return !*(char *const *)member;
    case FIELD_TEXT:
        return ((const struct message_text *)member)->len == 0;
    case FIELD_BYTES:
        return ((const struct message_bytes *)member)->len == 0;
    case FIELD_ID:
        return k3_id_is_none(member);
    case FIELD_U32S:
    case FIELD_U64S:
    case FIELD_F32S:
    case FIELD_STRINGS:
    case FIELD_MAPS:
        return list_of(member).n == 0;
    }
    return false;
}

static int put_maps(const struct layout *l, const struct field *f, uint16_t version, const void *member,
                    msgpack_packer *to, struct k3_error *err)
{
    struct list list = list_of(member);

    if (list.n > f->limit) {
        errno = EMSGSIZE;
        return k3_errorf(err, "%s: %s: more than %zu", l->name, f->key, f->limit);
    }
    msgpack_pack_array(to, list.n);
    for (size_t i = 0; i < list.n; i++)
        if (layout_encode(f->of, version, (const char *)list.v + i * f->of->size, to, err) < 0)
            return -1;
    return 0;
}

static int take_maps(const struct layout *l, const struct field *f, uint16_t version, const msgpack_object *o,
                     void *member, struct k3_error *err)
{
    void *v;
    const char *wrong = take_list(f, o, member, f->of->size, &v);

    if (wrong) {
        errno = wrong == no_memory ? ENOMEM : EPROTO;
        return k3_errorf(err, "%s: %s: %s", l->name, f->key, wrong);
    }
    for (uint32_t i = 0; i < o->via.array.size; i++)
        if (layout_decode(f->of, version, &o->via.array.ptr[i], (char *)v + i * f->of->size, err) < 0)
            return -1;
    return 0;
}

int layout_encode(const struct layout *l, uint16_t version, const void *from, msgpack_packer *to, struct k3_error *err)
{
    uint64_t sent = 0;

    for (size_t i = 0; i < l->count; i++) {
        const struct field *f = &l->fields[i];
        if (!f->required && is_blank(f, (const char *)from + f->offset))
            continue;
        if (f->since <= version) {
            sent |= UINT64_C(1) << i;
        } else if (f->vital) {
            errno = EPROTONOSUPPORT;
            return k3_errorf(err, "%s: %s: the other side speaks protocol version %u, this came with %u", l->name,
                             f->key, version, f->since);
        }
    }
    msgpack_pack_map(to, (size_t)__builtin_popcountll(sent));
    for (size_t i = 0; i < l->count; i++) {
        const struct field *f = &l->fields[i];
        const void *member = (const char *)from + f->offset;
        if (!(sent >> i & 1))
            continue;
        msgpack_pack_str_with_body(to, f->key, strlen(f->key));
        if (f->kind == FIELD_MAPS) {
            if (put_maps(l, f, version, member, to, err) < 0)
                return -1;
            continue;
        }
        struct field told = *f;
        if (f->old_names && version < 2)
            told.names = f->old_names;
        const char *wrong = kinds[f->kind].put(&told, member, to);
        if (wrong) {
            errno = wrong == too_large ? EMSGSIZE : EINVAL;
            return k3_errorf(err, "%s: %s: %s", l->name, f->key, wrong);
        }
    }
    return 0;
}

static const struct field *find_field(const struct layout *l, uint16_t version, const msgpack_object *key)
{
    for (size_t i = 0; i < l->count; i++)
        if (l->fields[i].since <= version && strlen(l->fields[i].key) == key->via.str.size &&
            !memcmp(l->fields[i].key, key->via.str.ptr, key->via.str.size))
            return &l->fields[i];
    return NULL;
}

int layout_decode(const struct layout *l, uint16_t version, const msgpack_object *from, void *to, struct k3_error *err)
{
    uint64_t seen = 0;

    if (from->type != MSGPACK_OBJECT_MAP) {
        errno = EPROTO;
        return k3_errorf(err, "%s: not a map", l->name);
    }
    for (uint32_t i = 0; i < from->via.map.size; i++) {
        const msgpack_object *value = &from->via.map.ptr[i].val;
        const struct field *f =
            find_field(l, version, &from->via.map.ptr[i].key); /* scan_body() saw that it is a string */
        if (!f)
            continue;

        uint64_t bit = UINT64_C(1) << (f - l->fields);
        const char *wrong = seen & bit ? "given twice" : NULL;
        seen |= bit;
        void *member = (char *)to + f->offset;
        if (!wrong && f->kind == FIELD_MAPS) {
            if (take_maps(l, f, version, value, member, err) < 0)
                goto fail;
            continue;
        }
        if (!wrong)
            wrong = kinds[f->kind].take(f, value, member);
        if (wrong) {
            errno = wrong == no_memory ? ENOMEM : EPROTO;
            k3_errorf(err, "%s: %s: %s", l->name, f->key, wrong);
            goto fail;
        }
    }
    for (size_t i = 0; i < l->count; i++)
        if (l->fields[i].required && !(seen >> i & 1)) {
            errno = EPROTO;
            k3_errorf(err, "%s: %s: missing", l->name, l->fields[i].key);
            goto fail;
        }
    return 0;
fail:
    layout_clear(l, to);
    return -1;
}

void layout_clear(const struct layout *l, void *s)
{
    int saved = errno;

    for (size_t i = 0; i < l->count; i++) {
        const struct field *f = &l->fields[i];
        void *member = (char *)s + f->offset;
        struct list list;
        switch (f->kind) {
        case FIELD_STRING:
            free(*(char **)member);
            break;
        case FIELD_STRINGS:
            list = list_of(member);
            for (size_t k = 0; k < list.n; k++)
                free(((char **)list.v)[k]);
            free(list.v);
            break;
        case FIELD_MAPS:
            list = list_of(member);
            for (size_t k = 0; k < list.n; k++)
                layout_clear(f->of, (char *)list.v + k * f->of->size);
            free(list.v);
            break;
        case FIELD_TEXT:
        case FIELD_BYTES:
        case FIELD_U32S:
        case FIELD_U64S:
        case FIELD_F32S:
            free(list_of(member).v);
            break;
        default:
            break;
        }
    }
    memset(s, 0, l->size);
    errno = saved;
}
