/* crowd.h - who is connected, so that nobody takes the connections or the memory of others
 *
 * A peer is a user of this host or the address of another.  Each may have so many connections, and have sent so much
 * that is no whole message yet or was not read yet: libzmq bounds the parts of a message in size but not in number, and
 * shows a message only when it is whole.  One mutex, for libzmq's threads and the daemon's own; descriptors are told
 * from later ones of the same number by the kernel's cookie, since libzmq closes them unseen, and a number comes again
 * late (gate.c), since messages name it after its connection has ended. */
#ifndef K3_QUEUE_CROWD_H
#define K3_QUEUE_CROWD_H

#include <stdbool.h>
#include <stddef.h>

enum { CROWD_UNREAD = 128 << 20 }; /* bytes of one peer, on all of its connections */

/* Descriptors below width may be connections; a peer may have so many of them. */
void crowd_open(unsigned int width);
void crowd_limit(unsigned int connections);

/* This connection has come.  False: its peer has as many as it may. */
bool crowd_enter(int fd);
/* So many bytes have come by it.  False: they are too many. */
bool crowd_sends(int fd, size_t bytes);
/* A message of so many parts and bytes that came by it was read. */
void crowd_heard(int fd, int parts, size_t bytes);
enum { CROWD_NAME = 64 };
/* Cut it: what came by it is no message.  Who: "uid 1000", "10.0.0.7".  False: it is cut already. */
bool crowd_expel(int fd, char who[CROWD_NAME]);

/* Since this was last asked: connections turned away, and cut for how much they sent, and whose the last was. */
struct crowd_report {
    unsigned int refused, cut;
    char who[CROWD_NAME];
};
void crowd_report(struct crowd_report *report);

#endif
