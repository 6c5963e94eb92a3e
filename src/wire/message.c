#include "wire/message.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <msgpack.h>

#include "wire/layout.h"
#include "wire/scan.h"

static const char *const request_states[REQUEST_STATES] = {
    [REQUEST_QUEUED] = "QUEUED",   [REQUEST_RUNNING] = "RUNNING", [REQUEST_ENDING] = "ENDING",
    [REQUEST_DONE] = "DONE",       [REQUEST_FAILED] = "FAILED",   [REQUEST_CANCELLED] = "CANCELLED",
    [REQUEST_EXPIRED] = "EXPIRED", [REQUEST_HELD] = "HELD",       [REQUEST_SUSPENDED] = "SUSPENDED"};
static const char *const engine_states[ENGINE_STATES] = {[ENGINE_STARTING] = "starting",
                                                         [ENGINE_LOADING] = "loading",
                                                         [ENGINE_SERVING] = "serving",
                                                         [ENGINE_DRAINING] = "draining",
                                                         [ENGINE_FENCED] = "fenced"};
/* The first programs of version 1 did not know of fences. */
static const char *const engine_states_1[ENGINE_STATES] = {[ENGINE_STARTING] = "starting",
                                                           [ENGINE_LOADING] = "loading",
                                                           [ENGINE_SERVING] = "serving",
                                                           [ENGINE_DRAINING] = "draining",
                                                           [ENGINE_FENCED] = "draining"};
static const char *const done_whys[DONE_WHYS] = {[DONE_STOP] = "stop",
                                                 [DONE_LENGTH] = "length",
                                                 [DONE_CANCELLED] = "cancelled",
                                                 [DONE_FAILED] = "failed",
                                                 [DONE_EXPIRED] = "expired"};
static const char *const delta_channels[CHANNELS] = {
    [CHANNEL_THINK] = "think", [CHANNEL_RESPONSE] = "response", [CHANNEL_TOOL] = "tool"};

/* Enums are read and written through unsigned int. */
_Static_assert(sizeof(enum request_state) == sizeof(unsigned int), "an enum is an int");

/* One row a field of struct S; the member's name is the key.  limit and what follows as in struct field. */
#define FIELD(S, need, path, name, what, most, ...)                                                                    \
    {                                                                                                                  \
        .key = #name, .kind = what, .required = need, .offset = offsetof(struct S, path), .limit = most, __VA_ARGS__   \
    }
#define ROW(S, member, what, ...) FIELD(S, false, member, member, what, __VA_ARGS__, )
#define NEED(S, member, what, ...) FIELD(S, true, member, member, what, __VA_ARGS__, )
#define NAMES(list) sizeof(list) / sizeof *(list), .names = (list)
#define LAYOUT(id, text, S)                                                                                            \
    static const struct layout id##_layout = {text, sizeof(struct S), sizeof id##_fields / sizeof *id##_fields,        \
                                              id##_fields}

/* A member of the struct message_ask in S. */
#define ASK(S, need, member, what, ...) FIELD(S, need, ask.member, member, what, __VA_ARGS__, )
#define ASK_ROWS(S)                                                                                                    \
    ASK(S, false, req, FIELD_BYTES, MESSAGE_REQUEST), ASK(S, false, tok, FIELD_U32S, MESSAGE_IDS),                     \
        ASK(S, false, max, FIELD_U32, 0), ASK(S, true, temp, FIELD_F64, 10), ASK(S, true, topp, FIELD_F64, 1),         \
        ASK(S, false, topk, FIELD_U32, 0), ASK(S, false, sd, FIELD_BOOL, 0), ASK(S, false, seed, FIELD_U64, 0),        \
        ASK(S, false, stop, FIELD_STRINGS, MESSAGE_STOPS, .each = MESSAGE_STOP), ASK(S, false, ieos, FIELD_BOOL, 0),   \
        ASK(S, false, minp, FIELD_F64, 1), ASK(S, false, rep, FIELD_F64, 100), ASK(S, false, pres, FIELD_SIGNED, 2),   \
        ASK(S, false, freq, FIELD_SIGNED, 2), ASK(S, false, bi, FIELD_U32S, MESSAGE_BIASES),                           \
        ASK(S, false, bv, FIELD_F32S, MESSAGE_BIASES, .each = 100), ASK(S, false, lp, FIELD_U32, MESSAGE_LOGPROBS),    \
        ASK(S, false, n, FIELD_U32, MESSAGE_CHOICES, .since = 2, .vital = true)

