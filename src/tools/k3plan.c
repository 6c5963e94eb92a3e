/* k3plan - what a layout of the model takes of each rank's memory, and how fast it will be */
#include "config.h"

#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/alloc.h"
#include "common/error.h"
#include "model/jsontext.h"
#include "tools/plan.h"

enum { EXIT_FAILED = 1, EXIT_USAGE = 2 };
enum { CONFIG_BYTES_MAX = 4 << 20, LIST_MAX = 16, BATCH_MAX = 1 << 16, CONTEXT_MAX = 1 << 24 };

/* Numbers with commas between them. */
struct list {
    int value[LIST_MAX];
    int n;
};

struct options {
    const char *config, *device, *run_device, *set, *calibrate;
    struct list batch, chunk, context;
    int nodes, slots, checkpoints, cache_tokens, page_tokens; /* -1: not given */
    int compare, check, json;
};

/* --- command line ------------------------------------------------------------------------------------------------- */

enum option_id {
    OPT_CONFIG = 256,
    OPT_NODES,
    OPT_LAYOUT,
    OPT_DENSE,
    OPT_BATCH,
    OPT_CONTEXT,
    OPT_CHUNK,
    OPT_SLOTS,
    OPT_CHECKPOINTS,
    OPT_CACHE_TOKENS,
    OPT_PAGE_TOKENS,
    OPT_LATENTS,
    OPT_DEVICE,
    OPT_SET,
    OPT_EXCHANGE_US,
    OPT_ONE_SHOT,
    OPT_MESSAGES,
    OPT_SCATTER,
    OPT_EVEN,
    OPT_CALIBRATE,
    OPT_RUN_DEVICE,
    OPT_CHECK,
    OPT_COMPARE,
    OPT_JSON,
    OPT_HELP,
    OPT_USAGE,
    OPT_VERSION
};

static const struct {
    const char *name, *argument, *help;
    enum option_id id;
} option_rows[] = {
    {"config", "FILE", "the model's config.json (default: Kimi K3's)", OPT_CONFIG},
    {"nodes", "N", "ranks that there are, one a node (default 16)", OPT_NODES},
    {"layout", "LAYOUT", "tp=N,pp=N,ep=N: pp stages of tp ranks in ep groups; again for more (default tp=nodes)",
     OPT_LAYOUT},
    {"dense", "FORM,...", "dense part as bf16, fp8, mxfp8, mxfp4 (default bf16)", OPT_DENSE},
    {"batch", "N,...", "sequences that decode together (default 1,8,32)", OPT_BATCH},
    {"context", "N,...", "tokens before those of the step, each sequence (default 4096)", OPT_CONTEXT},
    {"chunk", "N,...", "prompt tokens of a step (default 2048)", OPT_CHUNK},
    {"slots", "N", "sequences with state in memory (default: the largest batch)", OPT_SLOTS},
    {"checkpoints", "N", "copies of such states (default 0)", OPT_CHECKPOINTS},
    {"cache-tokens", "N", "tokens that the cache holds (default: slots times the longest context)", OPT_CACHE_TOKENS},
    {"page-tokens", "N", "tokens of a page of it (default 64)", OPT_PAGE_TOKENS},
    {"latents", "FORM", "of the cache: bf16, as on GPUs, or f32 (default bf16)", OPT_LATENTS},
    {"device", "NAME|FILE", "gb10, h200 or a file with a slash in its name (default gb10)", OPT_DEVICE},
    {"set", "NAME=VALUE,...", "other values than the device's file has", OPT_SET},
    {"exchange-us", "T", "an exchange takes T microseconds, whatever its size", OPT_EXCHANGE_US},
    {"one-shot", NULL, "sums in one phase instead of two", OPT_ONE_SHOT},
    {"messages", "FORM", "numbers on their way between ranks: f32 or bf16 (default f32)", OPT_MESSAGES},
    {"scatter-latent", NULL, "the experts' sum is scattered, its norm finished later", OPT_SCATTER},
    {"even", NULL, "a bound: everything of a stage split evenly", OPT_EVEN},
    {"calibrate", "RUN.json", "take share and layer_us from a measured run, its first", OPT_CALIBRATE},
    {"run-device", "NAME|FILE", "the device of measured runs (default h200)", OPT_RUN_DEVICE},
    {"check", NULL, "the arguments are measured runs: predict them", OPT_CHECK},
    {"compare", NULL, "a line a layout; without --layout, every tp x pp that makes up the nodes", OPT_COMPARE},
    {"json", NULL, "JSON instead of tables", OPT_JSON},
    {"help", NULL, "show this", OPT_HELP},
    {"usage", NULL, "show a short usage", OPT_USAGE},
    {"version", NULL, "show the version", OPT_VERSION},
};

