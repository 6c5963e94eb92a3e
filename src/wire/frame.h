/* frame.h - messages through ZeroMQ sockets
 *
 * The daemon has one ROUTER, clients and engines have a DEALER each.  A message goes out whole or not at all and
 * nothing here waits: a peer whose line is full is the caller's to deal with. */
#ifndef K3_WIRE_FRAME_H
#define K3_WIRE_FRAME_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include <zmq.h>

#include "common/error.h"
#include "wire/auth.h"
#include "wire/message.h"

/* A peer of a ROUTER, as ZeroMQ names it; compare with frame_peer_equal(), zeroes after len. */
struct frame_peer {
    uint8_t len;
    uint8_t bytes[255];
};
bool frame_peer_equal(const struct frame_peer *a, const struct frame_peer *b);

/* A message as it came in: header parsed, body and credential still bytes. */
struct frame {
    struct frame_peer from; /* ROUTER only */
    struct message_header head;
    zmq_msg_t parts[3]; /* header, body, credential */
    int fd;             /* ROUTER only, also of what is no message: the connection it came by, ... */
    int count;          /* ... in so many parts ... */
    size_t bytes;       /* ... and so many bytes; they are gone but for these */
};

/* A ROUTER or DEALER of this context with the options both ends agree on: message size limited, a bounded line of
 * line_messages to each peer (0: 1000), lingering line dropped at close; on a ROUTER, sending to a peer that is
 * gone fails with EHOSTUNREACH and to one that does not read with EAGAIN.  The caller closes it by zmq_close(). */
void *frame_socket(void *zmq, int type, int line_messages, struct k3_error *err);

/* What is bound or connected from now on is this tcp endpoint: a peer that is gone without a word (half-open) is
 * noticed within 15 s, an attempt to connect is given up and repeated after two. */
int frame_over_tcp(void *socket, const char *endpoint, struct k3_error *err);

/* Bind or connect, with a sentence that names the endpoint. */
int frame_bind(void *socket, const char *endpoint, struct k3_error *err);
int frame_connect(void *socket, const char *endpoint, struct k3_error *err);

/* Send m, to a peer of a ROUTER (NULL on a DEALER), signed when auth is given.  Copies.  Does not wait: errno EAGAIN,
 * the line is full; EHOSTUNREACH, the peer is gone. */
int frame_send(void *socket, const struct frame_peer *to, const struct message *m, struct auth *auth,
               struct k3_error *err);

/* Take the next message off the socket.  1: *f is the caller's until frame_clear(); 0: none is there; -1: what came is
 * no message of ours (errno EPROTO or EPROTONOSUPPORT) and is gone, f->from says whose it was and, for EPROTONOSUPPORT,
 * f->head.id and head.version what it was about; the caller goes on receiving. */
int frame_recv(void *socket, struct frame *f, struct k3_error *err);
void frame_clear(struct frame *f);

/* Who signed it: auth_verify() on its parts. */
int frame_verify(const struct frame *f, struct auth *auth, uid_t *uid, gid_t *gid, struct k3_error *err);
/* The public key, as hex digits, of the peer whose connection it came by, where that is tcp and somebody answers ZAP
 * (queue/zap.h); else NULL.  Good until frame_clear(). */
const char *frame_key(const struct frame *f);
/* message_decode() on its parts. */
int frame_decode(const struct frame *f, struct message *m, struct k3_error *err);

#endif
