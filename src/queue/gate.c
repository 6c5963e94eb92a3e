#include "queue/gate.h"

#include <errno.h>
#include <fcntl.h>
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
    SPARE = 64,     /* for munged, squeue, files and ZeroMQ itself */
    MOST = 1 << 20, /* connections */
    NUMBERS = 4096  /* that connections go through before one is used again */
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

/* The connection under a number that none had for long.  A message that is read after its connection has ended still
 * names the descriptor: it must not be taken for that of whoever came next. */
static int renumber(int fd)
{
    static atomic_uint next;
    int other = fcntl(fd, F_DUPFD_CLOEXEC, (int)(next % NUMBERS));

    if (other < 0)
        return fd;
    if ((unsigned int)other >= width) {
        close(other);
        next = 0;
        return fd;
    }
    close(fd);
    next = (unsigned int)other + 1;
    return other;
}

/* The kernel gives the lowest free number, so the number tells whether there is room. */
int accept4(int fd, void *address, void *len, int flags)
{
    int got = (int)syscall(SYS_accept4, fd, address, len, flags);

    if (got < 0)
        return got;
    bool room = (unsigned int)got < width;
    if (room)
        got = renumber(got);
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
