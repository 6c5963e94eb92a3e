/* endpoint.h - tcp endpoints as people write them in k3.conf */
#ifndef K3_WIRE_ENDPOINT_H
#define K3_WIRE_ENDPOINT_H

#include "common/error.h"

enum { ENDPOINT_PORT = 7420 }; /* where none is written */

/* "tcp://HOST[:PORT]" for zmq_connect(): with its port, to be freed.  NULL (errno EINVAL) when text is nothing of the
 * kind; the sentence names the setting. */
char *endpoint_server(const char *setting, const char *text, struct k3_error *err);

/* "tcp://INTERFACE[:PORT]" or an address in its place, for zmq_bind().  What means all interfaces is refused; who wants
 * that writes tcp://all-interfaces. */
char *endpoint_listen(const char *setting, const char *text, struct k3_error *err);

#endif
