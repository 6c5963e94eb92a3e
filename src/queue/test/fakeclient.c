/* fakeclient - a client for tests: says one thing to the k3queued of k3.conf and prints what comes back, one line a
 * message
 *
 *     fakeclient [OPTION]... submit|attach|cancel|list|info|ack|lost|hello|delta|ok|garbage|squat|crowd|endless|systemd
 *
 * systemd prints what comes to NOTIFY_SOCKET, until STOPPING=1 does or nothing for --pause seconds.  Text that was
 * streamed is printed at the end as one line "text ...".  Exit status 0, or the code of REFUSED; 9: nothing came for
 * --wait seconds. */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <sodium.h>
#include <zmq.h>

#include "common/alloc.h"
#include "common/error.h"
#include "common/settings.h"
#include "wire/auth.h"
#include "wire/frame.h"
#include "wire/message.h"
#include "wire/route.h"

static struct options {
    struct k3_id id;
    uint32_t job, max, prompt; /* prompt: so many tokens */
    const char *text, *prefix; /* or this as the opaque request */
    uint64_t off;
    long pause_at;      /* stop reading after so many deltas ... */
    double pause_sec;   /* ... for so long */
    int wait_sec, line; /* for an answer; messages in the socket's line */
    bool no_watch, ack, me, unsigned_, bad_signature, twice, quiet, leave;
    const char *tokens, *stop; /* prompt as "1,2,3"; a stop string */
    bool greedy, cold;         /* temperature 0, going on after stop ids; temperature 0 */
    bool parts;                /* print the text of each delta by channel */
} opt = {.job = 7, .prompt = 3, .pause_at = -1, .wait_sec = 10};

static void *sock;
static struct auth *auth;
static char *text;
static size_t text_len;
static long deltas;
static void *squatters[100];
static char *ids; /* streamed, with commas */

static void die(const char *what, const struct k3_error *err)
{
    fprintf(stderr, "fakeclient: %s: %s\n", what, err->text);
    exit(8);
}

static void say(struct message *m)
{
    struct k3_error err;

    if (frame_send(sock, NULL, m, opt.unsigned_ ? NULL : auth, &err) < 0)
        die("send", &err);
}

/* A credential for other bytes than those it goes with. */
static void say_badly_signed(struct message *m)
{
    uint8_t header[MESSAGE_HEADER];
    struct message_bytes body;
    struct k3_error err;
    char *credential = NULL;

    if (message_encode(m, header, &body, &err) < 0 ||
        !(credential = auth_sign(auth, header, 5, body.data, body.len, &err)))
        die("sign", &err);
    zmq_send(sock, header, sizeof header, ZMQ_SNDMORE);
    zmq_send(sock, body.data, body.len, ZMQ_SNDMORE);
    zmq_send(sock, credential, strlen(credential), 0);
    free(credential);
    free(body.data);
}

static uint32_t *make_prompt(void)
{
    uint32_t *prompt = k3_calloc(opt.prompt + 1, sizeof *prompt);
    const char *next = opt.tokens;

    if (!next)
        return prompt;
    for (opt.prompt = 0; *next; next += *next == ',') {
        prompt = k3_reallocarray(prompt, opt.prompt + 1, sizeof *prompt);
        prompt[opt.prompt++] = (uint32_t)strtoul(next, (char **)&next, 10);
    }
    return prompt;
}

static void say_submit(void)
{
    struct message m = message_of(WIRE_SUBMIT, &opt.id);
    uint32_t *prompt = make_prompt();

    m.submit.ask.temp = opt.greedy || opt.cold ? 0 : 1;
    m.submit.ask.ieos = opt.greedy;
    if (opt.stop)
        m.submit.ask.stop = (struct message_strings){(char **)&opt.stop, 1};
    m.submit.ask.topp = 0.95;
    m.submit.ask.max = opt.max;
    m.submit.watch = !opt.no_watch;
    m.submit.name = (char *)"fake";
    if (opt.text) {
        m.submit.ask.req.data = (uint8_t *)opt.text;
        m.submit.ask.req.len = strlen(opt.text);
    } else {
        m.submit.ask.tok.v = prompt;
        m.submit.ask.tok.n = opt.prompt;
    }
    if (opt.bad_signature)
        say_badly_signed(&m);
    else
        say(&m);
    if (opt.twice)
        say(&m);
    free(prompt);
}

