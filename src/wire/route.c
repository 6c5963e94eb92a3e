#include "wire/route.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <sodium.h>
#include <zmq.h>

#include "common/alloc.h"
#include "wire/curve.h"
#include "wire/endpoint.h"
#include "wire/frame.h"

struct route {
    char *endpoint;
    bool tcp;
    uint8_t server_key[CURVE_BYTES];
    struct curve_pair pair; /* ours */
    char key[CURVE_DIGITS + 1];
};

static const char *socket_path(const char *endpoint)
{
    return strncmp(endpoint, "ipc://", 6) == 0 ? endpoint + 6 : NULL;
}

/* 0, or why nobody can be reached at this socket. */
static int try_socket(const char *endpoint)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const char *path = socket_path(endpoint);
    int fd, cause;

    if (!path || strlen(path) >= sizeof address.sun_path)
        return 0;
    memcpy(address.sun_path, path, strlen(path) + 1);
    if ((fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) < 0)
        return 0;
    cause = connect(fd, (struct sockaddr *)&address, sizeof address) < 0 ? errno : 0;
    close(fd);
    return cause;
}

static bool nobody(int cause)
{
    return cause == ENOENT || cause == ECONNREFUSED;
}

static int pin_key(struct route *r, const char *server_key, struct k3_error *err)
{
    if (!*server_key) {
        errno = EINVAL;
        return k3_errorf(err, "common.server = \"%s\" needs common.server_key, which k3queued logs when it starts",
                         r->endpoint);
    }
    return curve_pinned(r->server_key, "common.server_key", server_key, err);
}

struct route *route_find(const struct settings *settings, struct k3_error *err)
{
    const char *server = settings->common.server;
    struct route *r = k3_zalloc(sizeof *r);

    if (!*server || !nobody(try_socket(settings->common.socket))) {
        r->endpoint = k3_strdup(settings->common.socket);
        return r;
    }
    r->tcp = true;
    if (sodium_init() < 0)
        k3_errorf(err, "libsodium: no random numbers");
    else if ((r->endpoint = endpoint_server("common.server", server, err)) &&
             pin_key(r, settings->common.server_key, err) == 0) {
        curve_draw(&r->pair);
        curve_format(r->pair.public_key, r->key);
        return r;
    }
    route_destroy(r);
    return NULL;
}

void route_destroy(struct route *r)
{
    int saved = errno;

    if (!r)
        return;
    free(r->endpoint);
    sodium_memzero(r, sizeof *r);
    free(r);
    errno = saved;
}

const char *route_endpoint(const struct route *r)
{
    return r->endpoint;
}

const char *route_key(const struct route *r)
{
    return r->tcp ? r->key : NULL;
}

int route_knock(const struct route *r, struct k3_error *err)
{
    int cause = r->tcp ? 0 : try_socket(r->endpoint);

    if (nobody(cause))
        k3_errorf(err, "%s: k3queued is not running there (%s)", socket_path(r->endpoint),
                  cause == ENOENT ? "no such socket" : "nobody listens");
    else if (cause == EACCES)
        k3_errorf(err, "%s: you may not use this socket", socket_path(r->endpoint));
    else
        return 0;
    errno = cause;
    return -1;
}

void *route_connect(const struct route *r, void *zmq, int line_messages, struct k3_error *err)
{
    void *socket = frame_socket(zmq, ZMQ_DEALER, line_messages, err);

    if (!socket)
        return NULL;
    if ((r->tcp &&
         (frame_over_tcp(socket, r->endpoint, err) < 0 || curve_trust(socket, r->server_key, &r->pair, err) < 0)) ||
        frame_connect(socket, r->endpoint, err) < 0) {
        zmq_close(socket);
        return NULL;
    }
    return socket;
}

void route_silent(const struct route *r, double seconds, struct k3_error *err)
{
    k3_errorf(err, "%s: k3queued does not answer within %g s%s", r->endpoint, seconds,
              r->tcp ? "; it may be down, or common.server_key not the key that it has now" : "");
}
