/* k3served.c - the engine: one process a GPU (or a share of the CPUs), started by srun in the batch job */
#include "config.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>

#include <sodium.h>

#include "common/error.h"
#include "common/log.h"
#include "common/manual.h"
#include "common/settings.h"
#include "engine/lost.h"
#include "engine/serve.h"
#include "wire/message.h"

static const char usage[] = "Usage: k3served [-f FILE] [--get SECTION.KEY | --show-config | --lost REASON]\n";
static const char help[] =
    "Serve Kimi K3: one rank of the engine, started by srun --mpi=pmix in a batch job (see k3serve.sbatch).\n\n"
    "  -f, --file FILE        read FILE instead of k3.conf\n"
    "      --get SECTION.KEY  print one setting\n"
    "      --show-config      print all settings and where each comes from\n"
    "      --lost REASON      tell k3queued that the engine of this job ($SLURM_JOB_ID) is lost\n"
    "  -h, --help             this text\n"
    "      --usage            one line\n"
    "  -V, --version          the version\n\n"
    "Exit status: 0 told to stop, 1 failed, 2 wrong settings or refused by k3queued (starting again would not help).\n"
    "With --lost: 0 k3queued knows, 7 it did not answer.\n\n";

struct options {
    enum { SERVE, GET, SHOW_CONFIG, LOST } action;
    const char *file, *argument;
};

/* -1: go on; else the exit code. */
static int parse(int argc, char **argv, struct options *o)
{
    static const struct option options[] = {
        {"file", required_argument, NULL, 'f'},  {"get", required_argument, NULL, 'g'},
        {"show-config", no_argument, NULL, 's'}, {"lost", required_argument, NULL, 'l'},
        {"help", no_argument, NULL, 'h'},        {"usage", no_argument, NULL, 'u'},
        {"version", no_argument, NULL, 'V'},     {0}};
    int option;

    while ((option = getopt_long(argc, argv, "f:hV", options, NULL)) != -1) {
        switch (option) {
        case 'f':
            o->file = optarg;
            break;
        case 'g':
            o->action = GET;
            o->argument = optarg;
            break;
        case 's':
            o->action = SHOW_CONFIG;
            break;
        case 'l':
            o->action = LOST;
            o->argument = optarg;
            break;
        case 'h':
            printf("%s%s", usage, help);
            manual_help(settings_table(), "k3served", stdout);
            return EXIT_CODE_OK;
        case 'u':
            fputs(usage, stdout);
            return EXIT_CODE_OK;
        case 'V':
            printf("k3served %s\n", PACKAGE_VERSION);
            return EXIT_CODE_OK;
        default:
            fputs(usage, stderr);
            return EXIT_CODE_USAGE;
        }
    }
    if (optind == argc)
        return -1;
    fputs(usage, stderr);
    return EXIT_CODE_USAGE;
}

static int print_setting(const struct settings *s, const char *name, struct k3_error *err)
{
    char *value = settings_get(s, name, err);

    if (!value)
        return EXIT_CODE_USAGE;
    puts(value);
    free(value);
    return EXIT_CODE_OK;
}

static int act(const struct options *o, const struct settings *s, struct k3_error *err)
{
    switch (o->action) {
    case GET:
        return print_setting(s, o->argument, err);
    case SHOW_CONFIG:
        settings_show(s, stdout);
        return EXIT_CODE_OK;
    case LOST:
        return lost_report(s, o->argument, err);
    case SERVE:
        break;
    }
    return serve(s, NULL);
}

int main(int argc, char **argv)
{
    struct options o = {.action = SERVE};
    struct settings s;
    struct k3_error err = {""};

    int code = parse(argc, argv, &o);
    if (code >= 0)
        return code;
    k3_log_init("k3served", LOG_INFO);
    if (sodium_init() < 0) {
        log_err("libsodium does not start");
        return EXIT_CODE_FAILED;
    }
    if (settings_load(&s, o.file, &err) < 0) {
        if (o.action == SERVE)
            return serve(NULL, &err);
        code = EXIT_CODE_USAGE;
    } else {
        k3_log_level(k3_log_parse_level(s.common.log_level));
        code = act(&o, &s, &err);
        settings_clear(&s);
    }
    if (code != EXIT_CODE_OK && o.action != SERVE)
        fprintf(stderr, "k3served: %s\n", err.text);
    return code;
}