enum { OPTION_ROWS = sizeof option_rows / sizeof *option_rows };

static const char usage_text[] = "Usage: k3plan [OPTION...]\n"
                                 "       k3plan --compare [--layout L]... [OPTION...]\n"
                                 "       k3plan --check [--calibrate RUN.json] [OPTION...] RUN.json...\n";

static void help(void)
{
    printf("%s\nPredict the memory of each rank and the speed of a layout of Kimi K3.\n\n", usage_text);
    for (int i = 0; i < OPTION_ROWS; i++) {
        char left[64];
        snprintf(left, sizeof left, "--%s%s%s", option_rows[i].name, option_rows[i].argument ? "=" : "",
                 option_rows[i].argument ? option_rows[i].argument : "");
        printf("  %-26s %s\n", left, option_rows[i].help);
    }
}

static int usage_error(const struct k3_error *err)
{
    fprintf(stderr, "k3plan: %s\nTry 'k3plan --help'.\n", err->text);
    return EXIT_USAGE;
}

static const char *option_name(int option)
{
    for (int i = 0; i < OPTION_ROWS; i++)
        if ((int)option_rows[i].id == option)
            return option_rows[i].name;
    return "";
}

static int parse_list(int option, const char *text, int least, int most, struct list *l, struct k3_error *err)
{
    const char *at = text;

    for (l->n = 0;; at++) {
        char *end;
        errno = 0;
        long n = strtol(at, &end, 10);
        if (errno || end == at || (*end && *end != ',') || n < least || n > most || l->n == LIST_MAX)
            return k3_errorf(err, "--%s: at most %d numbers from %d to %d with commas between them, not '%s'",
                             option_name(option), LIST_MAX, least, most, text);
        l->value[l->n++] = (int)n;
        at = end;
        if (!*at)
            return 0;
    }
}

static int parse_int(int option, const char *text, int least, int most, int *value, struct k3_error *err)
{
    char *end;

    errno = 0;
    long n = strtol(text, &end, 10);
    if (errno || end == text || *end || n < least || n > most)
        return k3_errorf(err, "--%s: '%s' is not a number from %d to %d", option_name(option), text, least, most);
    *value = (int)n;
    return 0;
}

static int parse_us(int option, const char *text, double *value, struct k3_error *err)
{
    char *end;

    *value = strtod(text, &end);
    return end == text || *end || !(*value >= 0 && *value <= 1e6)
               ? k3_errorf(err, "--%s: '%s' is not a number from 0 to 1000000", option_name(option), text)
               : 0;
}

static int parse_dense(const char *text, struct plan *p, struct k3_error *err)
{
    char *words = k3_strdup(text), *next = words, *word;
    int rc = 0;

    p->denses = 0;
    while (rc == 0 && (word = strsep(&next, ","))) {
        enum k3_dtype dense = inventory_dense_parse(word);
        if (!dense || p->denses == PLAN_DENSE_MAX)
            rc = k3_errorf(err, "--dense: bf16, fp8, mxfp8 or mxfp4 with commas between them, not '%s'", text);
        else
            p->dense[p->denses++] = dense;
    }
    free(words);
    return rc;
}

