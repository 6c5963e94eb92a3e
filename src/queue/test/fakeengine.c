/* fakeengine - an engine that computes nothing
 *
 * Registers with the k3queued of k3.conf, takes batches, and answers every request with the same words: token p of an
 * answer has id fake_token(p) and the text "wP "; the one that ends the thinking begins with a full stop for that.
 * Options make it fail the ways that engines fail.  What it does is printed, one line an event. */
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <zmq.h>

#include "common/alloc.h"
#include "common/clock.h"
#include "common/error.h"
#include "common/settings.h"
#include "wire/auth.h"
#include "wire/frame.h"
#include "wire/message.h"
#include "wire/route.h"

enum { SLOTS = 1024 };

struct work {
    bool used, cancelled;
    bool ended; /* and is kept for a daemon that may not have heard it */
    enum done_why why;
    struct k3_id id;
    struct message given; /* ENGINE_HELD: the lease as it was given */
    uint32_t prompt, produced, end;
    double next; /* when the next token is due; ended: when it is forgotten */
};

static struct options {
    uint32_t job, slots, context, tokens;
    uint64_t incarnation;
    double rate;                       /* tokens/s of each request, 0: all at once */
    double load_sec;                   /* between HELLO and READY */
    long die_at, mute_at, stall_at;    /* after so many tokens in all: exit, say nothing more, only heartbeats */
    double stall_sec;                  /* then goes on where it was */
    long lie_at, repeat_at, return_at; /* skip a token, send one twice, return everything and drain */
    long short_at;                     /* end an answer with one token too few sent */
    bool deaf;                         /* to ENGINE_CANCEL */
    uint32_t think;                    /* tokens of thinking before the answer */
    bool stays;                        /* says HELLO again to a daemon that does not know it (any more) */
    bool keeps;                        /* and keeps what it has made until that says what it lacks */
    const char *key;                   /* public key to claim, NULL: its own */
    const char *word;                  /* of the texts, before the number */
    bool stamp;                        /* each text is the time at which it is sent, for bench/queuebench */
} opt = {.job = 7,
         .slots = 4,
         .context = 4096,
         .tokens = 16,
         .die_at = -1,
         .mute_at = -1,
         .stall_at = -1,
         .stall_sec = 1e9,
         .lie_at = -1,
         .repeat_at = -1,
         .return_at = -1,
         .short_at = -1,
         .word = "w"};

static struct route *route;
static void *sock;
static struct auth *auth;
static double said_hello, heard;
static struct k3_id hello_id;
static bool welcomed, serving, away;
static struct work works[SLOTS];
static long total; /* tokens produced */
static double heartbeat = 1;
static volatile sig_atomic_t stopping;

static void die(const char *what, const struct k3_error *err)
{
    fprintf(stderr, "fakeengine: %s: %s\n", what, err->text);
    exit(1);
}

static void say(struct message *m, struct auth *signer)
{
    struct k3_error err;

    if (frame_send(sock, NULL, m, signer, &err) < 0)
        die("send", &err);
}

static void say_credit(void)
{
    struct message m = message_of(WIRE_CREDIT, NULL);

    m.credit.n = opt.slots;
    for (int i = 0; i < SLOTS; i++)
        if (works[i].used && !works[i].ended && m.credit.n > 0)
            m.credit.n--;
    say(&m, NULL);
}

static void say_ready(void)
{
    struct message m = message_of(WIRE_ENGINE_READY, NULL);

    m.engine_ready.slots = m.engine_ready.credit = opt.slots;
    m.engine_ready.ctx = opt.context;
    for (int i = 0; i < SLOTS; i++)
        if (works[i].used && !works[i].ended && m.engine_ready.credit > 0)
            m.engine_ready.credit--;
    say(&m, NULL);
}

static void say_done(struct work *w, enum done_why why, const char *msg)
{
    struct message m = message_of(WIRE_DONE, &w->id);

    m.done.why = why;
    m.done.msg = (char *)msg;
    m.done.ptok = w->prompt;
    m.done.ctok = w->produced;
    m.done.gen_s = 0.5;
    if (!away)
        say(&m, NULL);
    w->used = w->ended = opt.keeps && !msg;
    w->why = why;
    w->next = clock_monotonic() + 10 * heartbeat;
    if (!away)
        say_credit();
}

static uint32_t fake_token(uint32_t p)
{
    return (p * 7919 + 11) % 163840;
}

