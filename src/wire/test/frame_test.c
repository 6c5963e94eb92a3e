/* frame_test.c - messages through ROUTER and DEALER, and what does not belong there */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <zmq.h>

#include "samples.h"
#include "wire/frame.h"

struct pair {
    void *zmq, *router, *dealer;
};

static const char endpoint[] = "inproc://frame";

static int open_pair(void **state)
{
    static struct pair p;
    struct k3_error err;
    p.zmq = zmq_ctx_new();
    p.router = frame_socket(p.zmq, ZMQ_ROUTER, 4, &err);
    p.dealer = frame_socket(p.zmq, ZMQ_DEALER, 4, &err);
    *state = &p;
    return p.router && p.dealer && frame_bind(p.router, endpoint, &err) == 0 &&
                   frame_connect(p.dealer, endpoint, &err) == 0
               ? 0
               : -1;
}

static int close_pair(void **state)
{
    struct pair *p = *state;
    zmq_close(p->dealer);
    zmq_close(p->router);
    return zmq_ctx_term(p->zmq);
}

static void messages_go_there_and_the_answer_comes_back(void **state)
{
    struct pair *p = *state;
    struct k3_error err;
    struct frame f;
    struct message m;
    size_t count;
    const struct message *sample = message_samples(&count);

    assert_int_equal(frame_recv(p->router, &f, &err), 0);
    assert_int_equal(frame_send(p->dealer, NULL, sample, NULL, &err), 0);
    assert_int_equal(frame_recv(p->router, &f, &err), 1);
    assert_int_equal(f.head.type, WIRE_SUBMIT);
    assert_true(f.from.len > 0);
    assert_int_equal(frame_decode(&f, &m, &err), 0);
    assert_string_equal(m.submit.name, "thesis");
    struct frame_peer peer = f.from;
    message_clear(&m);
    frame_clear(&f);

    m = message_of(WIRE_OK, &sample->head.id);
    assert_int_equal(frame_send(p->router, &peer, &m, NULL, &err), 0);
    assert_int_equal(frame_recv(p->dealer, &f, &err), 1);
    assert_int_equal(f.head.type, WIRE_OK);
    assert_int_equal(f.from.len, 0);
    assert_true(k3_id_equal(&f.head.id, &sample->head.id));
    frame_clear(&f);
    assert_int_equal(frame_recv(p->dealer, &f, &err), 0);
}

static void a_peer_that_is_gone_or_does_not_read_is_told_apart(void **state)
{
    struct pair *p = *state;
    struct k3_error err;
    struct frame f;
    struct message m = message_of(WIRE_INFO, NULL);
    struct frame_peer nobody = {3, {1, 2, 3}};

    assert_int_equal(frame_send(p->router, &nobody, &m, NULL, &err), -1);
    assert_int_equal(errno, EHOSTUNREACH);

    assert_int_equal(frame_send(p->dealer, NULL, &m, NULL, &err), 0);
    assert_int_equal(frame_recv(p->router, &f, &err), 1);
    struct frame_peer peer = f.from;
    frame_clear(&f);
    int sent = 0;
    while (frame_send(p->router, &peer, &m, NULL, &err) == 0)
        sent++;
    assert_int_equal(errno, EAGAIN);
    assert_int_equal(sent, 8); /* both sides' lines of four */
    /* Each one that was taken arrives whole, and then there is room again. */
    for (int i = 0; i < sent; i++) {
        assert_int_equal(frame_recv(p->dealer, &f, &err), 1);
        assert_int_equal(f.head.type, WIRE_INFO);
        frame_clear(&f);
    }
    assert_int_equal(frame_recv(p->dealer, &f, &err), 0);
    /* ZeroMQ learns of the room with a few milliseconds' delay. */
    int rc = -1;
    for (int i = 0; i < 1000 && (rc = frame_send(p->router, &peer, &m, NULL, &err)) < 0; i++)
        usleep(1000);
    assert_int_equal(rc, 0);
}

/* Parts as they are. */
static void send_raw(void *socket, const char *const *parts, const size_t *lens, size_t n)
{
    for (size_t i = 0; i < n; i++)
        assert_int_equal(zmq_send(socket, parts[i], lens[i], i + 1 < n ? ZMQ_SNDMORE : 0), (int)lens[i]);
}

static void what_is_no_message_is_dropped_whole(void **state)
{
    struct pair *p = *state;
    struct k3_error err;
    struct frame f;
    struct message m = message_of(WIRE_INFO, NULL);
    static const char header[MESSAGE_HEADER + 1] = "k3w1\0\1\0\5";
    static const char later[MESSAGE_HEADER + 1] = "k3w1\0\3\0\5\0\0\0\0\7";
    const char *parts[7] = {header, "\x80", "c", "d", "e", "f", "g"};
    size_t lens[7] = {MESSAGE_HEADER, 1, 1, 1, 1, 1, 1};

    for (size_t n = 1; n <= 7; n++) {
        send_raw(p->dealer, parts, lens, n);
        int rc = frame_recv(p->router, &f, &err);
        assert_int_equal(rc, n == 2 || n == 3 ? 1 : -1);
        assert_true(f.from.len > 0);
        if (rc > 0)
            frame_clear(&f);
        assert_int_equal(frame_recv(p->router, &f, &err), 0);
    }
    lens[0] = 3;
    send_raw(p->dealer, parts, lens, 2);
    assert_int_equal(frame_recv(p->router, &f, &err), -1);
    assert_int_equal(errno, EPROTO);
    lens[0] = MESSAGE_HEADER;
    parts[0] = later;
    send_raw(p->dealer, parts, lens, 2);
    assert_int_equal(frame_recv(p->router, &f, &err), -1);
    assert_int_equal(errno, EPROTONOSUPPORT);
    assert_int_equal(f.head.version, WIRE_VERSION + 1);
    assert_int_equal(f.head.id.bytes[0], 7);
    /* An empty body is no map. */
    lens[1] = 0;
    parts[0] = header;
    send_raw(p->dealer, parts, lens, 2);
    assert_int_equal(frame_recv(p->router, &f, &err), 1);
    assert_int_equal(frame_decode(&f, &m, &err), -1);
    frame_clear(&f);
    /* And the line still works. */
    assert_int_equal(frame_send(p->dealer, NULL, &m, NULL, &err), 0);
    assert_int_equal(frame_recv(p->router, &f, &err), 1);
    frame_clear(&f);
}

static void endpoints_that_cannot_be_used_are_named(void **state)
{
    struct pair *p = *state;
    struct k3_error err;
    assert_int_equal(frame_bind(p->router, "ipc:///nonexistent/x.sock", &err), -1);
    assert_string_equal(err.text, "ipc:///nonexistent/x.sock: cannot listen: No such file or directory");
    assert_int_equal(frame_connect(p->dealer, "nonsense", &err), -1);
    assert_string_equal(err.text, "nonsense: cannot connect: Invalid argument");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(messages_go_there_and_the_answer_comes_back, open_pair, close_pair),
        cmocka_unit_test_setup_teardown(a_peer_that_is_gone_or_does_not_read_is_told_apart, open_pair, close_pair),
        cmocka_unit_test_setup_teardown(what_is_no_message_is_dropped_whole, open_pair, close_pair),
        cmocka_unit_test_setup_teardown(endpoints_that_cannot_be_used_are_named, open_pair, close_pair),
    };
    return cmocka_run_group_tests_name("frame", tests, NULL, NULL);
}
