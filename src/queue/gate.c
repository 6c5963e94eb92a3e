#include "queue/gate.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "queue/crowd.h"

/* <sys/socket.h> would declare them with an argument that only its own definitions can have. */
int accept4(int fd, void *address, void *len, int flags);
int accept(int fd, void *address, void *len);
ssize_t recv(int fd, void *to, size_t size, int flags);

enum {
    SPARE = 64,    /* for munged, squeue, files and ZeroMQ itself */
    MOST = 1 << 20 /* connections */
};

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
    if (limit.rlim_cur > MOST)
        limit.rlim_cur = MOST;
    width = (unsigned int)(limit.rlim_cur > 2 * SPARE ? limit.rlim_cur - SPARE : limit.rlim_cur / 2);
    crowd_open(width);
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

    if (got < 0)
        return got;
    bool room = (unsigned int)got < width;
    if (room && crowd_enter(got))
        return got;
    close(got);
    refused += !room;
    errno = ECONNABORTED;
    return -1;
}

int accept(int fd, void *address, void *len)
{
    return accept4(fd, address, len, 0);
}

/* An error that libzmq takes for the peer's. */
ssize_t recv(int fd, void *to, size_t size, int flags)
{
    ssize_t got = syscall(SYS_recvfrom, fd, to, size, flags, NULL, NULL);

    if (got <= 0 || crowd_sends(fd, (size_t)got))
        return got;
    errno = ECONNRESET;
    return -1;
}