static int parse_messages(const char *text, struct plan *p, struct k3_error *err)
{
    p->options.cost.value_bytes = strcmp(text, "f32") == 0 ? 4 : strcmp(text, "bf16") == 0 ? 2 : 0;
    return p->options.cost.value_bytes ? 0 : k3_errorf(err, "--messages: f32 or bf16, not '%s'", text);
}

static int parse_latents(const char *text, struct plan *p, struct k3_error *err)
{
    p->options.cost.latents = strcmp(text, "f32") == 0 ? K3_F32 : strcmp(text, "bf16") == 0 ? K3_BF16 : 0;
    return p->options.cost.latents ? 0 : k3_errorf(err, "--latents: f32 or bf16, not '%s'", text);
}

static int add_layout(const char *text, struct plan *p, struct k3_error *err)
{
    if (p->layouts == PLAN_LAYOUTS_MAX)
        return k3_errorf(err, "--layout: more than %d of them", PLAN_LAYOUTS_MAX);
    return layout_parse(text, &p->layout[p->layouts++], err);
}

/* One option; those that end the program at once are left to parse_options(). */
static int parse_option(int option, const char *arg, struct options *o, struct plan *p, struct k3_error *err)
{
    switch (option) {
    case OPT_CONFIG:
        o->config = arg;
        return 0;
    case OPT_NODES:
        return parse_int(option, arg, 1, LAYOUT_RANKS_MAX, &o->nodes, err);
    case OPT_LAYOUT:
        return add_layout(arg, p, err);
    case OPT_DENSE:
        return parse_dense(arg, p, err);
    case OPT_BATCH:
        return parse_list(option, arg, 1, BATCH_MAX, &o->batch, err);
    case OPT_CONTEXT:
        return parse_list(option, arg, 0, CONTEXT_MAX, &o->context, err);
    case OPT_CHUNK:
        return parse_list(option, arg, 1, BATCH_MAX, &o->chunk, err);
    case OPT_SLOTS:
        return parse_int(option, arg, 1, BATCH_MAX, &o->slots, err);
    case OPT_CHECKPOINTS:
        return parse_int(option, arg, 0, BATCH_MAX, &o->checkpoints, err);
    case OPT_CACHE_TOKENS:
        return parse_int(option, arg, 0, 1 << 30, &o->cache_tokens, err);
    case OPT_PAGE_TOKENS:
        return parse_int(option, arg, 1, BATCH_MAX, &o->page_tokens, err);
    case OPT_DEVICE:
        o->device = arg;
        return 0;
    case OPT_SET:
        o->set = arg;
        return 0;
    case OPT_EXCHANGE_US:
        return parse_us(option, arg, &p->options.exchange_us, err);
    case OPT_ONE_SHOT:
        p->options.one_shot = 1;
        return 0;
    case OPT_MESSAGES:
        return parse_messages(arg, p, err);
    case OPT_LATENTS:
        return parse_latents(arg, p, err);
    case OPT_SCATTER:
        p->options.cost.scatter_latent = 1;
        return 0;
    case OPT_EVEN:
        p->options.cost.even = 1;
        return 0;
    case OPT_CALIBRATE:
        o->calibrate = arg;
        return 0;
    case OPT_RUN_DEVICE:
        o->run_device = arg;
        return 0;
    case OPT_CHECK:
        o->check = 1;
        return 0;
    case OPT_COMPARE:
        o->compare = 1;
        return 0;
    case OPT_JSON:
        o->json = 1;
        return 0;
    }
    return k3_errorf(err, "unknown option");
}

