#include "queue/seat.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/alloc.h"

struct seat {
    char *path; /* of the socket */
    int lock;
};

static int make_directory(const char *path, struct k3_error *err)
{
    char *copy = k3_strdup(path);
    const char *dir = dirname(copy);
    int rc = 0;

    if (mkdir(dir, 0755) < 0 && errno != EEXIST)
        rc = k3_errorf(err, "%s: %s; it is where the socket is to be (common.socket)", dir, strerror(errno));
    free(copy);
    return rc;
}

static int busy(int lock, const char *path, struct k3_error *err)
{
    char pid[32] = "";
    ssize_t n = pread(lock, pid, sizeof pid - 1, 0);

    pid[n > 0 ? strcspn(pid, "\n") : 0] = '\0';
    errno = EBUSY;
    return k3_errorf(err, "%s: another k3queued (pid %s) listens there", path, *pid ? pid : "unknown");
}

static int lock_file(const char *path, struct k3_error *err)
{
    char *name = k3_asprintf("%s.lock", path);
    int fd = open(name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);

    if (fd < 0) {
        k3_errorf(err, "%s: %s", name, strerror(errno));
        goto fail;
    }
    if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
        busy(fd, path, err);
        goto fail;
    }
    if (ftruncate(fd, 0) < 0 || dprintf(fd, "%d\n", (int)getpid()) < 0) {
        k3_errorf(err, "%s: %s", name, strerror(errno));
        goto fail;
    }
    free(name);
    return fd;
fail:
    if (fd >= 0)
        close(fd);
    free(name);
    return -1;
}

struct seat *seat_take(const char *endpoint, struct k3_error *err)
{
    struct seat *s = k3_zalloc(sizeof *s);

    s->lock = -1;
    if (strncmp(endpoint, "ipc:///", 7) != 0) {
        errno = EINVAL;
        k3_errorf(err, "common.socket = \"%s\": k3queued listens on ipc:// and an absolute path only", endpoint);
        goto fail;
    }
    s->path = k3_strdup(endpoint + strlen("ipc://"));
    if (make_directory(s->path, err) < 0 || (s->lock = lock_file(s->path, err)) < 0)
        goto fail;
    return s;
fail:
    seat_leave(s);
    return NULL;
}

int seat_open(const struct seat *s, struct k3_error *err)
{
    return chmod(s->path, 0777) < 0 ? k3_errorf(err, "%s: %s", s->path, strerror(errno)) : 0;
}

/* The lock file stays: removing it would let two daemons lock two files of one name. */
void seat_leave(struct seat *s)
{
    int saved = errno;

    if (!s)
        return;
    if (s->lock >= 0)
        close(s->lock);
    free(s->path);
    free(s);
    errno = saved;
}
