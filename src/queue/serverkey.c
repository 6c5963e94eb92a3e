#include "queue/serverkey.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <sodium.h>

#include "common/alloc.h"
#include "common/log.h"

/* Whole or not at all: a crash while writing leaves the file that was there, or none. */
static int write_key(const char *path, const uint8_t key[CURVE_BYTES], mode_t mode, struct k3_error *err)
{
    char text[CURVE_DIGITS + 1], *fresh = k3_asprintf("%s.new", path);
    int fd, rc = -1;

    unlink(fresh); /* of a start that was cut short */
    fd = open(fresh, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode);
    curve_format(key, text);
    if (fd >= 0 && fchmod(fd, mode) == 0 && dprintf(fd, "%s\n", text) == CURVE_DIGITS + 1 && fsync(fd) == 0 &&
        rename(fresh, path) == 0)
        rc = 0;
    else
        k3_errorf(err, "%s: %s (k3queued.state_dir)", fresh, strerror(errno));
    sodium_memzero(text, sizeof text);
    if (fd >= 0)
        close(fd);
    free(fresh);
    return rc;
}

static int check_mode(const char *path, struct k3_error *err)
{
    struct stat st;

    if (stat(path, &st) < 0)
        return k3_errorf(err, "%s: %s", path, strerror(errno));
    if (st.st_uid != geteuid() || st.st_mode & 077) {
        errno = EACCES;
        return k3_errorf(err, "%s: it is secret, so it is to be this user's and of mode 600, not uid %u's and %03o",
                         path, st.st_uid, st.st_mode & 0777);
    }
    return 0;
}

static int take_secret(struct curve_pair *pair, const char *path, struct k3_error *err)
{
    if (access(path, F_OK) < 0 && errno == ENOENT) {
        curve_draw(pair);
        if (write_key(path, pair->secret_key, 0600, err) < 0)
            return -1;
        log_notice("%s: a new key", path);
        return 0;
    }
    if (check_mode(path, err) < 0 || curve_read(pair->secret_key, path, err) < 0)
        return -1;
    curve_complete(pair);
    return 0;
}

static int publish(const struct curve_pair *pair, const char *path, struct k3_error *err)
{
    uint8_t said[CURVE_BYTES];

    if (curve_read(said, path, err) == 0 && memcmp(said, pair->public_key, CURVE_BYTES) == 0)
        return 0;
    return write_key(path, pair->public_key, 0644, err);
}

int serverkey_take(struct curve_pair *pair, const char *dir, struct k3_error *err)
{
    char *secret = k3_asprintf("%s/k3queued.key", dir), *public = k3_asprintf("%s/k3queued.pub", dir);
    int rc = -1;

    if (mkdir(dir, 0755) < 0 && errno != EEXIST)
        k3_errorf(err, "%s: %s (k3queued.state_dir)", dir, strerror(errno));
    else if (take_secret(pair, secret, err) == 0)
        rc = publish(pair, public, err);
    free(secret);
    free(public);
    return rc;
}
