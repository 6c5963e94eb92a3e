/* k3info - the daemon and the engines, as sinfo shows nodes */
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <jansson.h>

#include "client/connect.h"
#include "client/options.h"
#include "client/words.h"
#include "common/clock.h"

struct arguments {
    bool no_header, json;
    double iterate;
};

#define TO(member) .offset = offsetof(struct arguments, member)

static const struct option_row rows[] = {
    {"noheader", 'h', OPTION_FLAG, TO(no_header), .sentence = "no line about the daemon and no headings"},
    {"iterate", 'i', OPTION_REAL, TO(iterate), .least = 0.1, .most = 86400, .value = "SECONDS",
     .sentence = "again every so many seconds, until Ctrl-C"},
    {"json", 0, OPTION_FLAG, TO(json), .sentence = "as a JSON object"},
};

static const struct option_program program = {
    .name = "k3info",
    .operands = "",
    .about = "Show k3queued and the engines it knows.",
    .rows = rows,
    .count = sizeof rows / sizeof *rows,
};

static json_t *engine_json(const struct message_engine *e)
{
    json_t *ranks = json_array();

    for (size_t i = 0; i < e->ld.n && i < e->lt.n; i++)
        json_array_append_new(ranks, json_pack("{s:i, s:I, s:I}", "rank", (int)i, "loaded", (json_int_t)e->ld.v[i],
                                               "total", (json_int_t)e->lt.v[i]));
    return json_pack("{s:I, s:o, s:s, s:o, s:i, s:o, s:i, s:i, s:f, s:f, s:o}", "job", (json_int_t)e->job, "node",
                     words_json(e->node), "state", engine_state_name(e->state), "model", words_json(e->model), "size",
                     (int)e->ranks, "layout", words_json(e->layout), "slots", (int)e->slots, "used", (int)e->used,
                     "tokens_per_second", e->rate, "since", e->since, "ranks", ranks);
}

static void print_json(const struct message_info_reply *info)
{
    json_t *engines = json_array();

    for (size_t i = 0; i < info->engines.n; i++)
        json_array_append_new(engines, engine_json(&info->engines.v[i]));
    json_t *root = json_pack("{s:o, s:f, s:i, s:i, s:o, s:o}", "version", words_json(info->ver), "up_seconds",
                             info->up_s, "queued", (int)info->queued, "running", (int)info->running, "model",
                             words_json(info->model), "engines", engines);
    json_dumpf(root, stdout, JSON_COMPACT | JSON_REAL_PRECISION(15));
    putchar('\n');
    json_decref(root);
}

static void print_loading(const struct message_engine *e)
{
    char loaded[32], total[32];

    for (size_t i = 0; i < e->ld.n && i < e->lt.n; i++)
        printf("         rank %zu: %s of %s, %.0f %%\n", i, words_bytes(e->ld.v[i], loaded),
               words_bytes(e->lt.v[i], total), e->lt.v[i] ? 100.0 * (double)e->ld.v[i] / (double)e->lt.v[i] : 100.0);
}

static void print_engine(const struct message_engine *e)
{
    char since[32], slots[32], *node = words_safe(e->node), *model = words_safe(e->model),
                               *layout = words_safe(e->layout);

    snprintf(slots, sizeof slots, "%u/%u", (unsigned int)e->used, (unsigned int)e->slots);
    printf("%8u %-8s %.12s%*s %5u %-8s %7s %7.1f %12s %s\n", (unsigned int)e->job, engine_state_name(e->state), node,
           (int)(strlen(node) < 12 ? 12 - strlen(node) : 0), "", (unsigned int)e->ranks, layout, slots, e->rate,
           words_duration(clock_wall() - e->since, since), model);
    if (e->state == ENGINE_STARTING || e->state == ENGINE_LOADING)
        print_loading(e);
    free(node);
    free(model);
    free(layout);
}

static void print_table(const struct message_info_reply *info, const struct arguments *a)
{
    char up[32];

    if (!a->no_header) {
        printf("k3queued %s, up %s, %u waiting, %u running\n", info->ver ? info->ver : "?",
               words_duration(info->up_s, up), (unsigned int)info->queued, (unsigned int)info->running);
        if (info->engines.n == 0)
            printf("no engine: sbatch k3serve.sbatch starts one\n");
        else
            printf("%8s %-8s %-12s %5s %-8s %7s %7s %12s %s\n", "JOBID", "STATE", "NODE", "RANKS", "LAYOUT", "SLOTS",
                   "TOK/S", "SINCE", "MODEL");
    }
    for (size_t i = 0; i < info->engines.n; i++)
        print_engine(&info->engines.v[i]);
}

static int show(struct connection *c, const struct arguments *a)
{
    struct k3_id question;
    struct message reply;
    struct k3_error err;

    k3_id_random(&question);
    struct message m = message_of(WIRE_INFO, &question);
    int code = connect_ask(c, &m, WIRE_INFO_REPLY, &reply, &err);
    if (code != EXIT_CODE_OK)
        return options_fail(&program, code, err.text);
    if (a->json)
        print_json(&reply.info_reply);
    else
        print_table(&reply.info_reply, a);
    message_clear(&reply);
    if (fflush(stdout) == 0)
        return EXIT_CODE_OK;
    k3_errorf(&err, "standard output: %s", strerror(errno));
    return options_fail(&program, EXIT_CODE_FAILED, err.text);
}

int main(int argc, char **argv)
{
    struct arguments a = {0};
    struct settings settings;
    struct connection *c = NULL;
    struct k3_error err;
    int code, first = options_parse(&program, argc, argv, &a, &settings, &code);

    if (first < 0)
        return code;
    if (first < argc) {
        code = options_fail(&program, EXIT_CODE_USAGE, "it takes no arguments");
    } else if (!(c = connect_open(&settings, &err))) {
        code = options_fail(&program, EXIT_CODE_UNREACHABLE, err.text);
    } else {
        while ((code = show(c, &a)) == EXIT_CODE_OK && a.iterate > 0) {
            putchar('\n');
            usleep((useconds_t)(a.iterate * 1e6));
        }
    }
    connect_close(c);
    settings_clear(&settings);
    return code;
}
