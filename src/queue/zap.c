#include "queue/zap.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <zmq.h>

#include "common/alloc.h"
#include "wire/curve.h"

enum {
    VERSION,
    REQUEST,
    DOMAIN,
    ADDRESS,
    IDENTITY,
    MECHANISM,
    KEY,
    PARTS,      /* of a question; of an answer: */
    ANSWER = 6, /* version, request, status, text, name, metadata */
    TURN = 200  /* questions answered before other things have their turn */
};

struct zap {
    void *socket;
    struct loop_source *source;
};

/* The parts of one question; what exceeds them is thrown away.  Their number, or -1: none waits. */
static int take(void *socket, zmq_msg_t parts[PARTS])
{
    int n = 0;
    bool more = true;

    for (; more; n++) {
        zmq_msg_t *part = &parts[n < PARTS ? n : PARTS - 1];
        if (n >= PARTS)
            zmq_msg_close(part);
        zmq_msg_init(part);
        if (zmq_msg_recv(part, socket, ZMQ_DONTWAIT) < 0) {
            for (int i = 0; i <= n && i < PARTS; i++)
                zmq_msg_close(&parts[i]);
            return -1;
        }
        more = zmq_msg_more(part);
    }
    return n;
}

static bool is_curve(zmq_msg_t parts[PARTS], int n)
{
    return n == PARTS && zmq_msg_size(&parts[MECHANISM]) == 5 &&
           memcmp(zmq_msg_data(&parts[MECHANISM]), "CURVE", 5) == 0 && zmq_msg_size(&parts[KEY]) == CURVE_BYTES;
}

static void answer(void *socket, zmq_msg_t parts[PARTS], bool welcome)
{
    char name[CURVE_DIGITS + 1] = "";
    const char *texts[ANSWER] = {"1.0", NULL, welcome ? "200" : "400", welcome ? "OK" : "CURVE only", name, ""};

    if (welcome)
        curve_format(zmq_msg_data(&parts[KEY]), name);
    for (int i = 0; i < ANSWER; i++) {
        int more = i + 1 < ANSWER ? ZMQ_SNDMORE : 0;
        if (i == REQUEST)
            zmq_send(socket, zmq_msg_data(&parts[REQUEST]), zmq_msg_size(&parts[REQUEST]), more);
        else
            zmq_send(socket, texts[i], strlen(texts[i]), more);
    }
}

static void on_question(void *arg, short ready)
{
    struct zap *z = arg;
    zmq_msg_t parts[PARTS];
    int n;

    (void)ready;
    for (int turn = 0; turn < TURN && (n = take(z->socket, parts)) > 0; turn++) {
        if (n > REQUEST)
            answer(z->socket, parts, is_curve(parts, n));
        for (int i = 0; i < n && i < PARTS; i++)
            zmq_msg_close(&parts[i]);
    }
}

struct zap *zap_create(struct loop *loop, void *zmq, struct k3_error *err)
{
    struct zap *z = k3_zalloc(sizeof *z);

    if (!(z->socket = zmq_socket(zmq, ZMQ_REP)) || zmq_bind(z->socket, "inproc://zeromq.zap.01") < 0) {
        k3_errorf(err, "ZeroMQ: no authentication: %s", zmq_strerror(zmq_errno()));
        zap_destroy(z);
        return NULL;
    }
    z->source = loop_add_socket(loop, z->socket, ZMQ_POLLIN, on_question, z);
    return z;
}

void zap_destroy(struct zap *z)
{
    int saved = errno;

    if (!z)
        return;
    if (z->source)
        loop_source_remove(z->source);
    if (z->socket)
        zmq_close(z->socket);
    free(z);
    errno = saved;
}
