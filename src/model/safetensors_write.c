#include "model/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/alloc.h"

struct safetensors_writer {
    char *path, *partial;
    int fd;
    char *header; /* its first 8 bytes are the length's place */
    size_t header_len, header_room;
    uint64_t declared, written; /* bytes of tensors */
    int begun;                  /* the header is on disk */
};

struct safetensors_writer *safetensors_writer_create(const char *path, struct k3_error *err)
{
    static const char start[] = "\0\0\0\0\0\0\0\0{\"__metadata__\":{\"format\":\"pt\"}";
    struct safetensors_writer *w = k3_zalloc(sizeof *w);

    w->path = k3_strdup(path);
    w->partial = k3_asprintf("%s.partial", path);
    w->header_room = 4096;
    w->header = k3_zalloc(w->header_room);
    w->header_len = sizeof start - 1;
    memcpy(w->header, start, w->header_len);
    if ((w->fd = open(w->partial, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)) < 0) {
        k3_errorf(err, "%s: %s", w->partial, strerror(errno));
        safetensors_writer_destroy(w);
        return NULL;
    }
    return w;
}

void safetensors_writer_destroy(struct safetensors_writer *w)
{
    int saved = errno;

    if (!w)
        return;
    if (w->fd >= 0) {
        close(w->fd);
        unlink(w->partial);
    }
    free(w->path);
    free(w->partial);
    free(w->header);
    free(w);
    errno = saved;
}

static void append(struct safetensors_writer *w, const char *text)
{
    size_t len = strlen(text);

    while (w->header_len + len > w->header_room) {
        w->header_room *= 2;
        w->header = k3_reallocarray(w->header, w->header_room, 1);
    }
    memcpy(w->header + w->header_len, text, len);
    w->header_len += len;
}

int safetensors_writer_declare(struct safetensors_writer *w, const char *name, const char *dtype, int dims,
                               const int64_t *shape, struct k3_error *err)
{
    int64_t bytes = safetensors_bytes(dtype, dims, shape);
    char text[128];

    if (bytes < 0 || (uint64_t)bytes > INT64_MAX - w->declared)
        return k3_errorf(err, "%s: tensor %s: no such dtype as %s, or too large a shape", w->path, name, dtype);
    if (strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") != strlen(name))
        return k3_errorf(err, "%s: tensor %s: names are made of letters, digits and . _ -", w->path, name);
    append(w, ",\"");
    append(w, name);
    snprintf(text, sizeof text, "\":{\"dtype\":\"%s\",\"shape\":[", dtype);
    append(w, text);
    for (int d = 0; d < dims; d++) {
        snprintf(text, sizeof text, "%s%lld", d ? "," : "", (long long)shape[d]);
        append(w, text);
    }
    snprintf(text, sizeof text, "],\"data_offsets\":[%llu,%llu]}", (unsigned long long)w->declared,
             (unsigned long long)(w->declared + (uint64_t)bytes));
    append(w, text);
    w->declared += (uint64_t)bytes;
    return 0;
}

static int write_all(struct safetensors_writer *w, const void *data, size_t bytes, struct k3_error *err)
{
    const char *p = data;

    while (bytes) {
        ssize_t n = write(w->fd, p, bytes);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return k3_errorf(err, "%s: %s", w->path, strerror(errno));
        p += n;
        bytes -= (size_t)n;
    }
    return 0;
}

/* Finish the header, claim the disk space where the file system can, so that a full disk is known now, and write it. */
static int begin(struct safetensors_writer *w, struct k3_error *err)
{
    append(w, "}");
    while (w->header_len % 8)
        append(w, " ");
    for (int i = 0; i < 8; i++)
        w->header[i] = (char)((w->header_len - 8) >> 8 * i);
    w->begun = 1;
    if (fallocate(w->fd, 0, 0, (off_t)(w->header_len + w->declared)) < 0 && (errno == ENOSPC || errno == EFBIG))
        return k3_errorf(err, "%s: %llu bytes do not fit: %s", w->path,
                         (unsigned long long)(w->header_len + w->declared), strerror(errno));
    return write_all(w, w->header, w->header_len, err);
}

int safetensors_writer_write(struct safetensors_writer *w, const void *data, size_t bytes, struct k3_error *err)
{
    if (!w->begun && begin(w, err) < 0)
        return -1;
    w->written += bytes;
    return write_all(w, data, bytes, err);
}

int safetensors_writer_finish(struct safetensors_writer *w, struct k3_error *err)
{
    if (!w->begun && begin(w, err) < 0)
        return -1;
    if (w->written != w->declared) {
        errno = EINVAL;
        return k3_errorf(err, "%s: %llu bytes written for tensors of %llu", w->path, (unsigned long long)w->written,
                         (unsigned long long)w->declared);
    }
    int fd = w->fd;
    w->fd = -1;
    /* Some file systems tell only now that the disk is full. */
    if (close(fd) < 0 || rename(w->partial, w->path) < 0) {
        k3_errorf(err, "%s: %s", w->path, strerror(errno));
        unlink(w->partial);
        return -1;
    }
    return 0;
}

int safetensors_write(const char *path, const struct safetensors_tensor *tensors, size_t count, struct k3_error *err)
{
    struct safetensors_writer *w = safetensors_writer_create(path, err);
    int rc = -1;

    if (!w)
        return -1;
    for (size_t i = 0; i < count; i++)
        if (safetensors_writer_declare(w, tensors[i].name, tensors[i].dtype, tensors[i].dims, tensors[i].shape, err) <
            0)
            goto out;
    for (size_t i = 0; i < count; i++)
        if (safetensors_writer_write(w, tensors[i].data,
                                     (size_t)safetensors_bytes(tensors[i].dtype, tensors[i].dims, tensors[i].shape),
                                     err) < 0)
            goto out;
    rc = safetensors_writer_finish(w, err);
out:
    safetensors_writer_destroy(w);
    return rc;
}
