/* recorded_test.c - messages as programs of each version sent them, byte for byte
 *
 * tests/data/wire-v1.txt and its successors hold one message of every type at least, a line each: type, header, body. A
 * file of a version that was released is never changed; a later version gets one of its own by
 * recorded_test record >FILE  and is held to all that it still speaks. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <sodium.h>

#include "common/alloc.h"
#include "samples.h"
#include "wire/message.h"

struct recorded {
    char type[32];
    uint8_t *header, *body;
    size_t header_len, body_len;
};

static void print_hex(const uint8_t *bytes, size_t len)
{
    for (size_t i = 0; i < len; i++)
        printf("%02x", bytes[i]);
}

static int record(void)
{
    size_t count;
    const struct message *samples = message_samples(&count);

    for (size_t i = 0; i < count; i++) {
        uint8_t header[MESSAGE_HEADER];
        struct message_bytes body;
        struct k3_error err;

        struct message m = samples[i];

        m.head.version = WIRE_VERSION;
        if (message_encode(&m, header, &body, &err) < 0)
            return 1;
        printf("%s ", message_type_name(samples[i].head.type));
        print_hex(header, sizeof header);
        putchar(' ');
        print_hex(body.data, body.len);
        putchar('\n');
        free(body.data);
    }
    return 0;
}

static uint8_t *bytes_of(const char *hex, size_t *len)
{
    size_t digits = strlen(hex);
    uint8_t *bytes = k3_zalloc(digits / 2 + 1);

    assert_int_equal(sodium_hex2bin(bytes, digits / 2 + 1, hex, digits, NULL, len, NULL), 0);
    return bytes;
}

static uint16_t version;   /* of the file that is read ... */
static size_t line_number; /* ... and where, from 0 */

/* Call fn with every message of that version's file; how many there were. */
static size_t for_each_of(uint16_t of, void (*fn)(const struct recorded *r))
{
    char *path = k3_asprintf(TEST_DATA "/wire-v%u.txt", of), *line = NULL, *rest, *word;
    FILE *f = fopen(path, "r");
    size_t room = 0;

    version = of;
    assert_non_null(f);
    for (line_number = 0; getline(&line, &room, f) > 0; line_number++) {
        struct recorded r;
        assert_non_null(word = strtok_r(line, " \n", &rest));
        snprintf(r.type, sizeof r.type, "%s", word);
        assert_non_null(word = strtok_r(NULL, " \n", &rest));
        r.header = bytes_of(word, &r.header_len);
        assert_non_null(word = strtok_r(NULL, " \n", &rest));
        r.body = bytes_of(word, &r.body_len);
        fn(&r);
        free(r.header);
        free(r.body);
    }
    free(line);
    free(path);
    fclose(f);
    return line_number;
}

static void for_each(void (*fn)(const struct recorded *r))
{
    for (uint16_t of = WIRE_VERSION_OLDEST; of <= WIRE_VERSION; of++)
        assert_true(for_each_of(of, fn) >= 28);
}

static void decode(const struct recorded *r, const uint8_t *body, size_t len, struct message *m)
{
    struct message_header head;
    struct k3_error err;

    if (message_decode_header(&head, r->header, r->header_len, &err) < 0 ||
        message_decode(m, &head, body, len, &err) < 0)
        fail_msg("%s: %s", r->type, err.text);
    assert_string_equal(message_type_name(m->head.type), r->type);
    assert_int_equal(m->head.version, version);
}

/* To know every field is to say the same again. */
static void assert_says(const struct recorded *r, const struct message *m)
{
    uint8_t header[MESSAGE_HEADER];
    struct message_bytes body;
    struct k3_error err;

    if (message_encode(m, header, &body, &err) < 0)
        fail_msg("%s: %s", r->type, err.text);
    assert_memory_equal(header, r->header, MESSAGE_HEADER);
    if (body.len != r->body_len || memcmp(body.data, r->body, body.len) != 0)
        fail_msg("%s: a field of version %u got lost or changed", r->type, version);
    free(body.data);
}

static void is_understood(const struct recorded *r)
{
    struct message m;

    decode(r, r->body, r->body_len, &m);
    assert_says(r, &m);
    message_clear(&m);
}

static void old_messages_are_understood(void **state)
{
    (void)state;
    for_each(is_understood);
}

/* A peer is told what it knows, byte for byte as its own version said it. */
static void is_said_so(const struct recorded *r)
{
    size_t count;
    const struct message *samples = message_samples(&count);
    struct message m;

    assert_true(line_number < count);
    m = samples[line_number];
    m.head.version = version;
    assert_says(r, &m);
}

static void each_version_is_spoken_as_it_was(void **state)
{
    (void)state;
    for_each(is_said_so);
}