/* Frames of every kind of wrong: empty, cut, of random bytes, and right ones with a byte changed. */
static void say_garbage(void)
{
    struct message m = message_of(WIRE_SUBMIT, &opt.id);
    uint8_t header[MESSAGE_HEADER], noise[300];
    struct message_bytes body;
    struct k3_error err;

    m.submit.ask.temp = 1;
    m.submit.ask.topp = 1;
    m.submit.ask.req.data = (uint8_t *)opt.text;
    m.submit.ask.req.len = strlen(opt.text);
    if (message_encode(&m, header, &body, &err) < 0)
        die("encode", &err);
    for (int i = 0; i < 3000; i++) {
        uint8_t h[MESSAGE_HEADER];
        size_t h_len = i % 5 ? sizeof h : randombytes_uniform(sizeof h);
        size_t n = randombytes_uniform(sizeof noise);

        memcpy(h, header, sizeof h);
        randombytes_buf(noise, sizeof noise);
        h[i % 2 ? 7 : randombytes_uniform(sizeof h)] = (uint8_t)randombytes_uniform(64);
        zmq_send(sock, h, h_len, i % 7 ? ZMQ_SNDMORE : 0);
        if (i % 7 == 0)
            continue;
        zmq_send(sock, i % 3 ? noise : body.data, i % 3 ? n : body.len, i % 4 ? ZMQ_SNDMORE : 0);
        if (i % 4)
            zmq_send(sock, noise, n, i % 11 ? 0 : ZMQ_SNDMORE);
        if (i % 4 && i % 11 == 0)
            zmq_send(sock, noise, 1, 0);
    }
    free(body.data);
}

/* Take the names that an unprepared libzmq gives to its first peers, and keep them for --pause seconds. */
static void squat(void *zmq, const char *endpoint)
{
    const uint32_t first = 1804289383; /* rand() of a process that did not call srand() */
    struct k3_error err;

    for (uint32_t i = 0; i < 100; i++) {
        uint32_t n = first + i;
        uint8_t name[5] = {0, (uint8_t)(n >> 24), (uint8_t)(n >> 16), (uint8_t)(n >> 8), (uint8_t)n};
        void *dealer = frame_socket(zmq, ZMQ_DEALER, 0, &err);
        struct message m = message_of(WIRE_INFO, NULL);

        zmq_setsockopt(dealer, ZMQ_ROUTING_ID, name, sizeof name);
        if (frame_connect(dealer, endpoint, &err) < 0 || frame_send(dealer, NULL, &m, NULL, &err) < 0)
            die("squat", &err);
        squatters[i] = dealer;
    }
    usleep((useconds_t)(opt.pause_sec * 1e6));
}

/* As systemd listens to a service. */
static void be_systemd(void)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_DGRAM, 0);
    struct pollfd p = {fd, POLLIN, 0};
    char got[200];
    bool stopping = false;

    snprintf(at.sun_path, sizeof at.sun_path, "%s", getenv("NOTIFY_SOCKET"));
    if (bind(fd, (struct sockaddr *)&at, sizeof at) < 0) {
        perror("fakeclient: NOTIFY_SOCKET");
        exit(8);
    }
    while (!stopping && poll(&p, 1, (int)(opt.pause_sec * 1e3)) > 0) {
        ssize_t n = recv(fd, got, sizeof got - 1, 0);

        got[n > 0 ? n : 0] = '\0';
        puts(got);
        stopping = !strcmp(got, "STOPPING=1");
    }
    close(fd);
}

/* Connect a thousand times to the daemon's socket file, say nothing, and leave after --pause seconds. */
static void crowd(const char *endpoint)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fds[1000], n = 0;

    snprintf(address.sun_path, sizeof address.sun_path, "%s", endpoint + strlen("ipc://"));
    for (int i = 0; i < 1000; i++) {
        fds[i] = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        n += connect(fds[i], (struct sockaddr *)&address, sizeof address) == 0;
    }
    printf("crowd of %d\n", n);
    usleep((useconds_t)(opt.pause_sec * 1e6));
    for (int i = 0; i < 1000; i++)
        close(fds[i]);
}