static const struct field submit_fields[] = {
    ASK_ROWS(message_submit),
    ROW(message_submit, watch, FIELD_BOOL, 0),
    ROW(message_submit, name, FIELD_STRING, MESSAGE_NAME),
    ROW(message_submit, dl, FIELD_F64, 0, .since = 2, .vital = true),
};
LAYOUT(submit, "SUBMIT", message_submit);

static const struct field attach_fields[] = {
    ROW(message_attach, off, FIELD_U64, 0),
    ROW(message_attach, offs, FIELD_U64S, MESSAGE_CHOICES, .since = 2, .vital = true),
};
LAYOUT(attach, "ATTACH", message_attach);

static const struct field list_fields[] = {
    ROW(message_list, me, FIELD_BOOL, 0),
    ROW(message_list, id, FIELD_STRING, K3_ID_DIGITS),
};
LAYOUT(list, "LIST", message_list);

static const struct field accepted_fields[] = {
    ROW(message_accepted, place, FIELD_U32, 0),
    ROW(message_accepted, reason, FIELD_STRING, MESSAGE_SENTENCE),
    ROW(message_accepted, eff, FIELD_STRING, MESSAGE_NAME),
};
LAYOUT(accepted, "ACCEPTED", message_accepted);

static const struct field refused_fields[] = {
    NEED(message_refused, code, FIELD_U32, 255),
    NEED(message_refused, msg, FIELD_STRING, MESSAGE_SENTENCE),
    ROW(message_refused, retry, FIELD_F64, 0),
};
LAYOUT(refused, "REFUSED", message_refused);

static const struct field state_fields[] = {
    NEED(message_state, state, FIELD_NAME, NAMES(request_states)), ROW(message_state, place, FIELD_U32, 0),
    ROW(message_state, reason, FIELD_STRING, MESSAGE_SENTENCE),    ROW(message_state, job, FIELD_U32, 0),
    ROW(message_state, n, FIELD_U32, MESSAGE_CHOICES, .since = 2),
};
LAYOUT(state, "STATE", message_state);

static const struct field part_fields[] = {
    NEED(message_part, ch, FIELD_NAME, NAMES(delta_channels)),
    ROW(message_part, txt, FIELD_TEXT, MESSAGE_STRING),
    ROW(message_part, ti, FIELD_U32, 0),
    ROW(message_part, tn, FIELD_STRING, MESSAGE_STRING),
};
LAYOUT(part, "DELTA part", message_part);

static const struct field delta_fields[] = {
    ROW(message_delta, c, FIELD_U32, MESSAGE_CHOICES - 1, .since = 2, .vital = true),
    NEED(message_delta, off, FIELD_U64, 0),
    NEED(message_delta, ids, FIELD_U32S, MESSAGE_IDS),
    ROW(message_delta, parts, FIELD_MAPS, MESSAGE_PARTS, .of = &part_layout),
    ROW(message_delta, lpi, FIELD_U32S, MESSAGE_IDS),
    ROW(message_delta, lpv, FIELD_F32S, MESSAGE_IDS, .each = 10000),
};
LAYOUT(delta, "DELTA", message_delta);

static const struct field choice_fields[] = {
    NEED(message_choice, why, FIELD_NAME, NAMES(done_whys)),
    ROW(message_choice, ctok, FIELD_U32, 0),
};
LAYOUT(choice, "DONE choice", message_choice);

static const struct field done_fields[] = {
    NEED(message_done, why, FIELD_NAME, NAMES(done_whys)),
    ROW(message_done, msg, FIELD_STRING, MESSAGE_SENTENCE),
    ROW(message_done, ptok, FIELD_U32, 0),
    ROW(message_done, ctok, FIELD_U32, 0),
    ROW(message_done, cached, FIELD_U32, 0, .since = 2),
    ROW(message_done, prompt_s, FIELD_F64, 0),
    ROW(message_done, gen_s, FIELD_F64, 0),
    ROW(message_done, wait_s, FIELD_F64, 0),
    ROW(message_done, cs, FIELD_MAPS, MESSAGE_CHOICES, .of = &choice_layout, .since = 2),
};
LAYOUT(done, "DONE", message_done);

