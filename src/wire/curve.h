/* curve.h - keys of what goes over tcp
 *
 * ZeroMQ's CURVE (https://rfc.zeromq.org/spec/26/) encrypts and authenticates with Curve25519 keys.  k3queued has one
 * pair for years; clients and engines know its public half beforehand (they pin it) and draw a pair of their own at
 * each start.  A peer with another idea of k3queued's key never gets a message through. */
#ifndef K3_WIRE_CURVE_H
#define K3_WIRE_CURVE_H

#include <stdint.h>

#include "common/error.h"

enum { CURVE_BYTES = 32, CURVE_DIGITS = 64 };

struct curve_pair {
    uint8_t public_key[CURVE_BYTES], secret_key[CURVE_BYTES];
};

/* A fresh pair; sodium_init() has been called. */
void curve_draw(struct curve_pair *pair);
/* The pair of this secret key. */
void curve_complete(struct curve_pair *pair);

/* A key and 64 hex digits.  The digits and a NUL into text, which is returned; parsing takes exactly 64, of either
 * case: 0, or -1 with errno EINVAL. */
char *curve_format(const uint8_t key[CURVE_BYTES], char text[CURVE_DIGITS + 1]);
int curve_parse(uint8_t key[CURVE_BYTES], const char *text);
/* The key in the first line of a file. */
int curve_read(uint8_t key[CURVE_BYTES], const char *path, struct k3_error *err);

/* The key that a setting tells: digits, or the path of a file. */
int curve_pinned(uint8_t key[CURVE_BYTES], const char *setting, const char *text, struct k3_error *err);

/* What this socket binds from now on is for those who know the pair's public half. */
int curve_serve(void *socket, const struct curve_pair *pair, struct k3_error *err);
/* What this socket connects to from now on proves that it has the secret half of server_key. */
int curve_trust(void *socket, const uint8_t server_key[CURVE_BYTES], const struct curve_pair *pair,
                struct k3_error *err);

#endif
