/* k3attach - take the answer of a request up, from any terminal and at any token */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "client/connect.h"
#include "client/follow.h"
#include "client/list.h"
#include "client/options.h"
#include "client/output.h"

struct arguments {
    struct option_number from;
    const char *output;
    bool tail, show_reasoning, json, verbose;
};

#define TO(member) .offset = offsetof(struct arguments, member)

static const struct option_row rows[] = {
    {"from", 0, OPTION_NUMBER, TO(from), .most = UINT32_MAX, .value = "N",
     .sentence = "begin at token N, counted from 0, thinking and all"},
    {"tail", 0, OPTION_FLAG, TO(tail), .sentence = "only what comes from now on"},
    {"show-reasoning", 0, OPTION_FLAG, TO(show_reasoning), .sentence = "print the thinking to stderr"},
    {"json", 0, OPTION_FLAG, TO(json), .sentence = "print one JSON object at the end"},
    {"output", 'o', OPTION_TEXT, TO(output), .value = "FORM",
     .sentence = "text, or tokens: ids with commas, thinking and all"},
    {"verbose", 'v', OPTION_FLAG, TO(verbose), .sentence = "print usage to stderr even off a terminal"},
};

static const struct option_program program = {
    .name = "k3attach",
    .operands = "ID",
    .about = "Watch the answer of a request in the queue, or fetch it when it is complete.\n"
             "ID may be its first digits.  Ctrl-C ends k3attach; the request goes on.",
    .rows = rows,
    .count = sizeof rows / sizeof *rows,
};

static int attach(const char *digits, const struct arguments *a, enum output_form form, const struct settings *s)
{
    struct follow_options options = {.program = program.name, .text = form == OUTPUT_TEXT, .verbose = a->verbose};
    struct message m = message_of(WIRE_ATTACH, NULL);
    struct output *output = NULL;
    struct k3_error err;
    struct connection *c = connect_open(s, &err);
    int code;

    if (!c)
        return options_fail(&program, EXIT_CODE_UNREACHABLE, err.text);
    if ((code = list_find(c, digits, &m.head.id, &options.backlog, &err)) != EXIT_CODE_OK) {
        options_fail(&program, code, err.text);
        goto out;
    }
    m.attach.off = a->tail ? options.backlog : a->from.n;
    output = output_create(form, a->show_reasoning);
    if (a->tail)
        output_tail(output, m.attach.off);
    else
        output_from(output, m.attach.off);
    code = follow_request(c, &m, output, &options);
out:
    output_destroy(output);
    connect_close(c);
    return code;
}

int main(int argc, char **argv)
{
    struct arguments a = {0};
    struct settings settings;
    struct k3_error err;
    enum output_form form;
    int code, first = options_parse(&program, argc, argv, &a, &settings, &code);

    if (first < 0)
        return code;
    if (first + 1 != argc)
        code = options_fail(&program, EXIT_CODE_USAGE, "give the id of one request");
    else if (a.tail && a.from.given)
        code = options_fail(&program, EXIT_CODE_USAGE, "--from or --tail, not both");
    else if (output_form_of(a.output, a.json, &form, &err) < 0)
        code = options_fail(&program, EXIT_CODE_USAGE, err.text);
    else
        code = attach(argv[first], &a, form, &settings);
    settings_clear(&settings);
    return code;
}