static const struct field row_fields[] = {
    NEED(message_listing_row, id, FIELD_ID, 0),
    ROW(message_listing_row, user, FIELD_STRING, MESSAGE_NAME),
    ROW(message_listing_row, name, FIELD_STRING, MESSAGE_NAME),
    NEED(message_listing_row, state, FIELD_NAME, NAMES(request_states)),
    ROW(message_listing_row, reason, FIELD_STRING, MESSAGE_SENTENCE),
    ROW(message_listing_row, place, FIELD_U32, 0),
    ROW(message_listing_row, job, FIELD_U32, 0),
    ROW(message_listing_row, ptok, FIELD_U32, 0),
    ROW(message_listing_row, ctok, FIELD_U32, 0),
    ROW(message_listing_row, max, FIELD_U32, 0),
    ROW(message_listing_row, submit_t, FIELD_F64, 0),
    ROW(message_listing_row, start_t, FIELD_F64, 0),
};
LAYOUT(row, "LISTING row", message_listing_row);

static const struct field listing_fields[] = {
    ROW(message_listing, rows, FIELD_MAPS, MESSAGE_ROWS, .of = &row_layout),
    ROW(message_listing, more, FIELD_BOOL, 0),
};
LAYOUT(listing, "LISTING", message_listing);

static const struct field engine_fields[] = {
    NEED(message_engine, job, FIELD_U32, 0),
    ROW(message_engine, node, FIELD_STRING, MESSAGE_NAME),
    NEED(message_engine, state, FIELD_NAME, NAMES(engine_states), .old_names = engine_states_1),
    ROW(message_engine, model, FIELD_STRING, MESSAGE_SENTENCE),
    ROW(message_engine, ranks, FIELD_U32, MESSAGE_RANKS),
    ROW(message_engine, layout, FIELD_STRING, MESSAGE_NAME),
    ROW(message_engine, slots, FIELD_U32, 0),
    ROW(message_engine, used, FIELD_U32, 0),
    ROW(message_engine, rate, FIELD_F64, 0),
    ROW(message_engine, since, FIELD_F64, 0),
    ROW(message_engine, ld, FIELD_U64S, MESSAGE_RANKS),
    ROW(message_engine, lt, FIELD_U64S, MESSAGE_RANKS),
};
LAYOUT(engine, "INFO_REPLY engine", message_engine);

static const struct field info_reply_fields[] = {
    ROW(message_info_reply, ver, FIELD_STRING, MESSAGE_NAME),
    ROW(message_info_reply, up_s, FIELD_F64, 0),
    ROW(message_info_reply, queued, FIELD_U32, 0),
    ROW(message_info_reply, running, FIELD_U32, 0),
    ROW(message_info_reply, model, FIELD_STRING, MESSAGE_SENTENCE),
    ROW(message_info_reply, engines, FIELD_MAPS, MESSAGE_ROWS, .of = &engine_layout),
};
LAYOUT(info_reply, "INFO_REPLY", message_info_reply);

static const struct field held_fields[] = {
    NEED(message_held, id, FIELD_ID, 0),
    ROW(message_held, n, FIELD_U64, 0),
    ROW(message_held, offs, FIELD_U64S, MESSAGE_CHOICES, .since = 2),
};
LAYOUT(held, "ENGINE_HELLO held", message_held);

static const struct field engine_hello_fields[] = {
    NEED(message_engine_hello, job, FIELD_U32, 0),
    NEED(message_engine_hello, inc, FIELD_U64, 0),
    ROW(message_engine_hello, node, FIELD_STRING, MESSAGE_NAME),
    ROW(message_engine_hello, model, FIELD_STRING, MESSAGE_SENTENCE),
    ROW(message_engine_hello, ranks, FIELD_U32, MESSAGE_RANKS),
    ROW(message_engine_hello, layout, FIELD_STRING, MESSAGE_NAME),
    ROW(message_engine_hello, key, FIELD_STRING, MESSAGE_NAME),
    ROW(message_engine_hello, vmin, FIELD_U32, UINT16_MAX),
    ROW(message_engine_hello, vmax, FIELD_U32, UINT16_MAX),
    ROW(message_engine_hello, held, FIELD_MAPS, MESSAGE_ROWS, .of = &held_layout),
};
LAYOUT(engine_hello, "ENGINE_HELLO", message_engine_hello);

static const struct field engine_load_fields[] = {
    ROW(message_engine_load, ld, FIELD_U64S, MESSAGE_RANKS),
    ROW(message_engine_load, lt, FIELD_U64S, MESSAGE_RANKS),
};
LAYOUT(engine_load, "ENGINE_LOAD", message_engine_load);

