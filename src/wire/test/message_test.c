/* message_test.c - every message there and back, and what a hostile sender may try */
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "samples.h"
#include "wire/message.h"
#include "wire/scan.h"

static void every_message_survives_the_way_there_and_back(void **state)
{
    size_t count;
    const struct message *samples = message_samples(&count);
    (void)state;
    for (size_t i = 0; i < count; i++) {
        uint8_t header[MESSAGE_HEADER], again[MESSAGE_HEADER];
        struct message_bytes body, second;
        struct message_header head;
        struct message m;
        struct k3_error err;
        if (message_encode(&samples[i], header, &body, &err) < 0 ||
            message_decode_header(&head, header, sizeof header, &err) < 0 ||
            message_decode(&m, &head, body.data, body.len, &err) < 0 || message_encode(&m, again, &second, &err) < 0)
            fail_msg("%s: %s", message_type_name(samples[i].head.type), err.text);
        assert_int_equal(head.version, WIRE_VERSION);
        assert_int_equal(head.type, samples[i].head.type);
        assert_int_equal(head.flags, samples[i].head.flags);
        assert_true(k3_id_equal(&head.id, &samples[i].head.id));
        assert_memory_equal(header, again, sizeof header);
        assert_int_equal(body.len, second.len);
        assert_memory_equal(body.data, second.data, body.len);
        free(body.data);
        free(second.data);
        message_clear(&m);
    }
}

/* The fields themselves, on messages that between them have every kind of field. */
static struct message there_and_back(const struct message *from)
{
    uint8_t header[MESSAGE_HEADER];
    struct message_bytes body;
    struct message m;
    struct k3_error err;
    assert_int_equal(message_encode(from, header, &body, &err), 0);
    assert_int_equal(message_decode(&m, &from->head, body.data, body.len, &err), 0);
    free(body.data);
    return m;
}

static void fields_keep_their_values(void **state)
{
    size_t count;
    const struct message *samples = message_samples(&count);
    (void)state;

    struct message m = there_and_back(&samples[0]);
    const struct message_ask *a = &m.submit.ask, *b = &samples[0].submit.ask;
    assert_int_equal(a->req.len, b->req.len);
    assert_memory_equal(a->req.data, b->req.data, b->req.len);
    assert_int_equal(a->max, 64);
    assert_true(a->temp == 0.7 && a->topp == 0.95);
    assert_int_equal(a->topk, 40);
    assert_true(a->sd && a->seed == UINT64_MAX && a->ieos);
    assert_int_equal(a->stop.n, 3);
    assert_true(a->minp == 0.05 && a->rep == 1.1 && a->pres == -2 && a->freq == 0.5);
    assert_int_equal(a->bi.n, 7);
    assert_int_equal(a->bv.n, 7);
    assert_memory_equal(a->bv.v, b->bv.v, 7 * sizeof(float));
    assert_int_equal(a->lp, 20);
    assert_string_equal(a->stop.v[0], "\n\n");
    assert_string_equal(a->stop.v[1], "");
    assert_string_equal(a->stop.v[2], "Ende \xe2\x82\xac");
    assert_true(m.submit.watch);
    assert_string_equal(m.submit.name, "thesis");
    message_clear(&m);

    m = there_and_back(&samples[10]);
    assert_int_equal(m.delta.off, 99);
    assert_int_equal(m.delta.ids.n, 7);
    assert_memory_equal(m.delta.ids.v, samples[10].delta.ids.v, 7 * sizeof(uint32_t));
    assert_int_equal(m.delta.parts.n, 3);
    const struct message_part *p = m.delta.parts.v;
    assert_int_equal(p[0].ch, CHANNEL_THINK);
    assert_string_equal(p[0].txt.data, "so.");
    assert_null(p[0].tn);
    assert_int_equal(p[1].ch, CHANNEL_RESPONSE);
    assert_int_equal(p[1].txt.len, 0);
    assert_int_equal(p[2].ch, CHANNEL_TOOL);
    assert_int_equal(p[2].txt.len, 4);
    assert_memory_equal(p[2].txt.data, "a\0\xc3\xa9", 5);
    assert_int_equal(p[2].ti, 1);
    assert_string_equal(p[2].tn, "get_weather");
    message_clear(&m);
    assert_null(m.delta.parts.v);
    message_clear(&m);
    message_clear(NULL);

    m = there_and_back(&samples[11]);
    assert_int_equal(m.delta.lpi.n, 3);
    assert_memory_equal(m.delta.lpi.v, samples[11].delta.lpi.v, 3 * sizeof(uint32_t));
    assert_memory_equal(m.delta.lpv.v, samples[11].delta.lpv.v, 3 * sizeof(float));
    message_clear(&m);

    m = there_and_back(&samples[14]);
    assert_int_equal(m.info_reply.engines.n, 2);
    assert_int_equal(m.info_reply.engines.v[0].state, ENGINE_LOADING);
    assert_string_equal(m.info_reply.engines.v[0].layout, "tp4");
    assert_true(m.info_reply.engines.v[0].rate == 19.5);
    assert_int_equal(m.info_reply.engines.v[0].lt.n, 4);
    assert_true(m.info_reply.engines.v[0].lt.v[3] == UINT64_MAX);
    assert_int_equal(m.info_reply.engines.v[1].job, 1);
    assert_null(m.info_reply.engines.v[1].node);
    message_clear(&m);
}

