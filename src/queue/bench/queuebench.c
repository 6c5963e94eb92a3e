/* queuebench - how fast and how large k3queued is
 *
 *     queuebench [OPTION]... credentials|submit|stream|death
 *
 * credentials  what munged takes to make a credential and to check it
 * submit       --requests N of --clients N, each with one under way; signed before the clock runs
 * stream       --clients N, an answer each; the engine's texts are the times at which it sent them (fakeengine --stamp)
 * death        one answer; after 20 tokens the process --kill PID is killed, and the rest is waited for
 *
 * All clients are in this process, each with a connection and, over tcp, with keys of its own.  It prints rows of a
 * table: a value, its unit, and what it is.  --process NAME=PID adds what that process used meanwhile. */
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <sodium.h>
#include <zmq.h>

#include "common/alloc.h"
#include "common/clock.h"
#include "common/error.h"
#include "common/settings.h"
#include "wire/auth.h"
#include "wire/frame.h"
#include "wire/message.h"
#include "wire/route.h"

enum {
    PROMPT = 1024,      /* bytes of a prompt */
    PROCESSES = 4,      /* that are looked at */
    SAMPLES = 4 << 20,  /* that are kept */
    DEATH_TOKENS = 20,  /* before the kill */
    CREDENTIALS = 2000, /* that are made and checked */
    PATIENCE_SEC = 120  /* without any message */
};

/* A message ready to be sent. */
struct parcel {
    uint8_t header[MESSAGE_HEADER];
    struct message_bytes body;
    char *credential;
};

struct client {
    struct route *route;
    void *socket;
    struct k3_id id;
    double sent;     /* the request */
    size_t at_begin; /* tokens that it had when the measurement began ... */
    size_t tokens;   /* ... and has now */
    size_t at_end;
};

struct process {
    const char *name;
    long pid;
    double cpu_sec; /* user and system, when the measurement began; then what it took */
    long rss_kib;
};

static struct options {
    int clients, requests;
    double seconds, rate; /* of measuring a stream; its tokens/s */
    long kill;
} opt = {.clients = 1, .requests = 1000, .seconds = 10, .rate = 20};

static struct settings settings;
static struct auth *auth;
static void *zmq;
static struct client *clients;
static int epoll;
static struct process processes[PROCESSES];
static int process_count;
static double began, took; /* of the measurement */
static double last_heard;
static bool finished;
static float *samples; /* milliseconds */
static size_t sample_count;

static void die(const char *what, const struct k3_error *err)
{
    fprintf(stderr, "queuebench: %s: %s\n", what, err->text);
    exit(1);
}

/* --- rows of the table */

static void row(double value, const char *unit, const char *what)
{
    printf("%12.*f %-10s %s\n", value < 10 ? 3 : value < 1000 ? 1 : 0, value, unit, what);
}

static int compare(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;

    return (x > y) - (x < y);
}

static void sample(double seconds)
{
    if (sample_count < SAMPLES)
        samples[sample_count++] = (float)(seconds * 1e3);
}

static void sample_rows(const char *of)
{
    static const struct {
        double share;
        const char *name;
    } ranks[] = {{0.5, "median"}, {0.99, "p99"}, {1, "worst"}};
    char what[100];

    qsort(samples, sample_count, sizeof *samples, compare);
    for (size_t i = 0; i < sizeof ranks / sizeof *ranks && sample_count; i++) {
        size_t at = (size_t)(ranks[i].share * (double)(sample_count - 1) + 0.5);
        snprintf(what, sizeof what, "%s, %s", of, ranks[i].name);
        row(samples[at], "ms", what);
    }
}

/* --- what other processes take */

/* Processor time so far and resident memory. */
static void look(const struct process *p, double *cpu_sec, long *rss_kib)
{
    unsigned long user = 0, system = 0;
    char path[40], line[1024], *rest;
    long pages = 0;
    FILE *f;

    *cpu_sec = 0;
    *rss_kib = 0;
    snprintf(path, sizeof path, "/proc/%ld/stat", p->pid);
    if (!(f = fopen(path, "re")))
        return;
    /* proc(5): fields 14, 15 and 24; the name before them may hold blanks, but is followed by the last ')' */
    if (fgets(line, sizeof line, f) && (rest = strrchr(line, ')')) &&
        sscanf(rest + 2, "%*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu %*d %*d %*d %*d %*d %*d %*u %*u %ld",
               &user, &system, &pages) == 3) {
        *cpu_sec = (double)(user + system) / (double)sysconf(_SC_CLK_TCK);
        *rss_kib = pages * (sysconf(_SC_PAGESIZE) / 1024);
    }
    fclose(f);
}

