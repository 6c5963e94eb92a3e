/* k3queued - the daemon of the shared queue */
#include "config.h"

#include <errno.h>
#include <getopt.h>
#include <pwd.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sodium.h>
#include <zmq.h>

#include "common/command.h"
#include "common/error.h"
#include "common/fault.h"
#include "common/log.h"
#include "common/loop.h"
#include "common/manual.h"
#include "common/notify.h"
#include "common/settings.h"
#include "queue/gate.h"
#include "queue/seat.h"
#include "queue/server.h"
#include "queue/serverkey.h"
#include "wire/endpoint.h"

struct arguments {
    const char *conf; /* -f */
    const char *get;  /* --get */
    bool show_config;
};

static void usage(FILE *out)
{
    fprintf(out, "Usage: k3queued [-f FILE] [--show-config | --get SECTION.KEY]\n");
}

static void help(void)
{
    usage(stdout);
    printf("\n"
           "The daemon of the shared queue: takes requests from users, gives them to the engines\n"
           "that run as Slurm jobs, and passes the answers back.  Stays in the foreground.\n"
           "\n"
           "  -f FILE            read FILE instead of K3_CONF or %s/k3.conf\n"
           "  --show-config      print every setting and where it comes from\n"
           "  --get SECTION.KEY  print one setting\n"
           "  -V, --version      print the version\n"
           "  --help, --usage    print this, or one line of it\n\n",
           K3_SYSCONFDIR);
    manual_help(settings_table(), "k3queued", stdout);
}

/* Returns -1 to go on, or what to exit with. */
static int parse_arguments(struct arguments *a, int argc, char **argv)
{
    enum { HELP = 256, USAGE, SHOW_CONFIG, GET };
    static const struct option options[] = {
        {"help", no_argument, NULL, HELP},     {"usage", no_argument, NULL, USAGE},
        {"version", no_argument, NULL, 'V'},   {"show-config", no_argument, NULL, SHOW_CONFIG},
        {"get", required_argument, NULL, GET}, {NULL, 0, NULL, 0},
    };
    int c;

    while ((c = getopt_long(argc, argv, "f:V", options, NULL)) != -1) {
        switch (c) {
        case 'f':
            a->conf = optarg;
            break;
        case 'V':
            printf("k3queued %s\n", PACKAGE_VERSION);
            return EXIT_CODE_OK;
        case HELP:
            help();
            return EXIT_CODE_OK;
        case USAGE:
            usage(stdout);
            return EXIT_CODE_OK;
        case SHOW_CONFIG:
            a->show_config = true;
            break;
        case GET:
            a->get = optarg;
            break;
        default:
            usage(stderr);
            return EXIT_CODE_USAGE;
        }
    }
    if (optind == argc)
        return -1;
    usage(stderr);
    return EXIT_CODE_USAGE;
}

/* --show-config and --get.  Returns -1 to go on, or what to exit with. */
static int show_settings(const struct settings *settings, const struct arguments *a, struct k3_error *err)
{
    char *value;

    if (a->show_config) {
        settings_show(settings, stdout);
        return EXIT_CODE_OK;
    }
    if (!a->get)
        return -1;
    if (!(value = settings_get(settings, a->get, err))) {
        fprintf(stderr, "k3queued: %s\n", err->text);
        return EXIT_CODE_USAGE;
    }
    puts(value);
    free(value);
    return EXIT_CODE_OK;
}

static int find_service_user(const char *name, uid_t *uid, struct k3_error *err)
{
    const struct passwd *pw;

    *uid = geteuid();
    if (!*name)
        return 0;
    if (!(pw = getpwnam(name)))
        return k3_errorf(err, "k3queued.user = \"%s\": there is no such user", name);
    *uid = pw->pw_uid;
    return 0;
}

