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
#include <sys/resource.h>
#include <unistd.h>

#include <sodium.h>
#include <zmq.h>

#include "common/error.h"
#include "common/fault.h"
#include "common/log.h"
#include "common/loop.h"
#include "common/settings.h"
#include "queue/seat.h"
#include "queue/server.h"

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
           "  --help, --usage    print this, or one line of it\n",
           K3_SYSCONFDIR);
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

/* A descriptor for every client. */
static void raise_file_limit(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}

/* libzmq 4.3 numbers the peers of a ROUTER from rand(), which starts alike in every process, and a peer may bring a
 * number of its own.  One that guesses right takes the place of a peer that has left, or ends this process when its
 * number comes up. */
static void make_peers_hard_to_guess(void)
{
    srand(randombytes_random());
}

static void on_stop(void *arg, int signo)
{
    log_notice("%s: stopping", strsignal(signo));
    loop_stop(arg);
}

static int serve(const struct settings *settings, struct k3_error *err)
{
    struct server_options options = {
        .endpoint = settings->common.socket,
        .munge_socket = settings->common.munge_socket,
        .queue =
            {
                .max_queued = (unsigned int)settings->k3queued.max_queued,
                .max_queued_per_user = (unsigned int)settings->k3queued.max_queued_per_user,
                .keep_answer_sec = settings->k3queued.keep_answer,
                .heartbeat_sec = settings->k3queued.heartbeat,
                .engine_timeout_sec = settings->k3queued.engine_timeout,
                .max_output = (size_t)settings->k3queued.max_output,
            },
    };
    struct loop *loop = NULL;
    struct seat *seat = NULL;
    struct server *server = NULL;
    void *zmq = NULL;
    int rc = -1;

    if (find_service_user(settings->k3queued.user, &options.service_uid, err) < 0)
        goto out;
    if (!(loop = loop_create(err)) || loop_on_signal(loop, SIGTERM, on_stop, loop, err) < 0 ||
        loop_on_signal(loop, SIGINT, on_stop, loop, err) < 0)
        goto out;
    if (!(seat = seat_take(options.endpoint, err)))
        goto out;
    make_peers_hard_to_guess();
    if (!(zmq = zmq_ctx_new())) {
        k3_errorf(err, "ZeroMQ: %s", zmq_strerror(zmq_errno()));
        goto out;
    }
    if (!(server = server_create(loop, zmq, &options, err)) || seat_open(seat, err) < 0)
        goto out;
    log_notice("k3queued %s listens on %s; engines are uid %u's", PACKAGE_VERSION, options.endpoint,
               options.service_uid);
    rc = loop_run(loop, err);
    server_end(server);
out:
    server_destroy(server);
    if (zmq)
        zmq_ctx_term(zmq);
    seat_leave(seat);
    loop_destroy(loop);
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
    raise_file_limit();
    rc = EXIT_CODE_OK;
    if (sodium_init() < 0 || serve(&settings, &err) < 0) {
        log_err("%s", err.text);
        rc = EXIT_CODE_FAILED;
    }
out:
    settings_clear(&settings);
    return rc;
}
