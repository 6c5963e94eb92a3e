/* zap.h - tells the daemon which key a peer on tcp has
 *
 * ZeroMQ asks inside the process, by ZAP (https://rfc.zeromq.org/spec/27/), whether a key that a peer has proved to own
 * may come in.  Every key may: users prove who they are by MUNGE, message by message.  The answer names the peer by its
 * key, and from then on each of its messages carries that name: frame_key(). */
#ifndef K3_QUEUE_ZAP_H
#define K3_QUEUE_ZAP_H

#include "common/error.h"
#include "common/loop.h"

struct zap;

/* Answer from the loop; created before the first tcp endpoint is bound, one in a ZeroMQ context.  Both are borrowed. */
struct zap *zap_create(struct loop *loop, void *zmq, struct k3_error *err);
void zap_destroy(struct zap *z);

#endif
