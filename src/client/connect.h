/* connect.h - a command's line to k3queued
 *
 * What a person must know when nobody answers is one sentence with the socket's name; a socket file that is missing or
 * that nobody listens on is told at once, everything else after common.timeout. */
#ifndef K3_CLIENT_CONNECT_H
#define K3_CLIENT_CONNECT_H

#include "common/error.h"
#include "common/settings.h"
#include "wire/message.h"

struct connection;

/* settings are borrowed.  NULL: nobody is there (EXIT_CODE_UNREACHABLE). */
struct connection *connect_open(const struct settings *settings, struct k3_error *err);
/* Accepts NULL. */
void connect_close(struct connection *c);

/* The DEALER, for a loop. */
void *connect_socket(struct connection *c);

/* Send with a fresh credential. */
int connect_send(struct connection *c, const struct message *m, struct k3_error *err);
/* The next message into *m, the caller's to clear: 1; 0: none came in these seconds (0: don't wait); -1: what came
 * makes no sense (errno EPROTONOSUPPORT: the daemon is an older one and has not understood; what is sent from now on is
 * of its version, so ask again). */
int connect_receive(struct connection *c, double seconds, struct message *m, struct k3_error *err);

/* Send a question and wait for its answer, a message of type `wanted` with the question's id.  EXIT_CODE_OK and *answer
 * is the caller's to clear; else why not, with the daemon's sentence when it refused. */
enum exit_code connect_ask(struct connection *c, const struct message *question, enum message_type wanted,
                           struct message *answer, struct k3_error *err);

/* A socket that says when the daemon went away and when it is back: readable, then connect_changed().  NULL: none. */
void *connect_watch(struct connection *c);
/* What happened since: both may have. */
enum { CONNECT_WENT = 1, CONNECT_CAME = 2 };
int connect_changed(struct connection *c);

/* Seconds that an answer is waited for. */
double connect_timeout(const struct connection *c);
/* The sentence for a daemon that does not answer. */
void connect_unreachable(const struct connection *c, struct k3_error *err);

#endif