/* Decode a body given as text with \x escapes; the sentence must contain what the test says. */
static void refused(enum message_type type, const char *body, size_t len, const char *sentence)
{
    struct message m = message_of(WIRE_DONE, NULL);
    struct message_header head = {1, (uint16_t)type, 0, {{0}}};
    struct k3_error err = {""};
    errno = 0;
    /* A copy without spare bytes, so that the sanitizer sees a read behind the end. */
    char *copy = malloc(len ? len : 1);
    assert_non_null(copy);
    memcpy(copy, body, len);
    if (message_decode(&m, &head, copy, len, &err) == 0)
        fail_msg("accepted, but: %s", sentence);
    free(copy);
    assert_int_equal(errno, EPROTO);
    if (!strstr(err.text, sentence))
        fail_msg("\"%s\" lacks \"%s\"", err.text, sentence);
    /* A refused message leaves the caller's struct alone. */
    assert_int_equal(m.head.type, WIRE_DONE);
}
#define REFUSED(type, body, sentence) refused(type, body, sizeof(body) - 1, sentence)

static void malformed_bodies_are_refused_before_unpacking(void **state)
{
    (void)state;
    REFUSED(WIRE_INFO, "", "ends before its last value");
    REFUSED(WIRE_INFO, "\x90", "not a map");
    REFUSED(WIRE_INFO, "\xc0", "not a map");
    REFUSED(WIRE_INFO, "\xc1", "does not use");
    REFUSED(WIRE_INFO, "\x80\x80", "bytes after its end");
    REFUSED(WIRE_INFO, "\x81\xa1x", "ends before its last value");
    REFUSED(WIRE_INFO, "\x81\xa1xy\x01", "bytes after its end");
    REFUSED(WIRE_INFO, "\x81\x01\x01", "key that is not a string");
    REFUSED(WIRE_INFO, "\x81\x90\x01", "key that is not a string");
    REFUSED(WIRE_INFO, "\x81\xa1x\xc1", "does not use");
    /* ext types, all of them */
    REFUSED(WIRE_INFO, "\x81\xa1x\xd4\x01\x00", "ext type");
    REFUSED(WIRE_INFO, "\x81\xa1x\xd8\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00", "ext type");
    REFUSED(WIRE_INFO, "\x81\xa1x\xc7\x01\x01\x00", "ext type");
    REFUSED(WIRE_INFO, "\x81\xa1x\xc8\x00\x01\x01\x00", "ext type");
    REFUSED(WIRE_INFO, "\x81\xa1x\xc9\x00\x00\x00\x01\x01\x00", "ext type");
    /* counts that the bytes cannot hold: msgpack-c would reserve gigabytes for these */
    REFUSED(WIRE_INFO, "\xdf\xff\xff\xff\xff", "too many entries");
    REFUSED(WIRE_INFO, "\xde\x00\x40", "larger than what is left");
    REFUSED(WIRE_INFO, "\x8f", "larger than what is left");
    REFUSED(WIRE_INFO, "\x81\xa1x\xdd\xff\xff\xff\xff", "too many elements");
    REFUSED(WIRE_INFO, "\x81\xa1x\xdd\x00\x10\x00\x00", "larger than what is left");
    REFUSED(WIRE_INFO, "\x81\xa1x\xdc\xff\xff", "larger than what is left");
    REFUSED(WIRE_INFO, "\x81\xa1x\xc6\xff\xff\xff\xff", "larger than what is left");
    REFUSED(WIRE_INFO,
            "\x81\xa1x\xdb\xff\xff\xff\xff"
            "a",
            "larger than what is left");
    REFUSED(WIRE_INFO, "\x81\xdb\xff\xff\xff\xff", "larger than what is left");
    REFUSED(WIRE_INFO, "\x81\xa1x\xdb\xff\xff", "inside a length");
    REFUSED(WIRE_INFO, "\x81\xa1x\xcf\x01", "larger than what is left");
    /* depth: map, array, map, array is the deepest there is */
    REFUSED(WIRE_INFO, "\x81\xa1x\x91\x81\xa1y\x91\x91\x01", "nested too deep");
}

