#include "queue/gate.h"

#include <errno.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

/* <sys/socket.h> would declare them with an argument that only its own definitions can have. */
int accept4(int fd, void *address, void *len, int flags);
int accept(int fd, void *address, void *len);

enum { SPARE = 64 }; /* for munged, squeue, files and ZeroMQ itself */

static atomic_uint width = 512; /* read by ZeroMQ's threads, as the next one is written */
static atomic_uint refused;

void gate_open(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
        return;
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    getrlimit(RLIMIT_NOFILE, &limit);
    if (limit.rlim_cur > 1 << 30)
        limit.rlim_cur = 1 << 30;
    width = (unsigned int)(limit.rlim_cur > 2 * SPARE ? limit.rlim_cur - SPARE : limit.rlim_cur / 2);
}

unsigned int gate_refused(void)
{
    return atomic_exchange(&refused, 0);
}

unsigned int gate_width(void)
{
    return width;
}

/* The kernel gives the lowest free number, so the number tells how many there are. */
int accept4(int fd, void *address, void *len, int flags)
{
    int got = (int)syscall(SYS_accept4, fd, address, len, flags);

    if (got < 0 || (unsigned int)got < width)
        return got;
    close(got);
    refused++;
    errno = ECONNABORTED;
    return -1;
}

int accept(int fd, void *address, void *len)
{
    return accept4(fd, address, len, 0);
}
