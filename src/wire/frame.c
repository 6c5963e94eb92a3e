#include "wire/frame.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { HEADER, BODY, CREDENTIAL, PARTS };
enum { HEARTBEAT_MSEC = 3000, HALF_OPEN_MSEC = 10000, CONNECT_MSEC = 2000 };

bool frame_peer_equal(const struct frame_peer *a, const struct frame_peer *b)
{
    return a->len == b->len && memcmp(a->bytes, b->bytes, a->len) == 0;
}

static int set_int(void *socket, int option, int value)
{
    return zmq_setsockopt(socket, option, &value, sizeof value);
}

void *frame_socket(void *zmq, int type, int line_messages, struct k3_error *err)
{
    int64_t largest = MESSAGE_BODY;
    int line = line_messages ? line_messages : 1000;
    void *socket = zmq_socket(zmq, type);

    if (!socket || zmq_setsockopt(socket, ZMQ_MAXMSGSIZE, &largest, sizeof largest) < 0 ||
        set_int(socket, ZMQ_LINGER, 0) < 0 || set_int(socket, ZMQ_SNDHWM, line) < 0 ||
        set_int(socket, ZMQ_RCVHWM, line) < 0 || (type == ZMQ_ROUTER && set_int(socket, ZMQ_ROUTER_MANDATORY, 1) < 0)) {
        k3_errorf(err, "ZeroMQ socket: %s", zmq_strerror(zmq_errno()));
        if (socket)
            zmq_close(socket);
        return NULL;
    }
    return socket;
}

/* An IPv6 address is written in brackets; names are looked up as IPv4 only, since ZeroMQ tries one address of a name.
 */
int frame_over_tcp(void *socket, const char *endpoint, struct k3_error *err)
{
    if (set_int(socket, ZMQ_HEARTBEAT_IVL, HEARTBEAT_MSEC) < 0 ||
        set_int(socket, ZMQ_HEARTBEAT_TIMEOUT, HALF_OPEN_MSEC) < 0 ||
        set_int(socket, ZMQ_CONNECT_TIMEOUT, CONNECT_MSEC) < 0 ||
        set_int(socket, ZMQ_IPV6, !!strchr(endpoint, '[')) < 0)
        return k3_errorf(err, "ZeroMQ socket: %s", zmq_strerror(zmq_errno()));
    return 0;
}

int frame_bind(void *socket, const char *endpoint, struct k3_error *err)
{
    return zmq_bind(socket, endpoint) < 0 ? k3_errorf(err, "%s: cannot listen: %s", endpoint, zmq_strerror(zmq_errno()))
                                          : 0;
}

int frame_connect(void *socket, const char *endpoint, struct k3_error *err)
{
    return zmq_connect(socket, endpoint) < 0
               ? k3_errorf(err, "%s: cannot connect: %s", endpoint, zmq_strerror(zmq_errno()))
               : 0;
}

static void release(void *data, void *hint)
{
    (void)hint;
    free(data);
}

/* ZeroMQ queues a multipart whole or refuses its first part, so only the first can fail for a peer's sake. */
static int send_parts(void *socket, const struct frame_peer *to, const void *header, zmq_msg_t *body,
                      const char *credential)
{
    if (to && zmq_send(socket, to->bytes, to->len, ZMQ_SNDMORE | ZMQ_DONTWAIT) < 0)
        return -1;
    if (zmq_send(socket, header, MESSAGE_HEADER, ZMQ_SNDMORE | ZMQ_DONTWAIT) < 0)
        return -1;
    if (zmq_msg_send(body, socket, (credential ? ZMQ_SNDMORE : 0) | ZMQ_DONTWAIT) < 0)
        return -1;
    return credential && zmq_send(socket, credential, strlen(credential), ZMQ_DONTWAIT) < 0 ? -1 : 0;
}

int frame_send(void *socket, const struct frame_peer *to, const struct message *m, struct auth *auth,
               struct k3_error *err)
{
    uint8_t header[MESSAGE_HEADER];
    struct message_bytes bytes = {NULL, 0};
    char *credential = NULL;
    zmq_msg_t body;
    int rc = -1;