static void deep_and_wide_bodies_are_refused_without_much_work(void **state)
{
    size_t len = MESSAGE_BODY;
    char *big = malloc(len + 1);
    (void)state;
    assert_non_null(big);
    memset(big, 0x91, len + 1); /* arrays of one, one in the other */
    memcpy(big, "\x81\xa1x", 3);
    refused(WIRE_INFO, big, len, "nested too deep");
    refused(WIRE_INFO, big, len + 1, "larger than 8 MiB");
    /* Seven arrays of a million each: every count is right, all together is too much. */
    memset(big, 0x01, len);
    big[0] = (char)0x87;
    for (size_t i = 0; i < 7; i++)
        memcpy(big + 1 + i * (7 + MESSAGE_IDS), "\xa1x\xdd\x00\x10\x00\x00", 7);
    refused(WIRE_INFO, big, 1 + 7 * (7 + MESSAGE_IDS), "too many values");
    free(big);
}

static void wrong_types_are_named_by_their_key(void **state)
{
    (void)state;
    REFUSED(WIRE_CREDIT, "\x80", "CREDIT: n: missing");
    REFUSED(WIRE_CREDIT, "\x81\xa1m\x01", "CREDIT: n: missing");
    REFUSED(WIRE_CREDIT, "\x81\xa1n\xff", "CREDIT: n: not an unsigned integer");
    REFUSED(WIRE_CREDIT,
            "\x81\xa1n\xa1"
            "1",
            "CREDIT: n: not an unsigned integer");
    REFUSED(WIRE_CREDIT, "\x81\xa1n\xc0", "CREDIT: n: not an unsigned integer");
    REFUSED(WIRE_CREDIT, "\x81\xa1n\xcf\x00\x00\x00\x01\x00\x00\x00\x00", "CREDIT: n: larger than allowed");
    REFUSED(WIRE_CREDIT, "\x82\xa1n\x01\xa1n\x01", "CREDIT: n: given twice");
    REFUSED(WIRE_ATTACH, "\x81\xa3off\xc2", "ATTACH: off: not an unsigned integer");
    REFUSED(WIRE_LIST, "\x81\xa2me\x01", "LIST: me: not true or false");
    REFUSED(WIRE_LIST, "\x81\xa2id\x01", "LIST: id: not a string");
    REFUSED(WIRE_LIST,
            "\x81\xa2id\xc4\x01"
            "0",
            "LIST: id: not a string");
    REFUSED(WIRE_LIST, "\x81\xa2id\xa1z", "LIST: id: not the first digits");
    REFUSED(WIRE_LIST, "\x81\xa2id\xa0", "LIST: id: not the first digits");
    REFUSED(WIRE_LIST,
            "\x81\xa2id\xa2"
            "0\0",
            "LIST: id: a string with a NUL in it");
    REFUSED(WIRE_REFUSED,
            "\x82\xa4"
            "code\xcd\x01\x00\xa3msg\xa1x",
            "REFUSED: code: larger than allowed");
    REFUSED(WIRE_STATE, "\x81\xa5state\x01", "STATE: state: not a string");
    REFUSED(WIRE_STATE, "\x81\xa5state\xa6queued", "STATE: state: not one of its values");
    REFUSED(WIRE_HEARTBEAT, "\x81\xa4rate\xff", "HEARTBEAT: rate: not a number from 0 up");
    REFUSED(WIRE_HEARTBEAT, "\x81\xa4rate\xca\x7f\xc0\x00\x00", "HEARTBEAT: rate: not a number from 0 up");
    REFUSED(WIRE_HEARTBEAT, "\x81\xa4rate\xcb\x7f\xf0\x00\x00\x00\x00\x00\x00", "HEARTBEAT: rate: not a number");
    REFUSED(WIRE_DELTA, "\x83\xa3off\x00\xa3ids\x91\x07\xa3lpi\x91\x07", "DELTA: lpi and lpv are not as many");
    REFUSED(WIRE_DELTA, "\x84\xa3off\x00\xa3ids\x92\x07\x08\xa3lpi\x91\x07\xa3lpv\x91\x00",
            "DELTA: lpi and lpv are not as many");
    REFUSED(WIRE_DELTA, "\x84\xa3off\x00\xa3ids\x91\x07\xa3lpi\x91\x07\xa3lpv\x91\xd1\xd8\xef",
            "DELTA: lpv: not a number within its limits"); /* -10001 */
    REFUSED(WIRE_DELTA, "\x84\xa3off\x00\xa3ids\x91\x07\xa3lpi\x91\x07\xa3lpv\x91\xca\x7f\xc0\x00\x00",
            "DELTA: lpv: not a number within its limits"); /* NaN */
    REFUSED(WIRE_DELTA, "\x84\xa3off\x00\xa3ids\x91\x07\xa3lpi\x91\x07\xa3lpv\x91\xa0", "DELTA: lpv: not a number");
    REFUSED(WIRE_SUBMIT, "\x81\xa4pres\x03", "SUBMIT: pres: not a number within its limits");
    REFUSED(WIRE_SUBMIT,
            "\x81\xa4"
            "freq\xfd",
            "SUBMIT: freq: not a number within its limits");
    REFUSED(WIRE_SUBMIT,
            "\x81\xa4"
            "freq\xc3",
            "SUBMIT: freq: not a number");
    REFUSED(WIRE_SUBMIT, "\x81\xa2lp\x15", "SUBMIT: lp: larger than allowed");
    REFUSED(WIRE_ENGINE_LOAD, "\x81\xa2ld\x92\x01\xa1x", "ENGINE_LOAD: ld: not an unsigned integer");
    REFUSED(WIRE_ENGINE_LOAD, "\x81\xa2ld\x80", "ENGINE_LOAD: ld: not an array");
    REFUSED(WIRE_LISTING, "\x81\xa4rows\x91\x01", "LISTING row: not a map");
    REFUSED(WIRE_LISTING, "\x81\xa4rows\x91\x80", "LISTING row: id: missing");
    REFUSED(WIRE_LISTING,
            "\x81\xa4rows\x91\x81\xa2id\xc4\x03"
            "abc",
            "LISTING row: id: not an id of 16 bytes");
    REFUSED(WIRE_DELTA, "\x81\xa3off\x00", "DELTA: ids: missing");
    REFUSED(WIRE_DELTA, "\x82\xa3off\x00\xa3ids\x90", "DELTA: ids: empty");
    REFUSED(WIRE_DELTA, "\x83\xa3off\x00\xa3ids\x91\x01\xa5parts\x91\x80", "DELTA part: ch: missing");
    REFUSED(WIRE_DELTA,
            "\x83\xa3off\x00\xa3ids\x91\x01\xa5parts\x91\x81\xa2"
            "ch\xa4none",
            "DELTA part: ch: not one of its values");
    REFUSED(WIRE_SUBMIT, "\x82\xa4temp\x00\xa4topp\x01", "SUBMIT: neither req nor tok");
    REFUSED(WIRE_SUBMIT, "\x84\xa4temp\x00\xa4topp\x01\xa3tok\x91\x01\xa3req\xc4\x01{", "SUBMIT: req and tok exclude");
    REFUSED(WIRE_SUBMIT, "\x83\xa4temp\x0b\xa4topp\x01\xa3tok\x91\x01", "SUBMIT: temp: larger than allowed");
    REFUSED(WIRE_SUBMIT, "\x83\xa4temp\x01\xa4topp\x02\xa3tok\x91\x01", "SUBMIT: topp: larger than allowed");
    REFUSED(WIRE_SUBMIT, "\x83\xa4temp\x01\xa4topp\x01\xa3tok\x92\x01\xcf\x00\x00\x00\x01\x00\x00\x00\x00",
            "SUBMIT: tok: larger than allowed");
    REFUSED(WIRE_SUBMIT, "\x84\xa4temp\x01\xa4topp\x01\xa3tok\x91\x01\xa4stop\x92\xa1x\x01",
            "SUBMIT: stop: not a string");
    REFUSED(WIRE_SUBMIT,
            "\x84\xa4temp\x01\xa4topp\x01\xa3tok\x91\x01\xa4stop\xdc\x00\x11\xa0\xa0\xa0\xa0\xa0\xa0\xa0"
            "\xa0\xa0\xa0\xa0\xa0\xa0\xa0\xa0\xa0\xa0",
            "SUBMIT: stop: larger than allowed");
}

