#include "wire/curve.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include <sodium.h>
#include <zmq.h>

void curve_draw(struct curve_pair *pair)
{
    crypto_box_keypair(pair->public_key, pair->secret_key);
}

void curve_complete(struct curve_pair *pair)
{
    crypto_scalarmult_base(pair->public_key, pair->secret_key);
}

char *curve_format(const uint8_t key[CURVE_BYTES], char text[CURVE_DIGITS + 1])
{
    return sodium_bin2hex(text, CURVE_DIGITS + 1, key, CURVE_BYTES);
}

int curve_parse(uint8_t key[CURVE_BYTES], const char *text)
{
    size_t len;

    if (strlen(text) == CURVE_DIGITS && sodium_hex2bin(key, CURVE_BYTES, text, CURVE_DIGITS, NULL, &len, NULL) == 0 &&
        len == CURVE_BYTES)
        return 0;
    errno = EINVAL;
    return -1;
}

int curve_read(uint8_t key[CURVE_BYTES], const char *path, struct k3_error *err)
{
    char line[CURVE_DIGITS + 2];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, line, sizeof line - 1);
    int saved = errno;

    if (fd >= 0)
        close(fd);
    if (n < 0) {
        errno = saved;
        return k3_errorf(err, "%s: %s", path, strerror(saved));
    }
    line[n] = '\0';
    line[strcspn(line, "\n")] = '\0';
    int rc = curve_parse(key, line);
    sodium_memzero(line, sizeof line);
    return rc < 0 ? k3_errorf(err, "%s: not a key of %d hex digits", path, CURVE_DIGITS) : 0;
}

int curve_pinned(uint8_t key[CURVE_BYTES], const char *setting, const char *text, struct k3_error *err)
{
    if (curve_parse(key, text) == 0)
        return 0;
    if (*text == '/')
        return curve_read(key, text, err);
    return k3_errorf(err, "%s = \"%s\": neither %d hex digits nor the path of a file with them", setting, text,
                     CURVE_DIGITS);
}

static int cannot(struct k3_error *err)
{
    return k3_errorf(err, "ZeroMQ: no CURVE: %s", zmq_strerror(zmq_errno()));
}

int curve_serve(void *socket, const struct curve_pair *pair, struct k3_error *err)
{
    int on = 1;

    if (zmq_setsockopt(socket, ZMQ_CURVE_SERVER, &on, sizeof on) < 0 ||
        zmq_setsockopt(socket, ZMQ_CURVE_SECRETKEY, pair->secret_key, CURVE_BYTES) < 0)
        return cannot(err);
    return 0;
}

int curve_trust(void *socket, const uint8_t server_key[CURVE_BYTES], const struct curve_pair *pair,
                struct k3_error *err)
{
    if (zmq_setsockopt(socket, ZMQ_CURVE_SERVERKEY, server_key, CURVE_BYTES) < 0 ||
        zmq_setsockopt(socket, ZMQ_CURVE_PUBLICKEY, pair->public_key, CURVE_BYTES) < 0 ||
        zmq_setsockopt(socket, ZMQ_CURVE_SECRETKEY, pair->secret_key, CURVE_BYTES) < 0)
        return cannot(err);
    return 0;
}