static void begin(void)
{
    for (int i = 0; i < process_count; i++)
        look(&processes[i], &processes[i].cpu_sec, &(long){0});
    began = clock_monotonic();
}

static void end(void)
{
    double cpu_sec;
    long rss_kib;

    took = clock_monotonic() - began;
    for (int i = 0; i < process_count; i++) {
        look(&processes[i], &cpu_sec, &rss_kib);
        processes[i].cpu_sec = cpu_sec - processes[i].cpu_sec;
        processes[i].rss_kib = rss_kib - processes[i].rss_kib;
    }
}

/* count: of what was done meanwhile, each of which took its part. */
static void process_rows(double count, const char *each)
{
    char what[100];

    for (int i = 0; i < process_count; i++) {
        snprintf(what, sizeof what, "processor time of %s", processes[i].name);
        row(100 * processes[i].cpu_sec / took, "% of one", what);
        snprintf(what, sizeof what, "processor time of %s a %s", processes[i].name, each);
        row(1e6 * processes[i].cpu_sec / count, "us", what);
    }
}

/* --- clients */

static void connect_client(struct client *c)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
    struct k3_error err;
    size_t size = sizeof(int);
    int fd;

    if (!(c->route = route_find(&settings, &err)) || !(c->socket = route_connect(c->route, zmq, 0, &err)))
        die("connect", &err);
    zmq_getsockopt(c->socket, ZMQ_FD, &fd, &size);
    epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
}

static void wrap(struct parcel *p, const struct k3_id *id, bool watch)
{
    struct message m = message_of(WIRE_SUBMIT, id);
    static uint8_t prompt[PROMPT];
    struct k3_error err;

    memset(prompt, 'x', sizeof prompt);
    m.submit.ask.req = (struct message_bytes){prompt, sizeof prompt};
    m.submit.ask.temp = m.submit.ask.topp = 1;
    m.submit.watch = watch;
    if (message_encode(&m, p->header, &p->body, &err) < 0 ||
        !(p->credential = auth_sign(auth, p->header, sizeof p->header, p->body.data, p->body.len, &err)))
        die("sign", &err);
}

/* For once. */
static void post(struct client *c, struct parcel *p)
{
    c->sent = clock_monotonic();
    zmq_send(c->socket, p->header, sizeof p->header, ZMQ_SNDMORE);
    zmq_send(c->socket, p->body.data, p->body.len, ZMQ_SNDMORE);
    zmq_send(c->socket, p->credential, strlen(p->credential), 0);
    free(p->body.data);
    free(p->credential);
}

static void refused(const struct message *m)
{
    fprintf(stderr, "queuebench: refused: %s\n", m->refused.msg);
    exit(1);
}

/* ZMQ_FD tells of a change and then no more, so a socket is emptied when it was written to and when it calls. */
static void empty(struct client *c, void (*hear)(struct client *c, const struct message *m))
{
    struct k3_error err;
    struct message m;
    struct frame f;
    int rc;

    while ((rc = frame_recv(c->socket, &f, &err)) != 0) {
        if (rc < 0 || frame_decode(&f, &m, &err) < 0)
            die("receive", &err);
        frame_clear(&f);
        last_heard = clock_monotonic();
        if (m.head.type == WIRE_REFUSED)
            refused(&m);
        hear(c, &m);
        message_clear(&m);
    }
}

static void hear_until_finished(void (*hear)(struct client *c, const struct message *m))
{
    struct epoll_event events[64];

    last_heard = clock_monotonic();
    for (int i = 0; i < opt.clients; i++)
        empty(&clients[i], hear);
    while (!finished) {
        int n = epoll_wait(epoll, events, 64, 1000);

        for (int i = 0; i < n; i++)
            empty(events[i].data.ptr, hear);
        if (clock_monotonic() - last_heard > PATIENCE_SEC) {
            fprintf(stderr, "queuebench: nothing came for %d s\n", PATIENCE_SEC);
            exit(1);
        }
    }
}

/* --- credentials */

static void measure_credentials(void)
{
    struct k3_id id;
    struct k3_error err;
    struct parcel *p = k3_calloc(CREDENTIALS, sizeof *p);
    double start = clock_monotonic(), made;
    uid_t uid;
    gid_t gid;

    k3_id_random(&id);
    for (int i = 0; i < CREDENTIALS; i++)
        wrap(&p[i], &id, false);
    made = clock_monotonic();
    for (int i = 0; i < CREDENTIALS; i++)
        if (auth_verify(auth, p[i].credential, strlen(p[i].credential), p[i].header, sizeof p[i].header, p[i].body.data,
                        p[i].body.len, &uid, &gid, &err) < 0)
            die("verify", &err);
    row(1e6 * (made - start) / CREDENTIALS, "us", "to make a credential");
    row(1e6 * (clock_monotonic() - made) / CREDENTIALS, "us", "to check one");
    for (int i = 0; i < CREDENTIALS; i++) {
        free(p[i].body.data);
        free(p[i].credential);
    }
    free(p);
}