/* A send that is cut short says no reason, and need not have one: only the next tells. */
static bool send_all(int fd, const uint8_t *at, size_t left)
{
    while (left > 0) {
        ssize_t n = send(fd, at, left, MSG_NOSIGNAL);
        if (n < 0)
            return false;
        at += n;
        left -= (size_t)n;
    }
    return true;
}

/* A message that goes on for ever, as no libzmq sends it: parts of 1 MiB, each with another to follow. */
static void endless(const char *endpoint)
{
    static uint8_t greeting[64] = {0xff, [9] = 0x7f, 3, 0, 'N', 'U', 'L', 'L'};
    static const char ready[] = "\x04\x1c\x05READY\x0bSocket-Type\0\0\0\x06"
                                "DEALER";
    static uint8_t part[9 + (1 << 20)] = {3, [6] = 0x10}; /* long, more */
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), sent = 0;

    snprintf(address.sun_path, sizeof address.sun_path, "%s", endpoint + strlen("ipc://"));
    if (connect(fd, (struct sockaddr *)&address, sizeof address) < 0 ||
        send(fd, greeting, sizeof greeting, MSG_NOSIGNAL) < 0 || send(fd, ready, sizeof ready - 1, MSG_NOSIGNAL) < 0)
        perror("fakeclient: endless");
    while (sent < 2000 && send_all(fd, part, sizeof part))
        sent++;
    printf("%s after %d MiB%s%s\n", sent < 2000 ? "cut" : "taken", sent, sent < 2000 ? ": " : "",
           sent < 2000 ? strerror(errno) : "");
    close(fd);
}

static void say_what(const char *what)
{
    struct message m = {0};
    uint32_t token = 1;

    if (!strcmp(what, "submit")) {
        say_submit();
        return;
    } else if (!strcmp(what, "garbage")) {
        say_garbage();
        return;
    } else if (!strcmp(what, "attach")) {
        m = message_of(WIRE_ATTACH, &opt.id);
        m.attach.off = opt.off;
    } else if (!strcmp(what, "cancel")) {
        m = message_of(WIRE_CANCEL, &opt.id);
    } else if (!strcmp(what, "ack")) {
        m = message_of(WIRE_ACK, &opt.id);
    } else if (!strcmp(what, "list")) {
        m = message_of(WIRE_LIST, NULL);
        m.list.me = opt.me;
        m.list.id = (char *)opt.prefix;
    } else if (!strcmp(what, "info")) {
        m = message_of(WIRE_INFO, NULL);
    } else if (!strcmp(what, "lost")) {
        m = message_of(WIRE_ENGINE_LOST, NULL);
        m.engine_lost.job = opt.job;
        m.engine_lost.msg = (char *)"its step ended";
    } else if (!strcmp(what, "hello")) {
        m = message_of(WIRE_ENGINE_HELLO, NULL);
        m.engine_hello.job = opt.job;
        m.engine_hello.inc = 1;
        m.engine_hello.vmin = m.engine_hello.vmax = WIRE_VERSION;
    } else if (!strcmp(what, "delta")) {
        m = message_of(WIRE_DELTA, &opt.id);
        m.delta.off = opt.off;
        m.delta.ids = (struct message_u32s){&token, 1};
    } else {
        m = message_of(WIRE_OK, NULL);
    }
    say(&m);
}

static void print_listing(const struct message_listing *l)
{
    for (size_t i = 0; i < l->rows.n; i++) {
        const struct message_listing_row *r = &l->rows.v[i];
        char id[K3_ID_DIGITS + 1];

        printf("row %s %s %s %s place %u %s job %u tokens %u+%u\n", k3_id_format(&r->id, id), r->user,
               r->name ? r->name : "-", request_state_name(r->state), r->place, r->reason ? r->reason : "-", r->job,
               r->ptok, r->ctok);
    }
}

static void print_info(const struct message_info_reply *info)
{
    printf("queued %u running %u model %s\n", info->queued, info->running, info->model ? info->model : "-");
    for (size_t i = 0; i < info->engines.n; i++) {
        const struct message_engine *e = &info->engines.v[i];

        printf("engine %u %s %s slots %u used %u", e->job, e->node, engine_state_name(e->state), e->slots, e->used);
        for (size_t k = 0; k < e->ld.n; k++)
            printf(" %" PRIu64 "/%" PRIu64, e->ld.v[k], e->lt.v[k]);
        puts("");
    }
}