/* What would mean something else without a new field is not said. */
static void what_an_old_peer_cannot_do_is_not_asked_of_it(void **state)
{
    size_t count, said = for_each_of(1, is_understood);
    const struct message *samples = message_samples(&count);

    (void)state;
    assert_true(said < count);
    for (; said < count; said++) {
        uint8_t header[MESSAGE_HEADER];
        struct message_bytes body;
        struct message m = samples[said];
        struct k3_error err;

        m.head.version = 1;
        /* Of these the new part is left out, and both sides do without. */
        if (m.head.type == WIRE_ENGINE_HELLO || m.head.type == WIRE_ENGINE_WELCOME) {
            assert_int_equal(message_encode(&m, header, &body, &err), 0);
            free(body.data);
            continue;
        }
        assert_int_equal(message_encode(&m, header, &body, &err), -1);
        assert_int_equal(errno, EPROTONOSUPPORT);
        assert_non_null(strstr(err.text, "the other side speaks protocol version 1, "));
    }
}

/* The first programs of version 1 knew no fences, and refuse a whole reply for a word that they do not know. */
static void an_old_peer_is_told_no_state_that_it_does_not_know(void **state)
{
    struct message_engine engine = {.job = 1, .state = ENGINE_FENCED};
    static const enum engine_state heard[] = {ENGINE_DRAINING, ENGINE_FENCED};

    (void)state;
    for (uint16_t v = 1; v <= 2; v++) {
        uint8_t header[MESSAGE_HEADER];
        struct message_bytes body;
        struct message m = message_of(WIRE_INFO_REPLY, NULL), got;
        struct k3_error err;

        m.head.version = v;
        m.info_reply.engines.v = &engine;
        m.info_reply.engines.n = 1;
        assert_int_equal(message_encode(&m, header, &body, &err), 0);
        assert_int_equal(message_decode(&got, &m.head, body.data, body.len, &err), 0);
        assert_int_equal(got.info_reply.engines.v[0].state, heard[v - 1]);
        free(body.data);
        message_clear(&got);
    }
}

/* A peer of the next version has keys that are not known here. */
static void skips_what_is_new(const struct recorded *r)
{
    static const uint8_t added[] = "\xa3new\x92\x01\xa4text";
    bool wide = r->body[0] == 0xde; /* more than 15 entries: the count follows in two bytes */
    size_t old = wide ? 3 : 1, len = 3 + sizeof added - 1 + r->body_len - old;
    uint8_t *body = k3_zalloc(len);
    struct message m;

    assert_true(wide || (r->body[0] & 0xf0) == 0x80);
    body[0] = 0xde;
    body[2] = (uint8_t)((wide ? r->body[2] : r->body[0] & 0x0f) + 1);
    memcpy(body + 3, added, sizeof added - 1);
    memcpy(body + 3 + sizeof added - 1, r->body + old, r->body_len - old);
    decode(r, body, len, &m);
    free(body);
    assert_says(r, &m);
    message_clear(&m);
}

static void what_a_newer_peer_adds_is_skipped(void **state)
{
    (void)state;
    for_each(skips_what_is_new);
}

static void is_refused_as_another(const struct recorded *r)
{
    static const uint16_t versions[] = {WIRE_VERSION_OLDEST - 1, WIRE_VERSION + 1, UINT16_MAX};

    for (size_t i = 0; i < sizeof versions / sizeof *versions; i++) {
        struct message_header head;
        struct k3_error err;
        char wanted[64];

        r->header[4] = (uint8_t)(versions[i] >> 8);
        r->header[5] = (uint8_t)versions[i];
        assert_int_equal(message_decode_header(&head, r->header, r->header_len, &err), -1);
        assert_int_equal(errno, EPROTONOSUPPORT);
        snprintf(wanted, sizeof wanted, "the other side speaks protocol version %u, ", versions[i]);
        assert_memory_equal(err.text, wanted, strlen(wanted));
    }
}

static void other_versions_are_refused(void **state)
{
    (void)state;
    for_each(is_refused_as_another);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(old_messages_are_understood),
        cmocka_unit_test(each_version_is_spoken_as_it_was),
        cmocka_unit_test(what_an_old_peer_cannot_do_is_not_asked_of_it),
        cmocka_unit_test(an_old_peer_is_told_no_state_that_it_does_not_know),
        cmocka_unit_test(what_a_newer_peer_adds_is_skipped),
        cmocka_unit_test(other_versions_are_refused),
    };

    if (argc == 2 && strcmp(argv[1], "record") == 0)
        return record();
    return cmocka_run_group_tests_name("recorded", tests, NULL, NULL);
}
