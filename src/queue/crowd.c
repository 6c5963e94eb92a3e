#include "queue/crowd.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "common/alloc.h"

enum {
    PART_EXTRA = 64,     /* bytes around a part on the wire, at most: framing and, over tcp, encryption */
    LOOK_EVERY = 1 << 20 /* bytes of one connection after which its peer's are added up */
};

/* Of a user (IPv4 and IPv6 have other families) or of an address. */
struct peer {
    sa_family_t family;
    uint8_t name[16];
};

struct connection {
    uint64_t cookie; /* 0: none */
    struct peer peer;
    size_t unread;
};

static struct {
    pthread_mutex_t lock;
    struct connection *of; /* by descriptor */
    unsigned int width, used, most;
    struct crowd_report report;
} crowd = {.lock = PTHREAD_MUTEX_INITIALIZER, .most = 1024};

static uint64_t cookie_of(int fd)
{
    uint64_t cookie;
    socklen_t len = sizeof cookie;

    return getsockopt(fd, SOL_SOCKET, SO_COOKIE, &cookie, &len) < 0 ? 0 : cookie;
}

static bool peer_of(int fd, struct peer *p)
{
    union {
        struct sockaddr any;
        struct sockaddr_in in;
        struct sockaddr_in6 in6;
        struct sockaddr_storage room;
    } address;
    struct ucred who;
    socklen_t len = sizeof address, who_len = sizeof who;

    memset(p, 0, sizeof *p);
    if (getpeername(fd, &address.any, &len) < 0)
        return false;
    p->family = address.any.sa_family;
    if (p->family == AF_INET)
        memcpy(p->name, &address.in.sin_addr, sizeof address.in.sin_addr);
    else if (p->family == AF_INET6)
        memcpy(p->name, &address.in6.sin6_addr, sizeof address.in6.sin6_addr);
    else if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &who_len) == 0)
        memcpy(p->name, &who.uid, sizeof who.uid);
    return true;
}

static bool same(const struct peer *a, const struct peer *b)
{
    return a->family == b->family && memcmp(a->name, b->name, sizeof a->name) == 0;
}

static void name(const struct peer *p, char text[CROWD_NAME])
{
    uid_t uid;

    if (p->family == AF_INET || p->family == AF_INET6) {
        inet_ntop(p->family, p->name, text, CROWD_NAME);
        return;
    }
    memcpy(&uid, p->name, sizeof uid);
    snprintf(text, CROWD_NAME, "uid %u", uid);
}

/* The connection of this descriptor, if it is one still. */
static struct connection *find(int fd)
{
    struct connection *c = fd >= 0 && (unsigned int)fd < crowd.used ? &crowd.of[fd] : NULL;

    return c && c->cookie ? c : NULL;
}

/* What p has: connections, and bytes that were not read.  Those that are gone are forgotten. */
static unsigned int add_up(const struct peer *p, size_t *unread)
{
    unsigned int n = 0;

    *unread = 0;
    for (unsigned int fd = 0; fd < crowd.used; fd++) {
        struct connection *c = &crowd.of[fd];
        if (!c->cookie || !same(&c->peer, p))
            continue;
        if (cookie_of((int)fd) != c->cookie) {
            c->cookie = 0;
            continue;
        }
        *unread += c->unread;
        n++;
    }
    return n;
}

void crowd_open(unsigned int width)
{
    crowd.of = k3_calloc(width, sizeof *crowd.of);
    crowd.width = width;
}

void crowd_limit(unsigned int connections)
{
    pthread_mutex_lock(&crowd.lock);
    crowd.most = connections;
    pthread_mutex_unlock(&crowd.lock);
}

bool crowd_enter(int fd)
{
    struct peer p;
    size_t unread;
    bool may;

    if (fd < 0 || (unsigned int)fd >= crowd.width || !peer_of(fd, &p))
        return true;
    pthread_mutex_lock(&crowd.lock);
    crowd.of[fd].cookie = 0;
    may = add_up(&p, &unread) < crowd.most;
    if (may) {
        crowd.of[fd] = (struct connection){.cookie = cookie_of(fd), .peer = p};
        if ((unsigned int)fd >= crowd.used)
            crowd.used = (unsigned int)fd + 1;
    } else {
        crowd.report.refused++;
        name(&p, crowd.report.who);
    }
    pthread_mutex_unlock(&crowd.lock);
    return may;
}

bool crowd_sends(int fd, size_t bytes)
{
    struct connection *c;
    bool may = true;
    size_t unread;

    pthread_mutex_lock(&crowd.lock);
    if ((c = find(fd))) {
        size_t before = c->unread / LOOK_EVERY;
        c->unread += bytes;
        if (c->unread / LOOK_EVERY != before) {
            add_up(&c->peer, &unread);
            may = unread <= CROWD_UNREAD;
        }
        if (!may) {
            crowd.report.cut++;
            name(&c->peer, crowd.report.who);
            c->cookie = 0;
        }
    }
    pthread_mutex_unlock(&crowd.lock);
    return may;
}

void crowd_heard(int fd, int parts, size_t bytes)
{
    struct connection *c;
    size_t read = bytes + (size_t)parts * PART_EXTRA;

    pthread_mutex_lock(&crowd.lock);
    if ((c = find(fd)))
        c->unread -= c->unread < read ? c->unread : read;
    pthread_mutex_unlock(&crowd.lock);
}

bool crowd_expel(int fd, char who[CROWD_NAME])
{
    struct connection *c;
    bool cut = false;

    pthread_mutex_lock(&crowd.lock);
    if ((c = find(fd)) && cookie_of(fd) == c->cookie) {
        shutdown(fd, SHUT_RDWR);
        name(&c->peer, who);
        c->cookie = 0;
        cut = true;
    }
    pthread_mutex_unlock(&crowd.lock);
    return cut;
}

void crowd_report(struct crowd_report *report)
{
    pthread_mutex_lock(&crowd.lock);
    *report = crowd.report;
    crowd.report = (struct crowd_report){0};
    pthread_mutex_unlock(&crowd.lock);
}
