/* serverkey.h - the daemon's key for tcp: made at its first start, kept for ever
 *
 * DIR/k3queued.key holds the secret half (mode 600), DIR/k3queued.pub the public half, for everyone to read: that is
 * what common.server_key is to say.  To change the key remove both and start again. */
#ifndef K3_QUEUE_SERVERKEY_H
#define K3_QUEUE_SERVERKEY_H

#include "common/error.h"
#include "wire/curve.h"

/* Read the pair, or make it, and the directory (mode 755) too.  A secret that others can read is refused. */
int serverkey_take(struct curve_pair *pair, const char *dir, struct k3_error *err);

#endif