    if (message_encode(m, header, &bytes, err) < 0)
        return -1;
    if (auth && !(credential = auth_sign(auth, header, sizeof header, bytes.data, bytes.len, err)))
        goto out;
    if (zmq_msg_init_data(&body, bytes.data, bytes.len, release, NULL) < 0) {
        k3_errorf(err, "%s: %s", message_type_name(m->head.type), zmq_strerror(zmq_errno()));
        goto out;
    }
    bytes.data = NULL; /* the message's now */
    if ((rc = send_parts(socket, to, header, &body, credential)) < 0) {
        k3_errorf(err, "%s: cannot be sent: %s", message_type_name(m->head.type), zmq_strerror(zmq_errno()));
        int saved = errno;
        zmq_msg_close(&body);
        errno = saved;
    }
out:
    free(bytes.data);
    free(credential);
    return rc;
}

/* The parts of one message, as many as fit; the rest of a longer one is thrown away.  Number of parts it had, 0: none
 * waits, -1: the socket failed. */
static int recv_parts(void *socket, zmq_msg_t *parts, int room, size_t *bytes)
{
    int n = 0;
    bool more = true;

    while (more) {
        zmq_msg_t extra;
        zmq_msg_t *part = n < room ? &parts[n] : &extra;
        zmq_msg_init(part);
        if (zmq_msg_recv(part, socket, n ? 0 : ZMQ_DONTWAIT) < 0) {
            zmq_msg_close(part);
            if (errno == EINTR)
                continue;
            return n == 0 && errno == EAGAIN ? 0 : -1;
        }
        more = zmq_msg_more(part);
        *bytes += zmq_msg_size(part);
        if (part == &extra)
            zmq_msg_close(part);
        n++;
    }
    return n;
}

int frame_recv(void *socket, struct frame *f, struct k3_error *err)
{
    zmq_msg_t got[PARTS + 1];
    int type, first = 0, rc = -1;
    size_t size = sizeof type;

    memset(f, 0, sizeof *f);
    if (zmq_getsockopt(socket, ZMQ_TYPE, &type, &size) < 0)
        return k3_errorf(err, "ZeroMQ socket: %s", zmq_strerror(zmq_errno()));
    int n = recv_parts(socket, got, PARTS + 1, &f->bytes);
    if (n < 0)
        return k3_errorf(err, "ZeroMQ socket: %s", zmq_strerror(zmq_errno()));
    if (n == 0)
        return 0;

    int kept = n < PARTS + 1 ? n : PARTS + 1;
    if (type == ZMQ_ROUTER) {
        first = 1;
        f->fd = zmq_msg_get(&got[0], ZMQ_SRCFD);
        f->count = n - 1;
        f->from.len = (uint8_t)zmq_msg_size(&got[0]); /* ZeroMQ's own limit is 255 */
        memcpy(f->from.bytes, zmq_msg_data(&got[0]), f->from.len);
    }
    if (n - first < BODY + 1 || n - first > PARTS) {
        errno = EPROTO;
        k3_errorf(err, "not a k3 message: %d parts", n - first);
        goto out;
    }
    if (message_decode_header(&f->head, zmq_msg_data(&got[first]), zmq_msg_size(&got[first]), err) < 0)
        goto out;
    for (int i = 0; i < PARTS; i++) {
        zmq_msg_init(&f->parts[i]);
        if (first + i < kept)
            zmq_msg_move(&f->parts[i], &got[first + i]);
    }
    rc = 1;
out:;
    int saved = errno;
    for (int i = 0; i < kept; i++)
        zmq_msg_close(&got[i]);
    errno = saved;
    return rc;
}

void frame_clear(struct frame *f)
{
    int saved = errno;

    for (int i = 0; i < PARTS; i++)
        zmq_msg_close(&f->parts[i]);
    errno = saved;
}

/* zmq_msg_data() takes a pointer to non-const but changes nothing. */
static const void *part_data(const struct frame *f, int part)
{
    return zmq_msg_data((zmq_msg_t *)&f->parts[part]);
}

int frame_verify(const struct frame *f, struct auth *auth, uid_t *uid, gid_t *gid, struct k3_error *err)
{
    return auth_verify(auth, part_data(f, CREDENTIAL), zmq_msg_size(&f->parts[CREDENTIAL]), part_data(f, HEADER),
                       MESSAGE_HEADER, part_data(f, BODY), zmq_msg_size(&f->parts[BODY]), uid, gid, err);
}

const char *frame_key(const struct frame *f)
{
    const char *key = zmq_msg_gets((zmq_msg_t *)&f->parts[HEADER], "User-Id");

    return key && *key ? key : NULL;
}

int frame_decode(const struct frame *f, struct message *m, struct k3_error *err)
{
    return message_decode(m, &f->head, part_data(f, BODY), zmq_msg_size(&f->parts[BODY]), err);
}
