/* network_test.c - tcp endpoints, keys, and the way to the daemon */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <sodium.h>
#include <zmq.h>

#include "wire/curve.h"
#include "wire/endpoint.h"
#include "wire/frame.h"
#include "wire/route.h"

/* --- endpoints */

static void assert_endpoint(char *(*parse)(const char *, const char *, struct k3_error *), const char *text,
                            const char *wanted)
{
    struct k3_error err = {""};
    char *got = parse("k3queued.listen", text, &err);

    if (wanted) {
        assert_non_null(got);
        assert_string_equal(got, wanted);
    } else {
        assert_null(got);
        assert_int_equal(errno, EINVAL);
        assert_non_null(strstr(err.text, "k3queued.listen = \""));
    }
    free(got);
}

static void test_endpoints(void **state)
{
    static const char *const wrong[] = {
        "",           "eth0",           "tcp://",          "tcp://:7420",     "ipc:///tmp/x", "tcp://eth0:",
        "tcp://a:0",  "tcp://a:65536",  "tcp://a:7420x",   "tcp://a:-1",      "tcp://a b",    "tcp://a;b:1",
        "tcp://[::1", "tcp://::1:7420", "tcp://[eth0]:71", "tcp://a:1:2",     "tcp://a/b",    "tcp://[]",
        "udp://a:1",  "tcp://a:+1",     "tcp://a:0x10",    "tcp://eth0: 742", "tcp://[::1]7",
    };
    static const char *const everywhere[] = {"tcp://*",      "tcp://*:7420", "tcp://0.0.0.0:1",         "tcp://0:1",
                                             "tcp://[::]:1", "tcp://[0::0]", "tcp://[::ffff:0.0.0.0]:9"};

    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_endpoint(endpoint_listen, wrong[i], NULL);
        assert_endpoint(endpoint_server, wrong[i], NULL);
    }
    for (size_t i = 0; i < sizeof everywhere / sizeof *everywhere; i++) {
        assert_endpoint(endpoint_listen, everywhere[i], NULL);
        assert_endpoint(endpoint_server, everywhere[i], NULL);
    }
    assert_endpoint(endpoint_listen, "tcp://eth0", "tcp://eth0:7420");
    assert_endpoint(endpoint_listen, "tcp://eth0.12:65535", "tcp://eth0.12:65535");
    assert_endpoint(endpoint_listen, "tcp://10.1.2.3:1", "tcp://10.1.2.3:1");
    assert_endpoint(endpoint_listen, "tcp://[fd00::1]", "tcp://[fd00::1]:7420");
    assert_endpoint(endpoint_listen, "tcp://all-interfaces:7421", "tcp://*:7421");
    assert_endpoint(endpoint_server, "tcp://login1.cluster", "tcp://login1.cluster:7420");
}

/* --- keys */

static void test_keys_as_text(void **state)
{
    struct curve_pair pair, again = {{0}, {0}};
    char text[CURVE_DIGITS + 2];

    (void)state;
    curve_draw(&pair);
    memcpy(again.secret_key, pair.secret_key, CURVE_BYTES);
    curve_complete(&again);
    assert_memory_equal(again.public_key, pair.public_key, CURVE_BYTES);
    curve_format(pair.public_key, text);
    assert_int_equal(strlen(text), CURVE_DIGITS);
    assert_int_equal(curve_parse(again.secret_key, text), 0);
    assert_memory_equal(again.secret_key, pair.public_key, CURVE_BYTES);
    strcat(text, "0");
    assert_int_equal(curve_parse(again.secret_key, text), -1);
    text[CURVE_DIGITS - 1] = '\0';
    assert_int_equal(curve_parse(again.secret_key, text), -1);
    text[0] = 'x';
    assert_int_equal(curve_parse(again.secret_key, text), -1);
}

/* --- routes */

static struct settings settings_of(const char *socket, const char *server, const char *key)
{
    struct settings s = {.common = {.socket = (char *)socket, .server = (char *)server, .server_key = (char *)key}};

    return s;
}

static char digits[CURVE_DIGITS + 1]; /* of some key */

static void test_a_socket_that_is_listened_on_comes_first(void **state)
{
    char directory[] = "/tmp/k3netXXXXXX", endpoint[64];
    void *zmq = zmq_ctx_new(), *daemon = zmq_socket(zmq, ZMQ_ROUTER);
    struct k3_error err;
    struct route *r;

    (void)state;
    assert_non_null(mkdtemp(directory));
    snprintf(endpoint, sizeof endpoint, "ipc://%s/s", directory);
    struct settings s = settings_of(endpoint, "tcp://login1", digits);

    assert_non_null(r = route_find(&s, &err)); /* nobody there */
    assert_string_equal(route_endpoint(r), "tcp://login1:7420");
    assert_int_equal(strlen(route_key(r)), CURVE_DIGITS);
    assert_int_equal(route_knock(r, &err), 0);
    route_silent(r, 2.5, &err);
    assert_string_equal(err.text, "tcp://login1:7420: k3queued does not answer within 2.5 s; it may be down, or "
                                  "common.server_key not the key that it has now");
    route_destroy(r);

    assert_int_equal(zmq_bind(daemon, endpoint), 0);
    assert_non_null(r = route_find(&s, &err));
    assert_string_equal(route_endpoint(r), endpoint);
    assert_null(route_key(r));
    assert_int_equal(route_knock(r, &err), 0);
    route_destroy(r);
    zmq_close(daemon);
    zmq_ctx_term(zmq);

    s.common.server = (char *)"";
    assert_non_null(r = route_find(&s, &err)); /* no other way */
    assert_string_equal(route_endpoint(r), endpoint);
    assert_int_equal(route_knock(r, &err), -1);
    assert_non_null(strstr(err.text, "k3queued is not running there"));
    route_destroy(r);
    unlink(endpoint + strlen("ipc://"));
    rmdir(directory);
}

