#include "client/connect.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <sodium.h>
#include <zmq.h>

#include "common/alloc.h"
#include "common/clock.h"
#include "wire/auth.h"
#include "wire/frame.h"
#include "wire/route.h"

struct connection {
    const struct settings *settings;
    struct route *route;
    void *zmq, *socket, *watch;
    struct auth *auth;
    uint16_t version; /* that is spoken to the daemon */
};

static const char watch_endpoint[] = "inproc://watch";

struct connection *connect_open(const struct settings *settings, struct k3_error *err)
{
    struct connection *c = k3_zalloc(sizeof *c);

    c->settings = settings;
    c->version = WIRE_VERSION;
    if (!(c->route = route_find(settings, err)) || route_knock(c->route, err) < 0)
        goto fail;
    if (sodium_init() < 0) {
        k3_errorf(err, "libsodium: no random numbers");
        goto fail;
    }
    if (!(c->zmq = zmq_ctx_new())) {
        k3_errorf(err, "ZeroMQ: %s", zmq_strerror(errno));
        goto fail;
    }
    if (!(c->auth = auth_create(settings->common.munge_socket, err)) ||
        !(c->socket = route_connect(c->route, c->zmq, 0, err)))
        goto fail;
    return c;
fail:
    connect_close(c);
    return NULL;
}

void connect_close(struct connection *c)
{
    int saved = errno;

    if (!c)
        return;
    if (c->watch) {
        zmq_socket_monitor(c->socket, NULL, 0);
        zmq_close(c->watch);
    }
    if (c->socket)
        zmq_close(c->socket);
    auth_destroy(c->auth);
    if (c->zmq)
        zmq_ctx_term(c->zmq);
    route_destroy(c->route);
    free(c);
    errno = saved;
}

void *connect_socket(struct connection *c)
{
    return c->socket;
}

int connect_send(struct connection *c, const struct message *m, struct k3_error *err)
{
    struct message said = *m;

    said.head.version = c->version;
    return frame_send(c->socket, NULL, &said, c->auth, err);
}

/* Answers carry the version of their question, but for one: that the daemon does not speak it. */
static bool steps_back(struct connection *c, const struct frame *f)
{
    if (f->head.type != WIRE_REFUSED || f->head.version >= c->version)
        return false;
    c->version = f->head.version;
    return true;
}

int connect_receive(struct connection *c, double seconds, struct message *m, struct k3_error *err)
{
    struct frame f;
    double end = clock_monotonic() + seconds;

    for (;;) {
        int rc = frame_recv(c->socket, &f, err);
        if (rc < 0)
            return -1;
        if (rc > 0 && steps_back(c, &f)) {
            frame_clear(&f);
            k3_errorf(err, "k3queued is an older one, and speaks protocol version %u", c->version);
            errno = EPROTONOSUPPORT;
            return -1;
        }
        if (rc > 0) {
            rc = frame_decode(&f, m, err);
            frame_clear(&f);
            return rc < 0 ? -1 : 1;
        }
        double left = end - clock_monotonic();
        if (left <= 0)
            return 0;
        zmq_pollitem_t item = {c->socket, -1, ZMQ_POLLIN, 0};
        zmq_poll(&item, 1, (long)(left * 1e3) + 1);
    }
}

double connect_timeout(const struct connection *c)
{
    return c->settings->common.timeout;
}

void connect_unreachable(const struct connection *c, struct k3_error *err)
{
    route_silent(c->route, c->settings->common.timeout, err);
}

enum exit_code connect_ask(struct connection *c, const struct message *question, enum message_type wanted,
                           struct message *answer, struct k3_error *err)
{
    double end = clock_monotonic() + c->settings->common.timeout;

    if (connect_send(c, question, err) < 0)
        return EXIT_CODE_FAILED;
    for (;;) {
        double left = end - clock_monotonic();
        int rc = connect_receive(c, left > 0 ? left : 0, answer, err);
        if (rc < 0 && errno == EPROTONOSUPPORT && connect_send(c, question, err) == 0)
            continue;
        if (rc < 0)
            return EXIT_CODE_FAILED;
        if (rc == 0) {
            connect_unreachable(c, err);
            return EXIT_CODE_UNREACHABLE;
        }
        bool ours = k3_id_equal(&answer->head.id, &question->head.id);
        if (ours && answer->head.type == wanted)
            return EXIT_CODE_OK;
        if (ours && answer->head.type == WIRE_REFUSED) {
            enum exit_code code = answer->refused.code ? answer->refused.code : EXIT_CODE_FAILED;
            k3_errorf(err, answer->refused.retry > 0 ? "%s (try again in %.0f s)" : "%s", answer->refused.msg,
                      answer->refused.retry);
            message_clear(answer);
            return code;
        }
        message_clear(answer); /* late, of an earlier question */
    }
}

void *connect_watch(struct connection *c)
{
    if (c->watch)
        return c->watch;
    if (zmq_socket_monitor(c->socket, watch_endpoint, ZMQ_EVENT_CONNECTED | ZMQ_EVENT_DISCONNECTED) < 0)
        return NULL;
    if ((c->watch = zmq_socket(c->zmq, ZMQ_PAIR)) && zmq_connect(c->watch, watch_endpoint) < 0) {
        zmq_close(c->watch);
        c->watch = NULL;
    }
    return c->watch;
}

int connect_changed(struct connection *c)
{
    uint8_t event[6]; /* number and value; the endpoint follows as a second part */
    uint16_t number;
    int change = 0, n;

    while ((n = zmq_recv(c->watch, event, sizeof event, ZMQ_DONTWAIT)) >= 0) {
        memcpy(&number, event, sizeof number);
        if (n == sizeof event)
            change |= number == ZMQ_EVENT_CONNECTED ? CONNECT_CAME : CONNECT_WENT;
        zmq_recv(c->watch, event, 0, 0);
    }
    return change;
}