static void text_is_utf8(void **state)
{
    (void)state;
    REFUSED(WIRE_ENGINE_BYE, "\x81\xa3msg\xa1\x80", "ENGINE_BYE: msg: not UTF-8 text");
    REFUSED(WIRE_ENGINE_BYE, "\x81\xa3msg\xa1\xff", "not UTF-8");
    REFUSED(WIRE_ENGINE_BYE, "\x81\xa3msg\xa1\xe2", "not UTF-8"); /* cut */
    REFUSED(WIRE_ENGINE_BYE, "\x81\xa3msg\xa2\xe2\x82", "not UTF-8");
    REFUSED(WIRE_ENGINE_BYE, "\x81\xa3msg\xa2\xc0\x80", "not UTF-8"); /* overlong */
    REFUSED(WIRE_ENGINE_BYE, "\x81\xa3msg\xa3\xe0\x80\x80", "not UTF-8");
    REFUSED(WIRE_ENGINE_BYE, "\x81\xa3msg\xa3\xed\xa0\x80", "not UTF-8");     /* surrogate */
    REFUSED(WIRE_ENGINE_BYE, "\x81\xa3msg\xa4\xf4\x90\x80\x80", "not UTF-8"); /* above U+10FFFF */
    REFUSED(WIRE_ENGINE_BYE, "\x81\xa3msg\xa4\xf0\x80\x80\x80", "not UTF-8");

    struct message m;
    struct message_header head = {1, WIRE_ENGINE_BYE, 0, {{0}}};
    struct k3_error err;
    assert_int_equal(message_decode(&m, &head, "\x81\xa3msg\xa9\xc3\xa9\xe2\x82\xac\xf0\x9f\x99\x82", 15, &err), 0);
    message_clear(&m);
}