static const struct field engine_ready_fields[] = {
    NEED(message_engine_ready, slots, FIELD_U32, 0),
    NEED(message_engine_ready, ctx, FIELD_U32, 0),
    ROW(message_engine_ready, credit, FIELD_U32, 0),
};
LAYOUT(engine_ready, "ENGINE_READY", message_engine_ready);

static const struct field credit_fields[] = {
    NEED(message_credit, n, FIELD_U32, 0),
};
LAYOUT(credit, "CREDIT", message_credit);

static const struct field heartbeat_fields[] = {
    ROW(message_heartbeat, rate, FIELD_F64, 0),
    ROW(message_heartbeat, run, FIELD_U32, 0),
    ROW(message_heartbeat, steps, FIELD_U64, 0),
};
LAYOUT(heartbeat, "HEARTBEAT", message_heartbeat);

static const struct field engine_bye_fields[] = {
    ROW(message_engine_bye, msg, FIELD_STRING, MESSAGE_SENTENCE),
};
LAYOUT(engine_bye, "ENGINE_BYE", message_engine_bye);

static const struct field engine_lost_fields[] = {
    NEED(message_engine_lost, job, FIELD_U32, 0),
    ROW(message_engine_lost, msg, FIELD_STRING, MESSAGE_SENTENCE),
};
LAYOUT(engine_lost, "ENGINE_LOST", message_engine_lost);

static const struct field engine_welcome_fields[] = {
    ROW(message_engine_welcome, ver, FIELD_U32, UINT16_MAX),
    NEED(message_engine_welcome, hb, FIELD_F64, 0),
    ROW(message_engine_welcome, held, FIELD_MAPS, MESSAGE_ROWS, .of = &held_layout, .since = 2),
    ROW(message_engine_welcome, tell, FIELD_MAPS, MESSAGE_ROWS, .of = &held_layout, .since = 2),
};
LAYOUT(engine_welcome, "ENGINE_WELCOME", message_engine_welcome);

static const struct field lease_fields[] = {
    NEED(message_lease, id, FIELD_ID, 0),
    ASK_ROWS(message_lease),
    ROW(message_lease, out, FIELD_U32S, MESSAGE_IDS),
    ROW(message_lease, ckey, FIELD_BYTES, MESSAGE_CACHE_KEY, .since = 2),
    ROW(message_lease, outn, FIELD_U32S, MESSAGE_CHOICES, .since = 2, .vital = true),
    ROW(message_lease, own, FIELD_U64, 0, .since = 2),
    ROW(message_lease, name, FIELD_STRING, MESSAGE_NAME, .since = 2),
    ROW(message_lease, dl, FIELD_F64, 0, .since = 2),
    ROW(message_lease, sub, FIELD_F64, 0, .since = 2),
    ROW(message_lease, again, FIELD_BOOL, 0, .since = 2),
};
LAYOUT(lease, "BATCH request", message_lease);
static const struct layout engine_held_layout = {"ENGINE_HELD", sizeof(struct message_lease),
                                                 sizeof lease_fields / sizeof *lease_fields, lease_fields};

static const struct field batch_fields[] = {
    NEED(message_batch, reqs, FIELD_MAPS, MESSAGE_ROWS, .of = &lease_layout),
};
LAYOUT(batch, "BATCH", message_batch);

static const struct field no_fields[1];
#define NOTHING(id, text) static const struct layout id##_layout = {text, 0, 0, no_fields}
NOTHING(cancel, "CANCEL");
NOTHING(info, "INFO");
NOTHING(ack, "ACK");
NOTHING(ok, "OK");
NOTHING(returned, "RETURNED");
NOTHING(engine_cancel, "ENGINE_CANCEL");
NOTHING(drain, "DRAIN");