/* libzmq 4.3 numbers the peers of a ROUTER from rand(), which starts alike in every process, and a peer may bring a
 * number of its own.  One that guesses right takes the place of a peer that has left, or ends this process when its
 * number comes up. */
static void make_peers_hard_to_guess(void)
{
    srand(randombytes_random());
}

static bool is_checking_jobs(const char *check)
{
    return strcmp(check, "auto") == 0 ? command_exists("squeue") : strcmp(check, "yes") == 0;
}

/* What the server is made from, and made anew from when k3.conf has changed.  Borrows from settings. */
static int fill_options(struct server_options *o, const struct settings *s, struct k3_error *err)
{
    *o = (struct server_options){
        .endpoint = s->common.socket,
        .munge_socket = s->common.munge_socket,
        .check_jobs = is_checking_jobs(s->k3queued.check_job),
        .max_connections = (unsigned int)s->k3queued.max_connections_per_peer,
        .queue =
            {
                .max_queued = (unsigned int)s->k3queued.max_queued,
                .max_queued_per_user = (unsigned int)s->k3queued.max_queued_per_user,
                .max_bytes = (size_t)s->k3queued.max_queued_mib << 20,
                .max_bytes_per_user = (size_t)s->k3queued.max_queued_mib_per_user << 20,
                .max_rate_per_user = (unsigned int)s->k3queued.max_rate_per_user,
                .max_prompt_bytes = (size_t)s->k3queued.max_prompt_bytes,
                .max_prompt_tokens = (size_t)s->k3queued.max_prompt_tokens,
                .max_tokens = (uint32_t)s->k3queued.max_tokens,
                .max_choices = (uint32_t)s->k3queued.max_choices,
                .keep_answer_sec = s->k3queued.keep_answer,
                .heartbeat_sec = s->k3queued.heartbeat,
                .engine_timeout_sec = s->k3queued.engine_timeout,
                .stall_timeout_sec = s->k3queued.stall_timeout,
                .max_output = (size_t)s->k3queued.max_output,
            },
    };
    return find_service_user(s->k3queued.user, &o->service_uid, err);
}

/* The tcp endpoint, to be freed, and the key for it; *listen stays NULL when there is to be none. */
static int prepare_tcp(const struct settings *s, char **listen, struct curve_pair *pair, struct k3_error *err)
{
    const char *said = s->common.server_key;
    uint8_t pinned[CURVE_BYTES];

    if (!*s->k3queued.listen)
        return 0;
    if (!(*listen = endpoint_listen("k3queued.listen", s->k3queued.listen, err)) ||
        serverkey_take(pair, s->k3queued.state_dir, err) < 0)
        return -1;
    if (*said && curve_pinned(pinned, "common.server_key", said, err) < 0)
        log_warning("%s", err->text);
    else if (*said && memcmp(pinned, pair->public_key, CURVE_BYTES) != 0)
        log_warning("common.server_key is not the key of this daemon: nobody who reads this k3.conf reaches it by tcp");
    return 0;
}

struct daemon {
    const char *conf;                /* -f */
    const struct settings *settings; /* that it was started with */
    struct loop *loop;
    struct server *server;
};

static void on_stop(void *arg, int signo)
{
    struct daemon *d = arg;

    log_notice("%s: stopping", strsignal(signo));
    notify_stopping();
    loop_stop(d->loop);
}

/* Settings that this process keeps as they were when it started. */
static void name_kept(const struct settings *started, const struct settings *fresh)
{
    static const char *const names[] = {"common.socket", "common.munge_socket", "k3queued.heartbeat", "k3queued.listen",
                                        "k3queued.state_dir"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char *was = settings_get(started, names[i], NULL), *is = settings_get(fresh, names[i], NULL);

        if (strcmp(was, is) != 0)
            log_warning("%s stays %s; a restart makes it %s", names[i], was, is);
        free(was);
        free(is);
    }
}

