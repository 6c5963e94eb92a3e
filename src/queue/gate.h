/* gate.h - no more connections than there are descriptors for, and of no one too many
 *
 * libzmq 4.3 ends the process when accept() fails on an ipc:// endpoint for want of descriptors, and spins when it does
 * on tcp:// (ipc_listener.cpp, tcp_listener.cpp); its monitor tells of a connection only after the fact.  So gate.c has
 * the accept4() that libzmq calls, in place of the C library's: a connection that gets one of the last descriptors is
 * closed at once, which to libzmq is a peer that left early.  In the same way it has the recv() that libzmq calls, and
 * whom crowd.h finds to come too often or to send too much loses the connection. */
#ifndef K3_QUEUE_GATE_H
#define K3_QUEUE_GATE_H

/* Raise this process's limit of descriptors as far as it may be, and keep some of them from connections. */
void gate_open(void);

/* Connections turned away since this was last asked. */
unsigned int gate_refused(void);
/* Descriptors that connections may have. */
unsigned int gate_width(void);

#endif