static void hear_delta(const struct message_delta *d)
{
    static const char *const channels[CHANNELS] = {"think", "response", "tool"};

    if (!opt.quiet)
        printf("delta %" PRIu64 "+%zu\n", d->off, d->ids.n);
    for (size_t i = 0; i < d->parts.n; i++) {
        const struct message_text *txt = &d->parts.v[i].txt;
        if (opt.parts)
            printf("%s %.*s\n", channels[d->parts.v[i].ch], (int)txt->len, (const char *)txt->data);
        text = k3_reallocarray(text, text_len + txt->len + 1, 1);
        if (txt->len)
            memcpy(text + text_len, txt->data, txt->len);
        text_len += txt->len;
    }
    for (size_t i = 0; i < d->ids.n; i++) {
        char *more = k3_asprintf("%s%s%u", ids ? ids : "", ids ? "," : "", d->ids.v[i]);
        free(ids);
        ids = more;
    }
    if (++deltas == opt.pause_at)
        usleep((useconds_t)(opt.pause_sec * 1e6));
}

/* -1: more is to come; otherwise what to exit with. */
static int hear(const struct message *m)
{
    struct message ack = message_of(WIRE_ACK, &opt.id);

    switch (m->head.type) {
    case WIRE_ACCEPTED:
        printf("accepted place %u %s\n", m->accepted.place, m->accepted.reason);
        return opt.no_watch || opt.leave ? 0 : -1;
    case WIRE_REFUSED:
        printf("refused %u %s\n", m->refused.code, m->refused.msg);
        return (int)m->refused.code;
    case WIRE_STATE:
        if (!opt.quiet)
            printf("state %s place %u %s job %u\n", request_state_name(m->state.state), m->state.place, m->state.reason,
                   m->state.job);
        return -1;
    case WIRE_DELTA:
        hear_delta(&m->delta);
        return -1;
    case WIRE_DONE:
        if (opt.tokens)
            printf("ids %s\n", ids ? ids : "");
        printf("text %.*s\n", (int)text_len, text ? text : "");
        printf("done %s %u+%u %s\n", done_why_name(m->done.why), m->done.ptok, m->done.ctok,
               m->done.msg ? m->done.msg : "-");
        if (!opt.ack)
            return 0;
        say(&ack);
        return -1;
    case WIRE_LISTING:
        print_listing(&m->listing);
        return m->listing.more ? -1 : 0;
    case WIRE_INFO_REPLY:
        print_info(&m->info_reply);
        return 0;
    case WIRE_OK:
        puts("ok");
        return 0;
    default:
        puts(message_type_name(m->head.type));
        return 0;
    }
}

static int hear_all(void)
{
    zmq_pollitem_t item = {.socket = sock, .events = ZMQ_POLLIN};
    struct k3_error err;
    struct frame f;
    struct message m;
    int rc = -1;

    while (rc < 0) {
        if (zmq_poll(&item, 1, opt.wait_sec * 1000) <= 0) {
            puts("silence");
            return 9;
        }
        if (frame_recv(sock, &f, &err) != 1 || frame_decode(&f, &m, &err) < 0)
            die("receive", &err);
        frame_clear(&f);
        rc = hear(&m);
        message_clear(&m);
    }
    return rc;
}

