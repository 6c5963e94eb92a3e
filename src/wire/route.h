/* route.h - how a client or an engine on this host reaches k3queued
 *
 * By common.socket where somebody listens there, else by common.server when that is set: so one k3.conf serves login
 * node and compute nodes.  Over tcp the daemon proves to have the key of common.server_key. */
#ifndef K3_WIRE_ROUTE_H
#define K3_WIRE_ROUTE_H

#include "common/error.h"
#include "common/settings.h"

struct route;

/* Chooses; whoever asks again may get another way.  NULL: a setting is wrong.  The settings are not kept. */
struct route *route_find(const struct settings *settings, struct k3_error *err);
void route_destroy(struct route *r);

/* The endpoint, for sentences. */
const char *route_endpoint(const struct route *r);
/* Our public key as hex digits on this route, NULL where none is needed. */
const char *route_key(const struct route *r);

/* ZeroMQ tries for ever and in silence to reach a socket that is missing or dead.  -1: the socket on this host is one
 * of these, said in a sentence; 0: it answers, or this is the other way. */
int route_knock(const struct route *r, struct k3_error *err);

/* A DEALER (see frame_socket()) that is being connected. */
void *route_connect(const struct route *r, void *zmq, int line_messages, struct k3_error *err);

/* The sentence for a daemon that has not answered for so long. */
void route_silent(const struct route *r, double seconds, struct k3_error *err);

#endif
