/* network.h - the interfaces and adapters that NCCL takes */
#ifndef K3_COMM_NETWORK_H
#define K3_COMM_NETWORK_H

#include "common/error.h"

/* Before the first communicator, from one thread.  interfaces: names as of `ip link`, for NCCL's sockets; adapters:
 * names as of /sys/class/infiniband, each with a port behind a colon or none, for InfiniBand and RoCE.  Separated by
 * commas,
 * "" for NCCL's own choice, and all of them must be there: NCCL would take others, or wait for them.  What the
 * environment says already (NCCL_SOCKET_IFNAME, NCCL_IB_HCA) counts more. */
int network_choose(const char *interfaces, const char *adapters, struct k3_error *err);

/* The same with adapters looked for elsewhere. */
int network_choose_in(const char *interfaces, const char *adapters, const char *sys_class, struct k3_error *err);

#endif
