/* seat.h - the place in the file system where one daemon listens */
#ifndef K3_QUEUE_SEAT_H
#define K3_QUEUE_SEAT_H

#include "common/error.h"

struct seat;

/* Take the place of an ipc:// endpoint: make its directory (mode 755) if it is not there, and lock ENDPOINT.lock, which
 * holds our pid.  errno EBUSY: another daemon has it, err names its pid. */
struct seat *seat_take(const char *endpoint, struct k3_error *err);
/* The socket is bound: let every user of this machine connect.  Who they are MUNGE tells. */
int seat_open(const struct seat *s, struct k3_error *err);
void seat_leave(struct seat *s);

#endif