static const struct layout *const layouts[] = {
    [WIRE_SUBMIT] = &submit_layout,
    [WIRE_ATTACH] = &attach_layout,
    [WIRE_CANCEL] = &cancel_layout,
    [WIRE_LIST] = &list_layout,
    [WIRE_INFO] = &info_layout,
    [WIRE_ACK] = &ack_layout,
    [WIRE_ACCEPTED] = &accepted_layout,
    [WIRE_REFUSED] = &refused_layout,
    [WIRE_STATE] = &state_layout,
    [WIRE_DELTA] = &delta_layout,
    [WIRE_DONE] = &done_layout,
    [WIRE_LISTING] = &listing_layout,
    [WIRE_INFO_REPLY] = &info_reply_layout,
    [WIRE_OK] = &ok_layout,
    [WIRE_ENGINE_HELLO] = &engine_hello_layout,
    [WIRE_ENGINE_LOAD] = &engine_load_layout,
    [WIRE_ENGINE_READY] = &engine_ready_layout,
    [WIRE_CREDIT] = &credit_layout,
    [WIRE_HEARTBEAT] = &heartbeat_layout,
    [WIRE_RETURNED] = &returned_layout,
    [WIRE_ENGINE_BYE] = &engine_bye_layout,
    [WIRE_ENGINE_LOST] = &engine_lost_layout,
    [WIRE_ENGINE_HELD] = &engine_held_layout,
    [WIRE_ENGINE_WELCOME] = &engine_welcome_layout,
    [WIRE_BATCH] = &batch_layout,
    [WIRE_ENGINE_CANCEL] = &engine_cancel_layout,
    [WIRE_DRAIN] = &drain_layout,
};

static const struct layout *layout_for(unsigned int type)
{
    return type < sizeof layouts / sizeof *layouts ? layouts[type] : NULL;
}

/* Where the fields of every type begin. */
#define FIELDS(m) ((char *)(m) + offsetof(struct message, submit))

const char *message_type_name(unsigned int type)
{
    const struct layout *l = layout_for(type);

    return l ? l->name : "unknown message";
}

const char *request_state_name(enum request_state state)
{
    return state < REQUEST_STATES ? request_states[state] : "?";
}

const char *engine_state_name(enum engine_state state)
{
    return state < ENGINE_STATES ? engine_states[state] : "?";
}

const char *done_why_name(enum done_why why)
{
    return why < DONE_WHYS ? done_whys[why] : "?";
}

uint32_t message_ask_choices(const struct message_ask *ask)
{
    return ask->n > 1 ? ask->n : 1;
}

struct message message_of(enum message_type type, const struct k3_id *id)
{
    struct message m;

    memset(&m, 0, sizeof m);
    m.head.type = (uint16_t)type;
    if (id)
        m.head.id = *id;
    return m;
}

/* The prompt comes as JSON or as token ids, and as one of them only; a bias has two columns of one length. */
static int check_ask(const char *where, const struct message_ask *a, struct k3_error *err)
{
    if (a->bi.n != a->bv.n) {
        errno = EPROTO;
        return k3_errorf(err, "%s: bi and bv are not of one length", where);
    }
    if ((a->req.len > 0) != (a->tok.n > 0))
        return 0;
    errno = EPROTO;
    return k3_errorf(err, "%s: %s", where,
                     a->req.len ? "req and tok exclude each other" : "neither req nor tok is there");
}

static int check_delta(const struct message_delta *d, struct k3_error *err)
{
    errno = EPROTO;
    if (d->ids.n == 0)
        return k3_errorf(err, "DELTA: ids: empty");
    if (d->lpi.n % d->ids.n != 0 || d->lpv.n != d->lpi.n)
        return k3_errorf(err, "DELTA: lpi and lpv are not as many for each of ids");
    return 0;
}

static int check_lease(const char *where, const struct message_lease *l, struct k3_error *err)
{
    uint64_t out = 0;

    for (size_t i = 0; i < l->outn.n; i++)
        out += l->outn.v[i];
    if (l->outn.n > 0 && (l->outn.n != l->ask.n || out != l->out.n)) {
        errno = EPROTO;
        return k3_errorf(err, "%s: outn is not of n choices that make up out", where);
    }
    return check_ask(where, &l->ask, err);
}

static int check_message(const struct message *m, struct k3_error *err)
{
    if (m->head.type == WIRE_SUBMIT)
        return check_ask(submit_layout.name, &m->submit.ask, err);
    if (m->head.type == WIRE_LIST && m->list.id && !k3_id_is_prefix(m->list.id)) {
        errno = EPROTO;
        return k3_errorf(err, "LIST: id: not the first digits of an id");
    }
    if (m->head.type == WIRE_DELTA)
        return check_delta(&m->delta, err);
    if (m->head.type == WIRE_BATCH)
        for (size_t i = 0; i < m->batch.reqs.n; i++)
            if (check_lease(lease_layout.name, &m->batch.reqs.v[i], err) < 0)
                return -1;
    if (m->head.type == WIRE_ENGINE_HELD)
        return check_lease(engine_held_layout.name, &m->engine_held, err);
    return 0;
}