/* Fill in o and p.  Returns -1 to go on, else the exit code to end with now. */
static int parse_options(int argc, char **argv, struct options *o, struct plan *p)
{
    struct option list[OPTION_ROWS + 1] = {0};
    struct k3_error err;
    int option;

    for (int i = 0; i < OPTION_ROWS; i++)
        list[i] = (struct option){option_rows[i].name, option_rows[i].argument ? required_argument : no_argument, NULL,
                                  option_rows[i].id};
    while ((option = getopt_long(argc, argv, "hV", list, NULL)) != -1) {
        switch (option) {
        case 'h':
        case OPT_HELP:
            help();
            return EXIT_SUCCESS;
        case OPT_USAGE:
            fputs(usage_text, stdout);
            return EXIT_SUCCESS;
        case 'V':
        case OPT_VERSION:
            printf("k3plan %s\n", PACKAGE_VERSION);
            return EXIT_SUCCESS;
        case '?': /* getopt_long has written its sentence */
            fprintf(stderr, "Try 'k3plan --help'.\n");
            return EXIT_USAGE;
        }
        if (parse_option(option, optarg, o, p, &err) < 0)
            return usage_error(&err);
    }
    if (o->check == (optind == argc)) {
        k3_errorf(&err, o->check ? "--check needs measured runs" : "no argument is wanted, but --check's: '%s'",
                  argv[optind]);
        return usage_error(&err);
    }
    return -1;
}

/* --- the plan ------------------------------------------------------------------------------------------------------
 */

static int load_config(const char *path, struct plan *p, struct k3_error *err)
{
    const char *data = getenv("K3_DATADIR");
    char *standard = k3_asprintf("%s/models/k3.json", data && *data ? data : K3_DATADIR);
    size_t len;
    char *text = jsontext_load(path ? path : standard, CONFIG_BYTES_MAX, &len, err);
    int rc = text ? k3_config_parse(path ? path : standard, text, len, &p->config, err) : -1;

    p->model = path ? path : "k3.json";
    free(text);
    free(standard);
    return rc;
}

/* tp = nodes; or, to compare, all that make up the nodes, the experts whole beside them. */
static void default_layouts(struct plan *p, int all)
{
    p->layout[p->layouts++] = (struct layout){p->nodes, 1, 1};
    if (all && p->nodes > 1 && p->nodes <= p->config.experts)
        p->layout[p->layouts++] = (struct layout){p->nodes, 1, p->nodes};
    for (int pp = 2; all && pp <= p->nodes && pp <= p->config.layers && p->layouts < PLAN_LAYOUTS_MAX; pp++)
        if (p->nodes % pp == 0)
            p->layout[p->layouts++] = (struct layout){p->nodes / pp, pp, 1};
}

static int check_layouts(const struct plan *p, struct k3_error *err)
{
    for (int i = 0; i < p->layouts; i++) {
        char name[LAYOUT_NAME];
        if (layout_check(&p->config, &p->layout[i], err) < 0)
            return -1;
        if (layout_ranks(&p->layout[i]) > p->nodes)
            return k3_errorf(err, "layout %s takes %d ranks, and there are %d: see --nodes",
                             layout_name(&p->layout[i], name), layout_ranks(&p->layout[i]), p->nodes);
    }
    return 0;
}

static int add_step(struct plan *p, struct predict_step step, struct k3_error *err)
{
    if (p->steps == PLAN_STEPS_MAX)
        return k3_errorf(err, "more than %d batches and chunks times contexts", PLAN_STEPS_MAX);
    p->step[p->steps++] = step;
    return 0;
}

static int set_steps(struct plan *p, const struct options *o, struct k3_error *err)
{
    for (int c = 0; c < o->context.n; c++) {
        for (int b = 0; b < o->batch.n; b++)
            if (add_step(p, (struct predict_step){o->batch.value[b], 0, o->context.value[c]}, err) < 0)
                return -1;
        for (int k = 0; k < o->chunk.n; k++)
            if (add_step(p, (struct predict_step){1, o->chunk.value[k], o->context.value[c]}, err) < 0)
                return -1;
    }
    return 0;
}

static int largest(const struct list *l)
{
    int most = 0;

    for (int i = 0; i < l->n; i++)
        most = l->value[i] > most ? l->value[i] : most;
    return most;
}