static void unknown_keys_are_skipped(void **state)
{
    struct message m;
    struct message_header head = {1, WIRE_CREDIT, 0, {{0}}};
    struct k3_error err;
    static const char body[] = "\x84\xa1z\x91\x81\xa1y\x91\x01\xa1n\x05\xa0\xc0\xa1w\xca\x7f\xc0\x00\x00";
    (void)state;
    assert_int_equal(message_decode(&m, &head, body, sizeof body - 1, &err), 0);
    assert_int_equal(m.credit.n, 5);
    message_clear(&m);
}

static void every_truncation_is_refused(void **state)
{
    size_t count;
    const struct message *samples = message_samples(&count);
    (void)state;
    for (size_t i = 0; i < count; i++) {
        uint8_t header[MESSAGE_HEADER];
        struct message_bytes body;
        struct k3_error err;
        assert_int_equal(message_encode(&samples[i], header, &body, &err), 0);
        for (size_t len = 0; len < body.len; len++)
            refused(samples[i].head.type, (char *)body.data, len, ": ");
        free(body.data);
    }
}

static uint64_t next_random(uint64_t *seed)
{
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    return *seed;
}

/* Bytes changed, cut out and put in at random; often to bytes that begin something in msgpack. */
static size_t mutate(uint8_t *to, const struct message_bytes *from, uint64_t *seed)
{
    static const uint8_t heads[] = {0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbf, 0xc0, 0xc1, 0xc4, 0xc6, 0xc7,
                                    0xca, 0xcb, 0xcf, 0xd3, 0xd4, 0xd9, 0xdb, 0xdc, 0xdd, 0xde, 0xdf};
    size_t len = from->len;
    memcpy(to, from->data, len);
    for (uint64_t n = 1 + next_random(seed) % 4; n > 0; n--) {
        size_t at = len ? next_random(seed) % len : 0;
        uint8_t byte = next_random(seed) % 2 ? heads[next_random(seed) % sizeof heads] : (uint8_t)next_random(seed);
        switch (next_random(seed) % 3) {
        case 0:
            if (len)
                to[at] = byte;
            break;
        case 1:
            if (len) {
                memmove(to + at, to + at + 1, len - at - 1);
                len--;
            }
            break;
        default:
            memmove(to + at + 1, to + at, len - at);
            to[at] = byte;
            len++;
        }
    }
    return len;
}

