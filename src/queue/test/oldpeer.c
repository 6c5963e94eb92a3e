/* oldpeer - a peer of another version: says to the k3queued of k3.conf what is recorded, byte for byte
 *
 *     oldpeer FILE [VERSION]
 *
 * FILE is one of tests/data/wire-*.txt; VERSION is put in place of the one in the headers.  Each message goes out with
 * a credential over its bytes, over a connection of its own, and one line says what was answered first. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sodium.h>
#include <zmq.h>

#include "common/alloc.h"
#include "common/settings.h"
#include "wire/auth.h"
#include "wire/frame.h"
#include "wire/message.h"
#include "wire/route.h"

static struct route *route;
static struct auth *auth;
static void *zmq;

static void die(const struct k3_error *err)
{
    fprintf(stderr, "oldpeer: %s\n", err->text);
    exit(8);
}

static uint8_t *bytes_of(const char *hex, size_t *len)
{
    size_t digits = strlen(hex);
    uint8_t *bytes = k3_zalloc(digits / 2 + 1);

    if (sodium_hex2bin(bytes, digits / 2 + 1, hex, digits, NULL, len, NULL) < 0)
        exit(8);
    return bytes;
}

static void print_answer(void *sock)
{
    zmq_pollitem_t item = {.socket = sock, .events = ZMQ_POLLIN};
    struct k3_error err;
    struct frame f;
    struct message m;

    if (zmq_poll(&item, 1, 300) == 0 || frame_recv(sock, &f, &err) != 1) {
        puts("silence");
        return;
    }
    if (frame_decode(&f, &m, &err) < 0)
        die(&err);
    frame_clear(&f);
    printf("%s version %u%s%s\n", message_type_name(m.head.type), m.head.version,
           m.head.type == WIRE_REFUSED ? ": " : "", m.head.type == WIRE_REFUSED ? m.refused.msg : "");
    message_clear(&m);
}

static void replay(const char *type, const char *header_hex, const char *body_hex, const char *version)
{
    size_t header_len, body_len;
    uint8_t *header = bytes_of(header_hex, &header_len), *body = bytes_of(body_hex, &body_len);
    struct k3_error err;
    void *sock = route_connect(route, zmq, 0, &err);

    if (version)
        header[5] = (uint8_t)atoi(version);
    char *credential = auth_sign(auth, header, header_len, body, body_len, &err);
    if (!sock || !credential)
        die(&err);
    zmq_send(sock, header, header_len, ZMQ_SNDMORE);
    zmq_send(sock, body, body_len, ZMQ_SNDMORE);
    zmq_send(sock, credential, strlen(credential), 0);
    printf("%s -> ", type);
    print_answer(sock);
    zmq_close(sock);
    free(credential);
    free(header);
    free(body);
}

int main(int argc, char **argv)
{
    struct settings settings;
    struct k3_error err;
    char *line = NULL, *rest;
    size_t room = 0;
    FILE *f = argc > 1 ? fopen(argv[1], "r") : NULL;

    if (!f || sodium_init() < 0 || settings_load(&settings, NULL, &err) < 0) {
        fprintf(stderr, "Usage: oldpeer FILE [VERSION], with a k3.conf\n");
        return 2;
    }
    zmq = zmq_ctx_new();
    if (!(auth = auth_create(settings.common.munge_socket, &err)) || !(route = route_find(&settings, &err)))
        die(&err);
    while (getline(&line, &room, f) > 0) {
        const char *type = strtok_r(line, " \n", &rest), *header = strtok_r(NULL, " \n", &rest);
        replay(type, header, strtok_r(NULL, " \n", &rest), argv[2]);
    }
    free(line);
    fclose(f);
    zmq_ctx_term(zmq);
    route_destroy(route);
    auth_destroy(auth);
    settings_clear(&settings);
    return 0;
}