static void test_what_is_wrong_with_a_server(void **state)
{
    static const struct {
        const char *server, *key, *sentence;
    } cases[] = {
        {"tcp://login1", "", "common.server = \"tcp://login1:7420\" needs common.server_key"},
        {"tcp://login1", "k3queued.pub", "neither 64 hex digits nor the path"},
        {"tcp://login1", "/nowhere/k3queued.pub", "/nowhere/k3queued.pub: No such file"},
        {"tcp://login1", "/dev/null", "/dev/null: not a key of 64 hex digits"},
        {"login1", digits, "common.server = \"login1\": not a host as in tcp://login1:7420"},
    };
    struct k3_error err;

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct settings s = settings_of("ipc:///nowhere/at/all", cases[i].server, cases[i].key);
        assert_null(route_find(&s, &err));
        if (!strstr(err.text, cases[i].sentence))
            fail_msg("\"%s\" is not in \"%s\"", cases[i].sentence, err.text);
    }
}

/* One ROUTER on both transports: keys hold for tcp only, and there for everybody. */
struct ends {
    void *zmq, *daemon;
    struct curve_pair pair;
    char tcp[64], ipc[64], directory[32];
};

static int start(void **state)
{
    struct ends *e = calloc(1, sizeof *e);
    size_t len = sizeof e->tcp;
    struct k3_error err;

    strcpy(e->directory, "/tmp/k3netXXXXXX");
    assert_non_null(mkdtemp(e->directory));
    snprintf(e->ipc, sizeof e->ipc, "ipc://%s/s", e->directory);
    curve_draw(&e->pair);
    e->zmq = zmq_ctx_new();
    assert_non_null(e->daemon = frame_socket(e->zmq, ZMQ_ROUTER, 0, &err));
    assert_int_equal(frame_bind(e->daemon, e->ipc, &err), 0);
    assert_int_equal(curve_serve(e->daemon, &e->pair, &err), 0);
    assert_int_equal(frame_bind(e->daemon, "tcp://127.0.0.1:*", &err), 0);
    assert_int_equal(zmq_getsockopt(e->daemon, ZMQ_LAST_ENDPOINT, e->tcp, &len), 0);
    *state = e;
    return 0;
}

static int stop(void **state)
{
    struct ends *e = *state;

    zmq_close(e->daemon);
    zmq_ctx_term(e->zmq);
    unlink(e->ipc + strlen("ipc://"));
    rmdir(e->directory);
    free(e);
    return 0;
}

/* Does a message of a client with these settings get through? */
static bool gets_through(struct ends *e, const struct settings *s)
{
    struct message m = message_of(WIRE_INFO, NULL);
    struct k3_error err;
    struct frame f;
    struct route *r = route_find(s, &err);
    void *client;

    assert_non_null(r);
    assert_non_null(client = route_connect(r, e->zmq, 0, &err));
    assert_int_equal(frame_send(client, NULL, &m, NULL, &err), 0);
    zmq_pollitem_t item = {.socket = e->daemon, .events = ZMQ_POLLIN};
    zmq_poll(&item, 1, 700);
    int got = frame_recv(e->daemon, &f, &err);
    if (got == 1)
        frame_clear(&f);
    zmq_close(client);
    route_destroy(r);
    return got == 1;
}

static void test_only_who_knows_the_key_gets_through(void **state)
{
    struct ends *e = *state;
    char right[CURVE_DIGITS + 1];
    struct settings s = settings_of("ipc:///nowhere/at/all", e->tcp, curve_format(e->pair.public_key, right));

    assert_true(gets_through(e, &s));
    s.common.server_key = digits; /* another key */
    assert_false(gets_through(e, &s));
    s = settings_of(e->tcp, "", ""); /* tcp without any */
    assert_false(gets_through(e, &s));
    s = settings_of(e->ipc, "", "");
    assert_true(gets_through(e, &s));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_endpoints),
        cmocka_unit_test(test_keys_as_text),
        cmocka_unit_test(test_a_socket_that_is_listened_on_comes_first),
        cmocka_unit_test(test_what_is_wrong_with_a_server),
        cmocka_unit_test_setup_teardown(test_only_who_knows_the_key_gets_through, start, stop),
    };
    struct curve_pair some;

    if (sodium_init() < 0)
        return 1;
    curve_draw(&some);
    curve_format(some.public_key, digits);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