static void mutated_bodies_are_refused_or_mean_something(void **state)
{
    enum { ROUNDS = 3000 };
    size_t count, accepted = 0;
    const struct message *samples = message_samples(&count);
    uint64_t seed = 88172645463325252u;
    (void)state;
    for (size_t i = 0; i < count; i++) {
        uint8_t header[MESSAGE_HEADER];
        struct message_bytes body, again;
        struct message m;
        struct k3_error err;
        assert_int_equal(message_encode(&samples[i], header, &body, &err), 0);
        for (int round = 0; round < ROUNDS; round++) {
            uint8_t *bytes = malloc(body.len + 4);
            assert_non_null(bytes);
            size_t len = mutate(bytes, &body, &seed);
            bytes = realloc(bytes, len ? len : 1);
            assert_non_null(bytes);
            if (message_decode(&m, &samples[i].head, bytes, len, &err) == 0) {
                accepted++;
                if (message_encode(&m, header, &again, &err) < 0)
                    fail_msg("decoded, but: %s", err.text);
                free(again.data);
                message_clear(&m);
            }
            free(bytes);
        }
        free(body.data);
    }
    /* Both branches were walked: changed values and unknown keys still mean something. */
    assert_true(accepted > ROUNDS / 10 && accepted < ROUNDS * count);
}

static void headers_are_checked(void **state)
{
    struct message m = message_of(WIRE_INFO, NULL);
    struct message_header head;
    uint8_t header[MESSAGE_HEADER];
    struct message_bytes body;
    struct k3_error err;
    (void)state;
    k3_id_random(&m.head.id);
    assert_int_equal(message_encode(&m, header, &body, &err), 0);
    free(body.data);
    assert_memory_equal(header, "k3w1\0\2\0\5\0\0\0\0", 12);
    assert_memory_equal(header + 12, m.head.id.bytes, 16);
    for (size_t len = 0; len < sizeof header; len++)
        assert_int_equal(message_decode_header(&head, header, len, &err), -1);

    header[3] = '2';
    assert_int_equal(message_decode_header(&head, header, sizeof header, &err), -1);
    assert_string_equal(err.text, "not a k3 message");
    header[3] = '1';
    header[7] = 99;
    assert_int_equal(message_decode_header(&head, header, sizeof header, &err), -1);
    assert_int_equal(errno, EPROTO);
    assert_string_equal(err.text, "message type 99 is not known");
    header[7] = 0;
    assert_int_equal(message_decode_header(&head, header, sizeof header, &err), -1);
    header[6] = 255;
    assert_int_equal(message_decode_header(&head, header, sizeof header, &err), -1);
    /* A later version may have other types, so its number is what is wrong; the id is there to answer with. */
    header[5] = 3;
    assert_int_equal(message_decode_header(&head, header, sizeof header, &err), -1);
    assert_int_equal(errno, EPROTONOSUPPORT);
    assert_true(k3_id_equal(&head.id, &m.head.id));
}

