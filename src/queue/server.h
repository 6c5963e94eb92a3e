/* server.h - what comes in through the daemon's socket, and who may say it
 *
 * One ROUTER for clients and engines.  A table says for each type of message who may send it and what serves it.
 * Everything outside that table, every frame that is no message and every sender who may not is refused, with a
 * sentence where an answer can be sent, and costs the daemon nothing more. */
#ifndef K3_QUEUE_SERVER_H
#define K3_QUEUE_SERVER_H

#include <stdbool.h>
#include <sys/types.h>

#include "common/error.h"
#include "common/loop.h"
#include "queue/queue.h"
#include "wire/curve.h"

struct server_options {
    /* Borrowed for the call: */
    const char *endpoint;
    const char *munge_socket;
    const char *listen;            /* tcp endpoint, or NULL ... */
    const struct curve_pair *pair; /* ... with the daemon's key */

    uid_t service_uid;            /* whose jobs may be engines; he and root are operators, too */
    bool check_jobs;              /* ask squeue whether they are */
    unsigned int max_connections; /* of one user of this host, or of another host */
    struct queue_options queue;
};

struct server;

/* Bind and serve from the loop, which is borrowed. */
struct server *server_create(struct loop *loop, void *zmq, const struct server_options *options, struct k3_error *err);
/* From now on other times, limits and service user; what else differs is not looked at. */
void server_reload(struct server *s, const struct server_options *options);
/* Tell those who wait that the daemon ends; to be sent while server_destroy() and the end of the ZeroMQ context go on.
 */
void server_end(struct server *s);
void server_destroy(struct server *s);

#endif