static void say_token(struct work *w, uint32_t p)
{
    struct message m = message_of(WIRE_DELTA, &w->id);
    uint32_t id = fake_token(p);
    char text[64];
    size_t len = (size_t)(opt.stamp ? snprintf(text, sizeof text, "%.7f ", clock_monotonic())
                                    : snprintf(text, sizeof text, "%s%u ", opt.word, p));
    bool turns = p > 0 && p == opt.think;
    struct message_part parts[] = {
        {.ch = CHANNEL_THINK, .txt = {(char *)".", 1}},
        {.ch = p < opt.think ? CHANNEL_THINK : CHANNEL_RESPONSE, .txt = {text, len}},
    };

    if (away)
        return;
    m.delta.off = p;
    m.delta.ids.v = &id;
    m.delta.ids.n = 1;
    m.delta.parts.v = parts + !turns;
    m.delta.parts.n = 1 + turns;
    say(&m, NULL);
}

static void give_back_everything(void)
{
    struct message m;

    for (int i = 0; i < SLOTS; i++)
        if (works[i].used) {
            m = message_of(WIRE_RETURNED, &works[i].id);
            say(&m, NULL);
            works[i].used = false;
        }
    opt.slots = 0;
    puts("returned");
}

static void produce(struct work *w)
{
    bool last = w->produced + 1 == w->end;

    if (total == opt.lie_at)
        say_token(w, w->produced + 1);
    else if (!(last && total >= opt.short_at && opt.short_at >= 0))
        say_token(w, w->produced);
    else
        opt.short_at = -1;
    if (total == opt.repeat_at)
        say_token(w, w->produced);
    w->produced++;
    if (++total == opt.die_at) {
        usleep(50000); /* lets it go out */
        puts("dies");
        exit(3);
    }
    if (last)
        say_done(w, w->end == opt.tokens ? DONE_STOP : DONE_LENGTH, NULL);
    if (total == opt.return_at)
        give_back_everything();
}

static void take(struct message_lease *l)
{
    struct work *w = works;

    while (w < works + SLOTS && w->used)
        w++;
    if (w == works + SLOTS) {
        fprintf(stderr, "fakeengine: more leases than anybody asked for\n");
        exit(1);
    }
    message_clear(&w->given);
    *w = (struct work){.used = true, .id = l->id, .prompt = (uint32_t)l->ask.tok.n, .produced = (uint32_t)l->out.n};
    w->end = l->ask.max && l->ask.max < opt.tokens ? l->ask.max : opt.tokens;
    w->next = clock_monotonic();
    printf("lease from %u\n", w->produced);
    for (uint32_t p = 0; p < w->produced; p++)
        if (l->out.v[p] != fake_token(p)) {
            say_done(w, DONE_FAILED, "the tokens to continue from are not those of this answer");
            return;
        }
    if (!l->ask.sd)
        say_done(w, DONE_FAILED, "no seed was drawn");
    else if (w->produced >= w->end)
        say_done(w, DONE_STOP, NULL);
    w->given = message_of(WIRE_ENGINE_HELD, &l->id);
    w->given.engine_held = *l;
    *l = (struct message_lease){.id = l->id};
}

static void say_hello(void)
{
    struct message_held held[SLOTS];
    uint64_t first = 0; /* all tokens can be said again */

    k3_id_random(&hello_id);
    struct message m = message_of(WIRE_ENGINE_HELLO, &hello_id);
    m.engine_hello.held.v = held;
    for (int i = 0; i < SLOTS; i++)
        if (works[i].used)
            held[m.engine_hello.held.n++] = (struct message_held){works[i].id, works[i].produced, {&first, 1}};

    m.engine_hello.job = opt.job;
    m.engine_hello.inc = opt.incarnation;
    m.engine_hello.node = (char *)"fake";
    m.engine_hello.model = (char *)"fake-model";
    m.engine_hello.ranks = 2;
    m.engine_hello.layout = (char *)"tp=2";
    m.engine_hello.key = opt.key ? (char *)opt.key : (char *)route_key(route);
    m.engine_hello.vmin = WIRE_VERSION_OLDEST;
    m.engine_hello.vmax = WIRE_VERSION;
    said_hello = clock_monotonic();
    say(&m, auth);
}

static const struct message_held *row_of(const struct message_held *row, size_t n, const struct k3_id *id)
{
    for (size_t i = 0; i < n; i++)
        if (k3_id_equal(&row[i].id, id))
            return &row[i];
    return NULL;
}

/* What the daemon lacks of the answers that it goes on with, and all of those that it does not know; others are
 * dropped. */
