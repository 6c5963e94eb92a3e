/* k3bench - how fast one rank of a layout is, alone: the real step on weights of the real size and formats; and how
 * fast it loads */
#include "config.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "common/error.h"
#include "common/log.h"
#include "model/inventory.h"
#include "tools/loadbench.h"
#include "tools/rankbench.h"

enum { EXIT_FAILED = 1, EXIT_USAGE = 2 };

static const char usage_text[] =
    "Usage: k3bench rank [OPTION...]\n"
    "       k3bench load --model=DIR [OPTION...]\n"
    "Measure one rank of a tensor-parallel layout of Kimi K3, its exchanges replaced by a delay; or loading its "
    "pack.\n\n"
    "k3bench rank:\n"
    "  --config=FILE          the model's config.json (default: Kimi K3's)\n"
    "  --backend=NAME         kernels that compute (default cuda)\n"
    "  --tp=N --rank=R        the rank (default 16, 0)\n"
    "  --dense=FORM           dense matrices as bf16, fp8 or mxfp8 (default bf16)\n"
    "  --batch=N,...          sequences that decode together (default 1,2,4,8)\n"
    "  --context=N,...        tokens before the step's, each sequence (default 4096)\n"
    "  --exchange-us=T,...    microseconds of an exchange (default 0)\n"
    "  --prefill=N            a prompt of N tokens in one step, instead of decoding\n"
    "  --steps=N              steps of which the median counts (default 20)\n"
    "  --layers=N             only the first layers, for profilers\n"
    "  --json=FILE            also the runs, as k3plan reads them\n\n"
    "k3bench load:\n"
    "  --model=DIR            packs, as k3pack makes them\n"
    "  --rank=R               which of them (default 0)\n"
    "  --backend=NAME         where it is loaded to (default cpu)\n"
    "  --rounds=N             plain reads and loads of which the medians count (default 5)\n"
    "  --no-verify            load without holding it against its hashes\n"
    "  --json=FILE            also the result\n";

static const struct option long_options[] = {
    {"config", required_argument, NULL, 'c'},
    {"backend", required_argument, NULL, 'b'},
    {"tp", required_argument, NULL, 't'},
    {"rank", required_argument, NULL, 'r'},
    {"batch", required_argument, NULL, 'n'},
    {"context", required_argument, NULL, 'x'},
    {"exchange-us", required_argument, NULL, 'e'},
    {"prefill", required_argument, NULL, 'p'},
    {"steps", required_argument, NULL, 's'},
    {"layers", required_argument, NULL, 'l'},
    {"json", required_argument, NULL, 'j'},
    {"dense", required_argument, NULL, 'd'},
    {"help", no_argument, NULL, 'h'},
    {"version", no_argument, NULL, 'V'},
    {NULL, 0, NULL, 0},
};

/* "1,2,4": returns how many, or -1. */
static int parse_list(const char *text, int least, int most, int list[RANKBENCH_LIST])
{
    int n = 0;

    for (const char *at = text;; at++) {
        char *end;
        long v = strtol(at, &end, 10);
        if (end == at || v < least || v > most || n == RANKBENCH_LIST)
            return -1;
        list[n++] = (int)v;
        if (!*end)
            return n;
        if (*end != ',')
            return -1;
        at = end;
    }
}

static int bad(const char *option, const char *text)
{
    fprintf(stderr, "k3bench: --%s '%s': not a number that it can be, or too many of them\nTry 'k3bench --help'.\n",
            option, text);
    return -1;
}

static int take_option(struct rankbench_options *o, int id, const char *text, const char **json)
{
    int one[RANKBENCH_LIST], n = 1;

    switch (id) {
    case 'c':
        o->config = text;
        return 0;
    case 'b':
        o->backend = text;
        return 0;
    case 'j':
        *json = text;
        return 0;
    case 'd':
        o->dense = inventory_dense_parse(text);
        if (o->dense && o->dense != K3_MXFP4)
            return 0;
        fprintf(stderr, "k3bench: --dense '%s': bf16, fp8 or mxfp8\nTry 'k3bench --help'.\n", text);
        return -1;
    case 'n':
        n = o->batches = parse_list(text, 1, 32, o->batch);
        return n < 0 ? bad("batch", text) : 0;
    case 'x':
        n = o->contexts = parse_list(text, 0, 1 << 20, o->context);
        return n < 0 ? bad("context", text) : 0;
    case 'e':
        n = o->delays = parse_list(text, 0, 1000000, o->delay);
        return n < 0 ? bad("exchange-us", text) : 0;
    }
    if (parse_list(text, id == 'r' ? 0 : 1, 1 << 16, one) != 1)
        return bad(id == 't'   ? "tp"
                   : id == 'r' ? "rank"
                   : id == 'p' ? "prefill"
                   : id == 's' ? "steps"
                               : "layers",
                   text);
    *(id == 't'   ? &o->tp
      : id == 'r' ? &o->rank
      : id == 'p' ? &o->prefill
      : id == 's' ? &o->steps
                  : &o->layers) = one[0];
    return 0;
}