static int set_limits(struct plan *p, const struct options *o, struct k3_error *err)
{
    int slots = o->slots > 0 ? o->slots : largest(&o->batch), chunk = largest(&o->chunk);
    int64_t tokens = o->cache_tokens >= 0 ? o->cache_tokens : (int64_t)slots * (largest(&o->context) + 1);
    int64_t pages = (tokens + o->page_tokens - 1) / o->page_tokens;

    if (pages > INT32_MAX)
        return k3_errorf(err, "%d slots of %d tokens: give --cache-tokens", slots, largest(&o->context));
    p->limits = (struct forward_limits){.rows = chunk > slots ? chunk : slots,
                                        .outputs = slots,
                                        .slots = slots,
                                        .checkpoints = o->checkpoints,
                                        .pages = (int32_t)pages,
                                        .page_tokens = o->page_tokens,
                                        .slot_pages = (int32_t)(pages / slots + 1),
                                        .latents = p->options.cost.latents};
    return 0;
}

/* What the run says of its own device holds for d too, as far as it was measured. */
static int calibrate(struct plan *p, const struct options *o, struct k3_error *err)
{
    struct measured m;
    struct device ran = {0};
    int rc = -1;

    if (measured_load(&m, o->calibrate, err) < 0)
        return -1;
    if (device_load(&ran, o->run_device, err) < 0)
        goto out;
    if (o->check && o->set && device_override(&ran, o->set, "--set", err) < 0)
        goto clear;
    char *source = k3_asprintf("on %s, %s", ran.name, o->calibrate);
    rc = measured_calibrate(&m.run[0], &p->config, &ran, &p->options, source, err);
    if (rc == 0) {
        device_set(&p->device.layer_us, ran.layer_us.value, ran.layer_us.basis, source);
        if (strcmp(ran.share.source, source) == 0)
            device_set(&p->device.share, ran.share.value, ran.share.basis, source);
    }
    free(source);
clear:
    device_clear(&ran);
out:
    measured_clear(&m);
    return rc;
}

static int prepare(struct plan *p, const struct options *o, struct k3_error *err)
{
    if (load_config(o->config, p, err) < 0 || device_load(&p->device, o->check ? o->run_device : o->device, err) < 0)
        return -1;
    if ((o->calibrate && calibrate(p, o, err) < 0) || (o->set && device_override(&p->device, o->set, "--set", err) < 0))
        return -1;
    p->nodes = o->nodes;
    if (p->layouts == 0)
        default_layouts(p, o->compare);
    return check_layouts(p, err) < 0 || set_steps(p, o, err) < 0 ? -1 : set_limits(p, o, err);
}

static int check_runs(const struct plan *p, char *const *file, int files, int json, struct k3_error *err)
{
    struct measured *m = k3_calloc((size_t)files, sizeof *m);
    int rc = 0;

    for (int i = 0; i < files && rc == 0; i++)
        rc = measured_load(&m[i], file[i], err);
    if (rc == 0)
        (json ? plan_check_json : plan_check)(p, m, files, stdout);
    for (int i = 0; i < files; i++)
        measured_clear(&m[i]);
    free(m);
    return rc;
}

int main(int argc, char **argv)
{
    struct options o = {.device = "gb10",
                        .run_device = "h200",
                        .batch = {{1, 8, 32}, 3},
                        .context = {{4096}, 1},
                        .chunk = {{2048}, 1},
                        .nodes = 16,
                        .slots = -1,
                        .cache_tokens = -1,
                        .page_tokens = 64};
    struct plan *p = k3_zalloc(sizeof *p);
    struct k3_error err = {""};

    p->dense[p->denses++] = K3_BF16;
    p->options =
        (struct predict_options){.cost = {.dense = K3_BF16, .latents = K3_BF16, .value_bytes = 4}, .exchange_us = -1};
    int rc = parse_options(argc, argv, &o, p);
    if (rc < 0) {
        rc = prepare(p, &o, &err);
        if (rc == 0 && o.check)
            rc = check_runs(p, argv + optind, argc - optind, o.json, &err);
        else if (rc == 0)
            (o.json ? plan_print_json : o.compare ? plan_compare : plan_print)(p, stdout);
        if (rc < 0) {
            fprintf(stderr, "k3plan: %s\n", err.text);
            rc = EXIT_FAILED;
        }
    }
    device_clear(&p->device);
    free(p);
    return rc;
}