static void reconcile(const struct message_engine_welcome *m)
{
    for (struct work *w = works; w < works + SLOTS; w++) {
        const struct message_held *row = row_of(m->held.v, m->held.n, &w->id);
        uint32_t from = row ? (uint32_t)row->offs.v[0] : 0;

        if (!w->used)
            continue;
        if (!row && !row_of(m->tell.v, m->tell.n, &w->id)) {
            puts("dropped");
            w->used = false;
            continue;
        }
        if (!row) {
            puts("told");
            say(&w->given, NULL);
        }
        printf("resumed from %u\n", from);
        for (uint32_t p = from; p < w->produced; p++)
            say_token(w, p);
        if (w->ended)
            say_done(w, w->why, NULL);
    }
}

static void lose_contact(void)
{
    if (!away)
        puts("away");
    away = true;
}

static void hear(const struct message *m)
{
    heard = clock_monotonic();
    switch (m->head.type) {
    case WIRE_ENGINE_WELCOME:
        if (opt.keeps && !k3_id_equal(&m->head.id, &hello_id))
            break;
        heartbeat = m->engine_welcome.hb;
        welcomed = true;
        away = false;
        puts("welcome");
        if (opt.keeps)
            reconcile(&m->engine_welcome);
        if (opt.stays && serving)
            say_ready();
        break;
    case WIRE_BATCH:
        for (size_t i = 0; i < m->batch.reqs.n; i++)
            take(&m->batch.reqs.v[i]);
        say_credit();
        break;
    case WIRE_ENGINE_CANCEL:
        puts("cancel");
        for (int i = 0; i < SLOTS && !opt.deaf; i++)
            if (works[i].used && k3_id_equal(&works[i].id, &m->head.id))
                works[i].cancelled = true;
        break;
    case WIRE_REFUSED:
        printf("refused %u %s\n", m->refused.code, m->refused.msg);
        if (!opt.stays)
            exit(4);
        if (opt.keeps) {
            lose_contact();
            break;
        }
        memset(works, 0, sizeof works); /* what was said meanwhile is lost */
        if (clock_monotonic() - said_hello > 1) {
            opt.incarnation++;
            say_hello();
        }
    default:
        break;
    }
}

static void hear_all(long wait_msec)
{
    zmq_pollitem_t item = {.socket = sock, .events = ZMQ_POLLIN};
    struct k3_error err;
    struct frame f;
    struct message m;

    zmq_poll(&item, 1, wait_msec);
    while (frame_recv(sock, &f, &err) == 1) {
        if (frame_decode(&f, &m, &err) < 0)
            die("decode", &err);
        frame_clear(&f);
        hear(&m);
        message_clear(&m);
    }
}

/* Takes what it is told and does nothing about it. */
static bool stalls(double now)
{
    static double end;

    if (opt.stall_at < 0 || total < opt.stall_at)
        return false;
    if (end <= 0)
        end = now + opt.stall_sec;
    return now < end;
}

static void work_all(double now)
{
    for (int i = 0; i < SLOTS && !stalls(now); i++) {
        int most = 100;

        if (works[i].ended) {
            works[i].used = works[i].ended = away || now < works[i].next;
            continue;
        }
        if (works[i].used && works[i].cancelled)
            say_done(&works[i], DONE_CANCELLED, NULL);
        while (works[i].used && !works[i].ended && now >= works[i].next && most-- > 0) {
            if (opt.rate > 0)
                works[i].next += 1 / opt.rate;
            produce(&works[i]);
        }
    }
}

static void load(void)
{
    struct message m = message_of(WIRE_ENGINE_LOAD, NULL);
    uint64_t all[2] = {1000, 2000}, part[2] = {0, 0};

    for (int step = 1; step <= 4; step++) {
        part[0] = all[0] * (uint64_t)step / 4;
        part[1] = all[1] * (uint64_t)step / 4;
        m.engine_load.ld.v = part;
        m.engine_load.lt.v = all;
        m.engine_load.ld.n = m.engine_load.lt.n = 2;
        say(&m, NULL);
        for (double end = clock_monotonic() + opt.load_sec / 4; clock_monotonic() < end;)
            hear_all(10);
    }
    say_ready();
    serving = true;
    puts("serving");
}

static void on_signal(int signo)
{
    stopping = signo;
}