/* -1: go on; else the exit status. */
static int parse_options(int argc, char **argv, struct rankbench_options *o, const char **json)
{
    for (int id; (id = getopt_long(argc, argv, "hV", long_options, NULL)) != -1;) {
        if (id == 'h') {
            fputs(usage_text, stdout);
            return 0;
        }
        if (id == 'V') {
            printf("k3bench %s\n", PACKAGE_VERSION);
            return 0;
        }
        if (id == '?' || take_option(o, id, optarg, json) < 0)
            return EXIT_USAGE;
    }
    if (optind != argc - 1 || strcmp(argv[optind], "rank") != 0) {
        fprintf(stderr, "k3bench: say what to measure: rank or load\nTry 'k3bench --help'.\n");
        return EXIT_USAGE;
    }
    if (o->rank >= o->tp) {
        fprintf(stderr, "k3bench: --rank %d: the ranks of tp=%d are 0 to %d\n", o->rank, o->tp, o->tp - 1);
        return EXIT_USAGE;
    }
    return -1;
}

static int write_json(const json_t *runs, const char *file)
{
    if (json_dump_file(runs, file, JSON_INDENT(1) | JSON_SORT_KEYS | JSON_REAL_PRECISION(6)) == 0)
        return 0;
    fprintf(stderr, "k3bench: %s: cannot be written: %s\n", file, strerror(errno));
    return EXIT_FAILED;
}

/* --- k3bench load ------------------------------------------------------------------------------------------------- */

/* -1: go on; else the exit status. */
static int parse_load(int argc, char **argv, struct loadbench_options *o, const char **json)
{
    static const struct option options[] = {
        {"model", required_argument, NULL, 'm'},   {"rank", required_argument, NULL, 'r'},
        {"backend", required_argument, NULL, 'b'}, {"rounds", required_argument, NULL, 'n'},
        {"no-verify", no_argument, NULL, 'v'},     {"json", required_argument, NULL, 'j'},
        {"help", no_argument, NULL, 'h'},          {NULL, 0, NULL, 0},
    };
    int one[RANKBENCH_LIST];

    for (int id; (id = getopt_long(argc, argv, "h", options, NULL)) != -1;) {
        switch (id) {
        case 'm':
            o->model = optarg;
            break;
        case 'b':
            o->backend = optarg;
            break;
        case 'j':
            *json = optarg;
            break;
        case 'v':
            o->unverified = true;
            break;
        case 'h':
            fputs(usage_text, stdout);
            return 0;
        case 'r':
        case 'n':
            if (parse_list(optarg, id == 'n', id == 'n' ? LOADBENCH_ROUNDS : 1 << 16, one) != 1) {
                bad(id == 'n' ? "rounds" : "rank", optarg);
                return EXIT_USAGE;
            }
            *(id == 'n' ? &o->rounds : &o->rank) = one[0];
            break;
        default:
            return EXIT_USAGE;
        }
    }
    if (o->model && optind == argc)
        return -1;
    fprintf(stderr, "k3bench: load takes --model=DIR, the packs\nTry 'k3bench --help'.\n");
    return EXIT_USAGE;
}

static int report(int rc, json_t *result, const char *json, const struct k3_error *err)
{
    int status = rc < 0 ? EXIT_FAILED : json ? write_json(result, json) : EXIT_SUCCESS;

    if (rc < 0)
        fprintf(stderr, "k3bench: %s\n", err->text);
    json_decref(result);
    return status;
}

static int bench_load(int argc, char **argv)
{
    struct loadbench_options o = {.backend = "cpu", .rounds = 5};
    const char *json = NULL;
    struct k3_error err;
    int status = parse_load(argc, argv, &o, &json);

    if (status >= 0)
        return status;
    json_t *result = json_object();
    return report(loadbench(&o, result, &err), result, json, &err);
}

static int bench_rank(int argc, char **argv)
{
    struct rankbench_options o = {.config = K3_DATADIR "/models/k3.json",
                                  .backend = "cuda",
                                  .dense = K3_BF16,
                                  .tp = 16,
                                  .batch = {1, 2, 4, 8},
                                  .batches = 4,
                                  .context = {4096},
                                  .contexts = 1,
                                  .delays = 1,
                                  .steps = 20};
    const char *json = NULL;
    struct k3_error err;
    int status = parse_options(argc, argv, &o, &json);

    if (status >= 0)
        return status;
    json_t *runs = json_object();
    return report(rankbench(&o, runs, &err), runs, json, &err);
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "load") == 0)
        return bench_load(argc - 1, argv + 1);
    return bench_rank(argc, argv);
}