static void the_encoder_refuses_what_the_decoder_would(void **state)
{
    uint8_t header[MESSAGE_HEADER];
    struct message_bytes body;
    struct k3_error err;
    uint32_t one = 1;
    char *stops[MESSAGE_STOPS + 1];
    (void)state;

    struct message m = message_of(WIRE_SUBMIT, NULL);
    assert_int_equal(message_encode(&m, header, &body, &err), -1);
    assert_string_equal(err.text, "SUBMIT: neither req nor tok is there");
    m.submit.ask.tok.v = &one;
    m.submit.ask.tok.n = 1;
    m.submit.ask.temp = NAN;
    assert_int_equal(message_encode(&m, header, &body, &err), -1);
    assert_string_equal(err.text, "SUBMIT: temp: not a number from 0 up");
    m.submit.ask.temp = 0;
    m.submit.ask.bi = m.submit.ask.tok;
    assert_int_equal(message_encode(&m, header, &body, &err), -1);
    assert_string_equal(err.text, "SUBMIT: bi and bv are not of one length");
    m.submit.ask.bi.n = 0;
    m.submit.ask.pres = -2.5;
    assert_int_equal(message_encode(&m, header, &body, &err), -1);
    assert_string_equal(err.text, "SUBMIT: pres: not a number within its limits");
    m.submit.ask.pres = 0;
    m.submit.name = "caf\xe9";
    assert_int_equal(message_encode(&m, header, &body, &err), -1);
    assert_string_equal(err.text, "SUBMIT: name: not UTF-8 text");
    m.submit.name = NULL;
    for (size_t i = 0; i < MESSAGE_STOPS + 1; i++)
        stops[i] = "x";
    m.submit.ask.stop.v = stops;
    m.submit.ask.stop.n = MESSAGE_STOPS + 1;
    assert_int_equal(message_encode(&m, header, &body, &err), -1);
    assert_int_equal(errno, EMSGSIZE);
    assert_string_equal(err.text, "SUBMIT: stop: larger than allowed");
    m.submit.ask.stop.n = MESSAGE_STOPS;
    assert_int_equal(message_encode(&m, header, &body, &err), 0);
    free(body.data);

    m = message_of(WIRE_REFUSED, NULL);
    m.refused.code = 2;
    assert_int_equal(message_encode(&m, header, &body, &err), -1);
    assert_string_equal(err.text, "REFUSED: msg: missing");
    m = message_of(WIRE_STATE, NULL);
    m.state.state = REQUEST_STATES;
    assert_int_equal(message_encode(&m, header, &body, &err), -1);
    m = message_of(WIRE_DELTA, NULL);
    assert_int_equal(message_encode(&m, header, &body, &err), -1);
    assert_string_equal(err.text, "DELTA: ids: empty");
    struct message_part parts[MESSAGE_PARTS + 1] = {{0}};
    m.delta.ids = (struct message_u32s){&one, 1};
    m.delta.parts.v = parts;
    m.delta.parts.n = MESSAGE_PARTS + 1;
    assert_int_equal(message_encode(&m, header, &body, &err), -1);
    assert_string_equal(err.text, "DELTA: parts: more than 64");
    m.delta.parts.n = MESSAGE_PARTS;
    assert_int_equal(message_encode(&m, header, &body, &err), 0);
    free(body.data);
    m = message_of(99, NULL);
    assert_int_equal(message_encode(&m, header, &body, &err), -1);
    assert_string_equal(err.text, "message type 99 is not known");
}

static void the_largest_request_fits_and_one_byte_more_does_not(void **state)
{
    uint8_t header[MESSAGE_HEADER];
    struct message_bytes body;
    struct k3_error err;
    (void)state;
    struct message m = message_of(WIRE_SUBMIT, NULL);
    m.submit.ask.req.data = calloc(1, MESSAGE_REQUEST + 1);
    m.submit.ask.req.len = MESSAGE_REQUEST;
    assert_int_equal(message_encode(&m, header, &body, &err), 0);
    free(body.data);
    m.submit.ask.req.len++;
    assert_int_equal(message_encode(&m, header, &body, &err), -1);
    free(m.submit.ask.req.data);
    m.submit.ask.req = (struct message_bytes){NULL, 0};
    m.submit.ask.tok.v = calloc(MESSAGE_IDS, sizeof(uint32_t));
    m.submit.ask.tok.n = MESSAGE_IDS;
    assert_int_equal(message_encode(&m, header, &body, &err), 0);
    struct message back;
    assert_int_equal(message_decode(&back, &m.head, body.data, body.len, &err), 0);
    assert_int_equal(back.submit.ask.tok.n, MESSAGE_IDS);
    message_clear(&back);
    free(body.data);
    free(m.submit.ask.tok.v);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_message_survives_the_way_there_and_back),
        cmocka_unit_test(fields_keep_their_values),
        cmocka_unit_test(malformed_bodies_are_refused_before_unpacking),
        cmocka_unit_test(deep_and_wide_bodies_are_refused_without_much_work),
        cmocka_unit_test(wrong_types_are_named_by_their_key),
        cmocka_unit_test(text_is_utf8),
        cmocka_unit_test(unknown_keys_are_skipped),
        cmocka_unit_test(every_truncation_is_refused),
        cmocka_unit_test(mutated_bodies_are_refused_or_mean_something),
        cmocka_unit_test(headers_are_checked),
        cmocka_unit_test(the_encoder_refuses_what_the_decoder_would),
        cmocka_unit_test(the_largest_request_fits_and_one_byte_more_does_not),
    };
    return cmocka_run_group_tests_name("message", tests, NULL, NULL);
}