static void put_be(uint8_t *to, uint32_t value, int bytes)
{
    for (int i = bytes - 1; i >= 0; i--, value >>= 8)
        to[i] = (uint8_t)value;
}

static uint32_t get_be(const uint8_t *from, int bytes)
{
    uint32_t value = 0;

    for (int i = 0; i < bytes; i++)
        value = value << 8 | from[i];
    return value;
}

int message_encode(const struct message *m, uint8_t header[MESSAGE_HEADER], struct message_bytes *body,
                   struct k3_error *err)
{
    const struct layout *l = layout_for(m->head.type);
    uint16_t version = m->head.version ? m->head.version : WIRE_VERSION;
    msgpack_sbuffer buffer;
    msgpack_packer packer;
    int rc = -1;

    msgpack_sbuffer_init(&buffer);
    msgpack_packer_init(&packer, &buffer, msgpack_sbuffer_write);
    if (!l) {
        errno = EINVAL;
        k3_errorf(err, "message type %u is not known", m->head.type);
        goto out;
    }
    if (check_message(m, err) < 0 || layout_encode(l, version, FIELDS(m), &packer, err) < 0)
        goto out;
    /* What our own scanner refuses, so would the peer's.  It also catches a buffer that could not grow. */
    if (scan_body(buffer.data, buffer.size, err) < 0) {
        errno = EMSGSIZE;
        k3_error_prefix(err, "%s: ", l->name);
        goto out;
    }
    memcpy(header, "k3w1", 4);
    put_be(header + 4, version, 2);
    put_be(header + 6, m->head.type, 2);
    put_be(header + 8, m->head.flags, 4);
    memcpy(header + 12, m->head.id.bytes, K3_ID_BYTES);
    body->len = buffer.size;
    body->data = (uint8_t *)msgpack_sbuffer_release(&buffer);
    rc = 0;
out:
    msgpack_sbuffer_destroy(&buffer);
    return rc;
}

int message_decode_header(struct message_header *head, const void *header, size_t len, struct k3_error *err)
{
    const uint8_t *h = header;

    errno = EPROTO;
    if (len != MESSAGE_HEADER || memcmp(h, "k3w1", 4) != 0)
        return k3_errorf(err, "not a k3 message");

    struct message_header got = {
        .version = (uint16_t)get_be(h + 4, 2), .type = (uint16_t)get_be(h + 6, 2), .flags = get_be(h + 8, 4)};
    memcpy(got.id.bytes, h + 12, K3_ID_BYTES);
    if (got.version < WIRE_VERSION_OLDEST || got.version > WIRE_VERSION) {
        *head = got;
        errno = EPROTONOSUPPORT;
        return k3_errorf(
            err, "the other side speaks protocol version %u, this one %d to %d: the older of the two is to be upgraded",
            got.version, WIRE_VERSION_OLDEST, WIRE_VERSION);
    }
    if (!layout_for(got.type))
        return k3_errorf(err, "message type %u is not known", got.type);
    *head = got;
    return 0;
}

int message_decode(struct message *m, const struct message_header *head, const void *body, size_t len,
                   struct k3_error *err)
{
    const struct layout *l = layout_for(head->type);
    struct message got = {.head = *head};
    msgpack_unpacked unpacked;
    size_t at = 0;
    int rc = -1;

    msgpack_unpacked_init(&unpacked);
    if (!l) {
        errno = EPROTO;
        k3_errorf(err, "message type %u is not known", head->type);
        goto out;
    }
    if (scan_body(body, len, err) < 0) {
        k3_error_prefix(err, "%s: ", l->name);
        goto out;
    }
    /* Never empty, so success is the only good answer: EXTRA_BYTES and CONTINUE cannot be after the scan. */
    if (msgpack_unpack_next(&unpacked, body, len, &at) != MSGPACK_UNPACK_SUCCESS) {
        errno = EPROTO;
        k3_errorf(err, "%s: the body cannot be unpacked", l->name);
        goto out;
    }
    if (layout_decode(l, head->version, &unpacked.data, FIELDS(&got), err) < 0)
        goto out;
    if (check_message(&got, err) < 0) {
        layout_clear(l, FIELDS(&got));
        goto out;
    }
    *m = got;
    rc = 0;
out:
    msgpack_unpacked_destroy(&unpacked);
    return rc;
}

void message_clear(struct message *m)
{
    if (!m)
        return;
    const struct layout *l = layout_for(m->head.type);
    if (l)
        layout_clear(l, FIELDS(m));
    memset(m, 0, sizeof *m);
}