/* --- submit */

static struct parcel *parcels;
static int posted, accepted;
static double *accepted_at;

static void hear_accepted(struct client *c, const struct message *m)
{
    if (m->head.type != WIRE_ACCEPTED)
        return;
    sample(last_heard - c->sent);
    accepted_at[accepted++] = last_heard;
    if (posted < opt.requests)
        post(c, &parcels[posted++]);
    finished = accepted == opt.requests;
}

static void measure_submit(void)
{
    int tenth = opt.requests / 10;

    parcels = k3_calloc((size_t)opt.requests, sizeof *parcels);
    accepted_at = k3_calloc((size_t)opt.requests, sizeof *accepted_at);
    for (int i = 0; i < opt.requests; i++) {
        struct k3_id id;

        k3_id_random(&id);
        wrap(&parcels[i], &id, false);
    }
    begin();
    for (; posted < opt.clients && posted < opt.requests; posted++)
        post(&clients[posted], &parcels[posted]);
    hear_until_finished(hear_accepted);
    end();
    row(opt.requests / took, "1/s", "requests accepted");
    row(tenth / (accepted_at[opt.requests - 1] - accepted_at[opt.requests - 1 - tenth]), "1/s",
        "the last tenth of them");
    sample_rows("from SUBMIT to ACCEPTED");
    process_rows(opt.requests, "request");
    free(parcels);
    free(accepted_at);
}

/* --- stream */

static int begun, ended;

/* What the engine sent this delta at, as its text says. */
static double stamp_of(const struct message_delta *d)
{
    double stamp;

    if (d->parts.n != 1 || sscanf(d->parts.v[0].txt.data, "%lf", &stamp) != 1) {
        fprintf(stderr, "queuebench: a text that is no time: start fakeengine with --stamp\n");
        exit(1);
    }
    return stamp;
}

/* Measured is while all streams run. */
static void hear_stream(struct client *c, const struct message *m)
{
    if (m->head.type == WIRE_DELTA) {
        if (began > 0 && took <= 0)
            sample(last_heard - stamp_of(&m->delta));
        if (c->tokens == 0 && ++begun == opt.clients) {
            begin();
            for (int i = 0; i < opt.clients; i++)
                clients[i].at_begin = clients[i].tokens;
        }
        c->tokens += m->delta.ids.n;
    } else if (m->head.type == WIRE_DONE) {
        ended++;
        finished = ended == opt.clients;
    }
    if (began > 0 && took <= 0 && (ended > 0 || last_heard - began > opt.seconds)) {
        end();
        for (int i = 0; i < opt.clients; i++)
            clients[i].at_end = clients[i].tokens;
    }
}

static void measure_stream(void)
{
    size_t tokens = 0, least = SIZE_MAX;

    for (int i = 0; i < process_count; i++)
        look(&processes[i], &processes[i].cpu_sec, &processes[i].rss_kib);
    for (int i = 0; i < opt.clients; i++) {
        struct parcel p;

        k3_id_random(&clients[i].id);
        wrap(&p, &clients[i].id, true);
        post(&clients[i], &p);
    }
    hear_until_finished(hear_stream);
    for (int i = 0; i < opt.clients; i++) {
        size_t n = clients[i].at_end - clients[i].at_begin;

        tokens += n;
        least = n < least ? n : least;
    }
    row(took, "s", "all streams ran");
    row((double)tokens / took, "tokens/s", "came to the clients");
    row(100 * (double)tokens / took / (opt.rate * opt.clients), "%", "of what the engine was to send");
    row(100 * (double)least / took / opt.rate, "%", "to the client that got least");
    sample_rows("from the engine's DELTA to the client");
    process_rows((double)tokens, "token");
    for (int i = 0; i < process_count; i++) {
        char what[100];

        snprintf(what, sizeof what, "more memory of %s a stream", processes[i].name);
        row((double)processes[i].rss_kib / opt.clients, "KiB", what);
    }
}

/* --- death */

static double killed, back, leased;