static void parse(int argc, char **argv)
{
    enum { ID = 1, JOB, MAX, PROMPT, TEXT, PREFIX, OFF, PAUSE_AT, PAUSE, WAIT, LINE, TOKENS, STOP };
    static const struct option options[] = {{"id", 1, NULL, ID},        {"job", 1, NULL, JOB},
                                            {"max", 1, NULL, MAX},      {"prompt", 1, NULL, PROMPT},
                                            {"text", 1, NULL, TEXT},    {"prefix", 1, NULL, PREFIX},
                                            {"off", 1, NULL, OFF},      {"pause-at", 1, NULL, PAUSE_AT},
                                            {"pause", 1, NULL, PAUSE},  {"wait", 1, NULL, WAIT},
                                            {"line", 1, NULL, LINE},    {"no-watch", 0, NULL, 'n'},
                                            {"ack", 0, NULL, 'a'},      {"me", 0, NULL, 'm'},
                                            {"unsigned", 0, NULL, 'u'}, {"bad-signature", 0, NULL, 'b'},
                                            {"twice", 0, NULL, 't'},    {"quiet", 0, NULL, 'q'},
                                            {"leave", 0, NULL, 'l'},    {"tokens", 1, NULL, TOKENS},
                                            {"stop", 1, NULL, STOP},    {"greedy", 0, NULL, 'g'},
                                            {"cold", 0, NULL, 'c'},     {"parts", 0, NULL, 'p'},
                                            {NULL, 0, NULL, 0}};
    int c;

    while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
        switch (c) {
        case ID:
            if (k3_id_parse(&opt.id, optarg) < 0)
                exit(2);
            break;
        case JOB:
            opt.job = (uint32_t)strtoul(optarg, NULL, 10);
            break;
        case MAX:
            opt.max = (uint32_t)strtoul(optarg, NULL, 10);
            break;
        case PROMPT:
            opt.prompt = (uint32_t)strtoul(optarg, NULL, 10);
            break;
        case TEXT:
            opt.text = optarg;
            break;
        case PREFIX:
            opt.prefix = optarg;
            break;
        case OFF:
            opt.off = strtoull(optarg, NULL, 10);
            break;
        case PAUSE_AT:
            opt.pause_at = strtol(optarg, NULL, 10);
            break;
        case PAUSE:
            opt.pause_sec = strtod(optarg, NULL);
            break;
        case WAIT:
            opt.wait_sec = atoi(optarg);
            break;
        case LINE:
            opt.line = atoi(optarg);
            break;
        case TOKENS:
            opt.tokens = optarg;
            break;
        case STOP:
            opt.stop = optarg;
            break;
        case 'c':
            opt.cold = true;
            break;
        case 'p':
            opt.parts = true;
            break;
        case 'g':
            opt.greedy = true;
            break;
        case 'n':
            opt.no_watch = true;
            break;
        case 'a':
            opt.ack = true;
            break;
        case 'm':
            opt.me = true;
            break;
        case 'u':
            opt.unsigned_ = true;
            break;
        case 'b':
            opt.bad_signature = true;
            break;
        case 't':
            opt.twice = true;
            break;
        case 'q':
            opt.quiet = true;
            break;
        case 'l':
            opt.leave = true;
            break;
        default:
            exit(2);
        }
    }
}

int main(int argc, char **argv)
{
    struct settings settings;
    struct k3_error err;
    struct route *route;
    void *zmq = zmq_ctx_new();
    int rc = 0, linger = 2000;

    setvbuf(stdout, NULL, _IOLBF, 0);
    if (sodium_init() < 0)
        return 8;
    k3_id_random(&opt.id);
    parse(argc, argv);
    if (settings_load(&settings, NULL, &err) < 0)
        die("settings", &err);
    if (!(auth = auth_create(settings.common.munge_socket, &err)))
        die("munge", &err);
    if (!(route = route_find(&settings, &err)) || !(sock = route_connect(route, zmq, opt.line, &err)))
        die("socket", &err);
    zmq_setsockopt(sock, ZMQ_LINGER, &linger, sizeof linger);
    for (; optind < argc; optind++) {
        if (!strcmp(argv[optind], "squat")) {
            squat(zmq, settings.common.socket);
            continue;
        }
        if (!strcmp(argv[optind], "systemd")) {
            be_systemd();
            continue;
        }
        if (!strcmp(argv[optind], "endless")) {
            endless(settings.common.socket);
            continue;
        }
        if (!strcmp(argv[optind], "crowd")) {
            crowd(settings.common.socket);
            continue;
        }
        say_what(argv[optind]);
        if (strcmp(argv[optind], "garbage") != 0)
            rc = hear_all();
    }
    auth_destroy(auth);
    settings_clear(&settings);
    zmq_close(sock);
    for (size_t i = 0; i < sizeof squatters / sizeof *squatters && squatters[i]; i++)
        zmq_close(squatters[i]);
    zmq_ctx_term(zmq);
    route_destroy(route);
    free(text);
    free(ids);
    return rc;
}