/* All of k3.conf or nothing. */
static void on_reload(void *arg, int signo)
{
    struct daemon *d = arg;
    struct server_options options;
    struct settings fresh;
    struct k3_error err;

    (void)signo;
    notify_reloading();
    if (settings_load(&fresh, d->conf, &err) < 0) {
        log_err("not reloaded, everything stays as it was: %s", err.text);
    } else {
        if (fill_options(&options, &fresh, &err) < 0) {
            log_err("not reloaded, everything stays as it was: %s", err.text);
        } else {
            options.queue.heartbeat_sec = d->settings->k3queued.heartbeat; /* engines were told */
            server_reload(d->server, &options);
            k3_log_level(k3_log_parse_level(fresh.common.log_level));
            log_notice("settings reloaded");
            name_kept(d->settings, &fresh);
        }
        settings_clear(&fresh);
    }
    notify_ready();
}

static int take_signals(struct daemon *d, struct k3_error *err)
{
    if (loop_on_signal(d->loop, SIGTERM, on_stop, d, err) < 0 || loop_on_signal(d->loop, SIGINT, on_stop, d, err) < 0)
        return -1;
    return loop_on_signal(d->loop, SIGHUP, on_reload, d, err);
}

static void log_start(const struct server_options *options)
{
    char key[CURVE_DIGITS + 1];

    log_notice("k3queued %s listens on %s; engines are %s of uid %u", PACKAGE_VERSION, options->endpoint,
               options->check_jobs ? "running jobs" : "processes", options->service_uid);
    if (options->listen)
        log_notice("listens on %s, common.server_key = \"%s\"", options->listen,
                   curve_format(options->pair->public_key, key));
}

static int serve(const struct settings *settings, const char *conf, struct k3_error *err)
{
    struct daemon d = {.conf = conf, .settings = settings};
    struct server_options options;
    struct curve_pair pair;
    char *listen = NULL;
    struct seat *seat = NULL;
    void *zmq = NULL;
    int rc = -1;

    if (fill_options(&options, settings, err) < 0 || prepare_tcp(settings, &listen, &pair, err) < 0)
        goto out;
    options.listen = listen;
    options.pair = &pair;
    if (!(d.loop = loop_create(err)) || take_signals(&d, err) < 0)
        goto out;
    if (!(seat = seat_take(options.endpoint, err)))
        goto out;
    make_peers_hard_to_guess();
    if (!(zmq = zmq_ctx_new())) {
        k3_errorf(err, "ZeroMQ: %s", zmq_strerror(zmq_errno()));
        goto out;
    }
    if (!(d.server = server_create(d.loop, zmq, &options, err)) || seat_open(seat, err) < 0)
        goto out;
    log_start(&options);
    notify_ready();
    rc = loop_run(d.loop, err);
    server_end(d.server);
out:
    server_destroy(d.server);
    if (zmq)
        zmq_ctx_term(zmq);
    seat_leave(seat);
    loop_destroy(d.loop);
    free(listen);
    sodium_memzero(&pair, sizeof pair);
    return rc;
}

int main(int argc, char **argv)
{
    struct arguments arguments = {0};
    struct settings settings;
    struct k3_error err;
    int rc;

    fault_init();
    k3_log_init("k3queued", LOG_INFO);
    if ((rc = parse_arguments(&arguments, argc, argv)) >= 0)
        return rc;
    if (settings_load(&settings, arguments.conf, &err) < 0) {
        log_err("%s", err.text);
        return EXIT_CODE_FAILED;
    }
    if ((rc = show_settings(&settings, &arguments, &err)) >= 0)
        goto out;
    k3_log_level(k3_log_parse_level(settings.common.log_level));
    gate_open();
    rc = EXIT_CODE_OK;
    if (sodium_init() < 0 || serve(&settings, arguments.conf, &err) < 0) {
        log_err("%s", err.text);
        rc = EXIT_CODE_FAILED;
    }
out:
    settings_clear(&settings);
    return rc;
}