static void hear_death(struct client *c, const struct message *m)
{
    if (m->head.type == WIRE_DELTA) {
        c->tokens += m->delta.ids.n;
        if (leased > 0) {
            row(back - killed, "s", "from the kill to the request's return to the queue");
            row(leased - killed, "s", "to its next lease");
            row(last_heard - killed, "s", "to its next token");
            finished = true;
        } else if (killed <= 0 && c->tokens >= DEATH_TOKENS) {
            killed = last_heard;
            kill((pid_t)opt.kill, SIGKILL);
        }
    } else if (m->head.type == WIRE_STATE && killed > 0) {
        if (m->state.state == REQUEST_QUEUED && back <= 0)
            back = last_heard;
        else if (m->state.state == REQUEST_RUNNING)
            leased = last_heard;
    } else if (m->head.type == WIRE_DONE) {
        fprintf(stderr, "queuebench: the answer ended too early\n");
        exit(1);
    }
}

static void measure_death(void)
{
    struct message m = message_of(WIRE_SUBMIT, NULL);
    uint32_t prompt[] = {768, 12, 500, 33, 7};
    struct k3_error err;

    k3_id_random(&m.head.id);
    m.submit.ask.tok.v = prompt;
    m.submit.ask.tok.n = sizeof prompt / sizeof *prompt;
    m.submit.ask.topp = 1;
    m.submit.ask.ieos = true;
    m.submit.ask.max = 2000;
    m.submit.watch = true;
    if (frame_send(clients->socket, NULL, &m, auth, &err) < 0)
        die("send", &err);
    hear_until_finished(hear_death);
    m = message_of(WIRE_CANCEL, &m.head.id);
    frame_send(clients->socket, NULL, &m, auth, &err);
}

static void add_process(char *text)
{
    char *pid = strchr(text, '=');

    if (!pid || process_count == PROCESSES) {
        fprintf(stderr, "queuebench: --process NAME=PID, %d times at most\n", PROCESSES);
        exit(2);
    }
    *pid = '\0';
    processes[process_count++] = (struct process){.name = text, .pid = strtol(pid + 1, NULL, 10)};
}

static void parse(int argc, char **argv)
{
    static const struct option options[] = {
        {"clients", 1, NULL, 'c'}, {"requests", 1, NULL, 'n'}, {"seconds", 1, NULL, 's'}, {"rate", 1, NULL, 'r'},
        {"kill", 1, NULL, 'k'},    {"process", 1, NULL, 'p'},  {NULL, 0, NULL, 0}};
    int c;

    while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
        switch (c) {
        case 'c':
            opt.clients = atoi(optarg);
            break;
        case 'n':
            opt.requests = atoi(optarg);
            break;
        case 's':
            opt.seconds = strtod(optarg, NULL);
            break;
        case 'r':
            opt.rate = strtod(optarg, NULL);
            break;
        case 'k':
            opt.kill = strtol(optarg, NULL, 10);
            break;
        case 'p':
            add_process(optarg);
            break;
        default:
            exit(2);
        }
    }
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*measure)(void);
    } modes[] = {{"credentials", measure_credentials},
                 {"submit", measure_submit},
                 {"stream", measure_stream},
                 {"death", measure_death}};
    struct k3_error err;
    int linger = 1000;
    size_t mode = 0;

    setvbuf(stdout, NULL, _IOLBF, 0);
    parse(argc, argv);
    while (mode < 4 && (optind + 1 != argc || strcmp(argv[optind], modes[mode].name) != 0))
        mode++;
    if (mode == 4 || opt.clients < 1 || opt.requests < 10 || (mode == 3 && opt.kill <= 0)) {
        fprintf(stderr, "Usage: queuebench [OPTION]... credentials|submit|stream|death; its source says more\n");
        return 2;
    }
    if (sodium_init() < 0 || settings_load(&settings, NULL, &err) < 0)
        die("settings", &err);
    if (!(auth = auth_create(settings.common.munge_socket, &err)))
        die("munge", &err);
    zmq = zmq_ctx_new();
    zmq_ctx_set(zmq, ZMQ_MAX_SOCKETS, opt.clients + 10);
    epoll = epoll_create1(EPOLL_CLOEXEC);
    samples = k3_calloc(SAMPLES, sizeof *samples);
    clients = k3_calloc((size_t)opt.clients, sizeof *clients);
    for (int i = 0; i < opt.clients; i++)
        connect_client(&clients[i]);
    modes[mode].measure();
    for (int i = 0; i < opt.clients; i++) {
        zmq_setsockopt(clients[i].socket, ZMQ_LINGER, &linger, sizeof linger);
        zmq_close(clients[i].socket);
        route_destroy(clients[i].route);
    }
    zmq_ctx_term(zmq);
    auth_destroy(auth);
    settings_clear(&settings);
    free(clients);
    free(samples);
    close(epoll);
    return 0;
}
