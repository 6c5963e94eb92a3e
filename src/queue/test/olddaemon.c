/* olddaemon - a k3queued that speaks version 1 only, for one engine
 *
 *     olddaemon ENDPOINT TOKENS
 *
 * Gives the engine one request, stands still in the middle of the answer, as if the network were cut, and then says
 * what a daemon of version 1 says.  What the engine says is printed, and at the end the answer's token ids. */
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <zmq.h>

#include "common/clock.h"
#include "wire/frame.h"
#include "wire/message.h"

enum { TOKENS = 10000, CUT_AT = 20 };
static const double heartbeat_sec = 0.1, limit_sec = 300;

static void *sock;
static struct frame_peer engine;
static uint32_t ids[TOKENS], most;
static size_t produced;
static bool cut, done;

static void say(struct message *m)
{
    struct k3_error err;

    m->head.version = 1;
    if (frame_send(sock, &engine, m, NULL, &err) < 0)
        fprintf(stderr, "olddaemon: %s\n", err.text);
}

static void refuse_version(const struct k3_id *id)
{
    struct message m = message_of(WIRE_REFUSED, id);

    m.refused.code = EXIT_CODE_FAILED;
    m.refused.msg = (char *)"the other side speaks another protocol version, this one 1 to 1";
    say(&m);
}

static void welcome(void)
{
    struct message m = message_of(WIRE_ENGINE_WELCOME, NULL);

    m.engine_welcome.ver = 1;
    m.engine_welcome.hb = heartbeat_sec;
    say(&m);
}

static void lease(void)
{
    static uint32_t prompt[] = {768, 12, 500};
    struct message m = message_of(WIRE_BATCH, NULL);
    struct message_lease l = {.id = {{1}}, .ask = {.tok = {prompt, 3}, .max = most, .sd = true, .topp = 1}};

    l.ask.ieos = true;
    l.out = (struct message_u32s){ids, produced};
    m.batch.reqs.v = &l;
    m.batch.reqs.n = 1;
    say(&m);
}

static void take_delta(const struct message_delta *d)
{
    if (d->off != produced || produced + d->ids.n > TOKENS) {
        printf("DELTA from %" PRIu64 ", not from %zu\n", d->off, produced);
        exit(1);
    }
    for (size_t i = 0; i < d->ids.n; i++)
        ids[produced++] = d->ids.v[i];
}

static void hear(const struct frame *f)
{
    static uint64_t incarnation;
    struct k3_error err;
    struct message m;

    engine = f->from;
    if (f->head.version != 1) {
        printf("%s version %u\n", message_type_name(f->head.type), f->head.version);
        refuse_version(&f->head.id);
        return;
    }
    if (frame_decode(f, &m, &err) < 0) {
        printf("%s\n", err.text);
        exit(1);
    }
    switch (m.head.type) {
    case WIRE_ENGINE_HELLO:
        printf("HELLO with %zu, %s\n", m.engine_hello.held.n,
               m.engine_hello.inc == incarnation ? "the same" : "a new incarnation");
        incarnation = m.engine_hello.inc;
        welcome();
        break;
    case WIRE_ENGINE_READY:
        puts("READY");
        lease();
        break;
    case WIRE_DELTA:
        take_delta(&m.delta);
        break;
    case WIRE_DONE:
        done = true;
        break;
    default:
        break;
    }
    message_clear(&m);
}

int main(int argc, char **argv)
{
    void *zmq = zmq_ctx_new();
    struct k3_error err;
    struct frame f;
    double beat = 0, end = clock_monotonic() + limit_sec;

    most = argc == 3 ? (uint32_t)strtoul(argv[2], NULL, 10) : 0;
    if (!most || !(sock = frame_socket(zmq, ZMQ_ROUTER, 0, &err)) || frame_bind(sock, argv[1], &err) < 0)
        return 2;
    while (!done && clock_monotonic() < end) {
        zmq_pollitem_t item = {.socket = sock, .events = ZMQ_POLLIN};
        struct message m = message_of(WIRE_HEARTBEAT, NULL);

        zmq_poll(&item, 1, 20);
        while (!done && frame_recv(sock, &f, &err) == 1) {
            hear(&f);
            frame_clear(&f);
            if (!cut && produced >= CUT_AT) {
                cut = true;
                sleep(2);
            }
        }
        if (engine.len && clock_monotonic() > beat) {
            say(&m);
            beat = clock_monotonic() + heartbeat_sec;
        }
    }
    for (size_t i = 0; i < produced; i++)
        printf(i ? ",%" PRIu32 : "%" PRIu32, ids[i]);
    putchar('\n');
    zmq_close(sock);
    zmq_ctx_term(zmq);
    return done ? 0 : 1;
}