static void parse(int argc, char **argv)
{
    static const struct option options[] = {
        {"job", 1, NULL, 'j'},       {"slots", 1, NULL, 's'},    {"context", 1, NULL, 'c'}, {"tokens", 1, NULL, 't'},
        {"rate", 1, NULL, 'r'},      {"load", 1, NULL, 'l'},     {"die-at", 1, NULL, 'd'},  {"mute-at", 1, NULL, 'm'},
        {"stall-at", 1, NULL, 'S'},  {"stall", 1, NULL, 'e'},    {"lie-at", 1, NULL, 'L'},  {"repeat-at", 1, NULL, 'R'},
        {"return-at", 1, NULL, 'b'}, {"short-at", 1, NULL, 'x'}, {"deaf", 0, NULL, 'D'},    {"think", 1, NULL, 'T'},
        {"word", 1, NULL, 'w'},      {"key", 1, NULL, 'k'},      {"stays", 0, NULL, 'y'},   {"stamp", 0, NULL, 'p'},
        {"keeps", 0, NULL, 'K'},     {NULL, 0, NULL, 0}};
    int c;

    while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
        switch (c) {
        case 'j':
            opt.job = (uint32_t)strtoul(optarg, NULL, 10);
            break;
        case 's':
            opt.slots = (uint32_t)strtoul(optarg, NULL, 10);
            break;
        case 'c':
            opt.context = (uint32_t)strtoul(optarg, NULL, 10);
            break;
        case 't':
            opt.tokens = (uint32_t)strtoul(optarg, NULL, 10);
            break;
        case 'r':
            opt.rate = strtod(optarg, NULL);
            break;
        case 'l':
            opt.load_sec = strtod(optarg, NULL);
            break;
        case 'd':
            opt.die_at = strtol(optarg, NULL, 10);
            break;
        case 'm':
            opt.mute_at = strtol(optarg, NULL, 10);
            break;
        case 'S':
            opt.stall_at = strtol(optarg, NULL, 10);
            break;
        case 'e':
            opt.stall_sec = strtod(optarg, NULL);
            break;
        case 'L':
            opt.lie_at = strtol(optarg, NULL, 10);
            break;
        case 'R':
            opt.repeat_at = strtol(optarg, NULL, 10);
            break;
        case 'b':
            opt.return_at = strtol(optarg, NULL, 10);
            break;
        case 'x':
            opt.short_at = strtol(optarg, NULL, 10);
            break;
        case 'T':
            opt.think = (uint32_t)strtoul(optarg, NULL, 10);
            break;
        case 'y':
            opt.stays = true;
            break;
        case 'K':
            opt.stays = opt.keeps = true;
            break;
        case 'k':
            opt.key = optarg;
            break;
        case 'w':
            opt.word = optarg;
            break;
        case 'p':
            opt.stamp = true;
            break;
        case 'D':
            opt.deaf = true;
            break;
        default:
            fprintf(stderr, "Usage: fakeengine [--OPTION VALUE]...; its source says which\n");
            exit(2);
        }
    }
}

int main(int argc, char **argv)
{
    struct settings settings;
    struct k3_error err;
    void *zmq = zmq_ctx_new();
    double beat = 0;

    setvbuf(stdout, NULL, _IOLBF, 0);
    parse(argc, argv);
    opt.incarnation = (uint64_t)(clock_wall() * 1e6);
    signal(SIGTERM, on_signal);
    if (settings_load(&settings, NULL, &err) < 0)
        die("settings", &err);
    if (!(auth = auth_create(settings.common.munge_socket, &err)))
        die("munge", &err);
    if (!(route = route_find(&settings, &err)) || !(sock = route_connect(route, zmq, 100000, &err)))
        die("socket", &err);
    say_hello();
    while (!welcomed && !stopping)
        hear_all(10);
    load();
    while (!stopping) {
        double now = clock_monotonic();

        if (opt.mute_at >= 0 && total >= opt.mute_at) {
            hear_all(50);
            continue;
        }
        work_all(now);
        if (opt.keeps && now - heard > 5 * heartbeat)
            lose_contact();
        if (away && now - said_hello > 1)
            say_hello();
        if (now > beat && !away) {
            struct message m = message_of(WIRE_HEARTBEAT, NULL);

            m.heartbeat.rate = opt.rate;
            say(&m, NULL);
            beat = now + heartbeat;
        }
        hear_all(2);
    }
    struct message m = message_of(WIRE_ENGINE_BYE, NULL);
    m.engine_bye.msg = (char *)"told to stop";
    say(&m, NULL);
    hear_all(50); /* lets it go out */
    auth_destroy(auth);
    settings_clear(&settings);
    zmq_close(sock);
    zmq_ctx_term(zmq);
    route_destroy(route);
    return 0;
}
