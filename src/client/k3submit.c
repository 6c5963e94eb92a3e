/* k3submit - put a question in the queue and print the answer */
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/connect.h"
#include "client/follow.h"
#include "client/options.h"
#include "client/output.h"
#include "client/prompt.h"
#include "client/when.h"
#include "common/argv.h"
#include "common/clock.h"
#include "text/stop.h"

struct arguments {
    struct option_texts files, stops;
    const char *system, *name, *deadline, *prompt_tokens, *output, *logit_bias;
    struct option_number top_k, seed, logprobs, choices;
    double min_p, repetition, presence, frequency;
    bool no_thinking, show_reasoning, json, parsable, no_wait, ignore_eos, verbose;
};

#define TO(member) .offset = offsetof(struct arguments, member)

static const struct option_row rows[] = {
    {"file", 'f', OPTION_TEXTS, TO(files), .value = "FILE", .sentence = "take text from FILE too; - waits for stdin"},
    {"system", 0, OPTION_TEXT, TO(system), .value = "TEXT", .sentence = "system message before the text"},
    {"choices", 'n', OPTION_NUMBER, TO(choices), .least = 1, .most = MESSAGE_CHOICES, .value = "N",
     .sentence = "so many answers to the prompt, with the seeds SEED, SEED + 1, ..."},
    {"max-tokens", 'm', OPTION_SETTING, .setting = "k3submit.max_tokens", .value = "N"},
    {"temperature", 't', OPTION_SETTING, .setting = "k3submit.temperature", .value = "T"},
    {"top-p", 0, OPTION_SETTING, .setting = "k3submit.top_p", .value = "P"},
    {"top-k", 0, OPTION_NUMBER, TO(top_k), .most = UINT32_MAX, .value = "K",
     .sentence = "sample from the K likeliest tokens; 0: off"},
    {"min-p", 0, OPTION_REAL, TO(min_p), .most = 1, .value = "P",
     .sentence = "leave out tokens P times less likely than the likeliest; 0: off"},
    {"repetition-penalty", 0, OPTION_REAL, TO(repetition), .most = 100, .value = "R",
     .sentence = "above 1: less of what is in prompt or answer; 0 or 1: off"},
    {"presence-penalty", 0, OPTION_REAL, TO(presence), .least = -2, .most = 2, .value = "P",
     .sentence = "above 0: less of what is in the answer"},
    {"frequency-penalty", 0, OPTION_REAL, TO(frequency), .least = -2, .most = 2, .value = "F",
     .sentence = "above 0: less of it with every use"},
    {"logit-bias", 0, OPTION_TEXT, TO(logit_bias), .value = "ID:B,...",
     .sentence = "add B, -100 to 100, to the logit of a token"},
    {"logprobs", 0, OPTION_NUMBER, TO(logprobs), .most = MESSAGE_LOGPROBS, .value = "N",
     .sentence = "with --json: log-probabilities of each token and the N likeliest"},
    {"seed", 0, OPTION_NUMBER, TO(seed), .most = (double)UINT64_MAX, .value = "N",
     .sentence = "seed of the sampling: the same seed, the same answer"},
    {"stop", 0, OPTION_TEXTS, TO(stops), .value = "TEXT", .sentence = "end the answer before TEXT; up to 16 times"},
    {"reasoning-effort", 'r', OPTION_SETTING, .setting = "k3submit.reasoning_effort", .value = "LEVEL"},
    {"no-thinking", 0, OPTION_FLAG, TO(no_thinking), .sentence = "answer without thinking first"},
    {"show-reasoning", 0, OPTION_FLAG, TO(show_reasoning), .sentence = "print the thinking to stderr"},
    {"json", 0, OPTION_FLAG, TO(json), .sentence = "print one JSON object at the end"},
    {"output", 'o', OPTION_TEXT, TO(output), .value = "FORM",
     .sentence = "text, or tokens: ids with commas, thinking and all"},
    {"job-name", 'J', OPTION_TEXT, TO(name), .value = "NAME", .sentence = "name that k3queue shows"},
    {"deadline", 0, OPTION_TEXT, TO(deadline), .value = "TIME",
     .sentence = "give up what is not done by then: 17:30, now+2hours"},
    {"no-wait", 0, OPTION_FLAG, TO(no_wait), .sentence = "print the id and end; the answer is kept for a while"},
    {"parsable", 0, OPTION_FLAG, TO(parsable), .sentence = "print the id alone, before any answer"},
    {"prompt-tokens", 0, OPTION_TEXT, TO(prompt_tokens), .value = "IDS",
     .sentence = "the whole prompt as token ids with commas, instead of text"},
    {"ignore-eos", 0, OPTION_FLAG, TO(ignore_eos), .sentence = "go on where the model would end"},
    {"verbose", 'v', OPTION_FLAG, TO(verbose), .sentence = "print id and usage to stderr even off a terminal"},
};

static const struct option_program program = {
    .name = "k3submit",
    .operands = "[TEXT]...",
    .about = "Ask the model; the answer goes to stdout, everything else to stderr.\n"
             "TEXT, files and standard input are joined:  k3submit \"explain this\" < err.log",
    .environment = "K3SUBMIT",
    .rows = rows,
    .count = sizeof rows / sizeof *rows,
};

static int usage_error(const char *sentence)
{
    options_fail(&program, EXIT_CODE_USAGE, sentence);
    fprintf(stderr, "Try 'k3submit --help'.\n");
    return EXIT_CODE_USAGE;
}

/* The SUBMIT out of options and text; borrows from arguments and settings, owns prompt, ids and bias (free_submit). */
static int check_stops(const struct option_texts *stops, struct k3_error *err)
{
    for (size_t i = 0; i < stops->n; i++) {
        size_t len = strlen(stops->v[i]);
        if (len < 1 || len > STOP_BYTES_MAX)
            return k3_errorf(err, "--stop: a text of %zu bytes, not 1 to %d", len, STOP_BYTES_MAX);
    }
    return 0;
}

static int take_deadline(const char *text, double *deadline, struct k3_error *err)
{
    struct k3_error why;

    if (when_parse(text, clock_wall(), deadline, &why) < 0)
        return k3_errorf(err, "--deadline: %s", why.text);
    return *deadline > clock_wall() ? 0 : k3_errorf(err, "--deadline: %s has passed", text);
}

static int build_submit(struct message *m, struct arguments *a, const struct settings *s, char *const *words,
                        size_t word_count, struct k3_error *err)
{
    struct message_ask *ask = &m->submit.ask;

    *m = message_of(WIRE_SUBMIT, NULL);
    ask->max = (uint32_t)s->k3submit.max_tokens;
    ask->temp = s->k3submit.temperature;
    ask->topp = s->k3submit.top_p;
    ask->topk = (uint32_t)a->top_k.n;
    ask->minp = a->min_p;
    ask->rep = a->repetition;
    ask->pres = a->presence;
    ask->freq = a->frequency;
    ask->lp = (uint32_t)a->logprobs.n;
    ask->n = a->choices.n > 1 ? (uint32_t)a->choices.n : 0;
    ask->sd = a->seed.given;
    ask->seed = a->seed.n;
    ask->stop = (struct message_strings){(char **)a->stops.v, a->stops.n};
    ask->ieos = a->ignore_eos;
    m->submit.watch = !a->no_wait;
    m->submit.name = (char *)a->name;
    if (a->deadline && take_deadline(a->deadline, &m->submit.dl, err) < 0)
        return -1;
    if (check_stops(&a->stops, err) < 0)
        return -1;
    if (a->logit_bias && prompt_bias(a->logit_bias, &ask->bi, &ask->bv, err) < 0)
        return -1;
    if (a->prompt_tokens)
        return prompt_tokens(a->prompt_tokens, &ask->tok, err);

    struct buf text = {NULL, 0, 0};
    int rc = prompt_read(&text, words, word_count, &a->files, err);
    if (rc == 0) {
        ask->req.data = (uint8_t *)prompt_json(&text, a->system, !a->no_thinking, s->k3submit.reasoning_effort, err);
        rc = ask->req.data ? 0 : -1;
        ask->req.len = ask->req.data ? strlen((char *)ask->req.data) : 0;
    }
    buf_free(&text);
    return rc;
}

static void free_submit(struct message *m)
{
    free(m->submit.ask.req.data);
    free(m->submit.ask.tok.v);
    free(m->submit.ask.bi.v);
    free(m->submit.ask.bv.v);
}

/* --no-wait: as sbatch does. */
static int leave_in_queue(struct connection *c, const struct message *submit, const struct arguments *a)
{
    char id[K3_ID_DIGITS + 1];
    struct message accepted;
    struct k3_error err;
    int code = connect_ask(c, submit, WIRE_ACCEPTED, &accepted, &err);

    if (code != EXIT_CODE_OK)
        return options_fail(&program, code, err.text);
    k3_id_format(&submit->head.id, id);
    if (a->json)
        printf("{\"id\":\"%s\",\"place\":%u}\n", id, (unsigned int)accepted.accepted.place);
    else
        printf(a->parsable ? "%s\n" : "Submitted request %s\n", id);
    message_clear(&accepted);
    if (fflush(stdout) == 0)
        return EXIT_CODE_OK;
    k3_errorf(&err, "standard output: %s", strerror(errno));
    return options_fail(&program, EXIT_CODE_FAILED, err.text);
}

static int submit(struct message *m, const struct arguments *a, enum output_form form, const struct settings *s)
{
    struct k3_error err;
    struct connection *c = connect_open(s, &err);
    int code;

    if (!c)
        return options_fail(&program, EXIT_CODE_UNREACHABLE, err.text);
    k3_id_random(&m->head.id);
    if (a->no_wait) {
        code = leave_in_queue(c, m, a);
    } else {
        struct output *output = output_create(form, a->show_reasoning);
        output_expect(output, m->submit.ask.n);
        const char *effort = a->prompt_tokens ? NULL : a->no_thinking ? "none" : s->k3submit.reasoning_effort;
        struct follow_options options = {.program = program.name,
                                         .effort = effort,
                                         .parsable = a->parsable,
                                         .text = form == OUTPUT_TEXT,
                                         .verbose = a->verbose};
        code = follow_request(c, m, output, &options);
        output_destroy(output);
    }
    connect_close(c);
    return code;
}

int main(int argc, char **argv)
{
    struct arguments a = {0};
    struct settings settings;
    struct message m;
    struct k3_error err;
    enum output_form form;
    int code;

    argv = argv_hide(argc, argv); /* the prompt may stand there */
    int first = options_parse(&program, argc, argv, &a, &settings, &code);
    if (first < 0)
        goto out;
    if (output_form_of(a.output, a.json, &form, &err) < 0)
        code = usage_error(err.text);
    else if (a.prompt_tokens && (first < argc || a.files.n > 0 || a.system))
        code = usage_error("--prompt-tokens is the whole prompt: no text, -f or --system beside it");
    else if (a.logprobs.n > 0 && !a.json)
        code = usage_error("--logprobs are part of --json");
    else {
        code = build_submit(&m, &a, &settings, argv + first, (size_t)(argc - first), &err) < 0
                   ? options_fail(&program, EXIT_CODE_USAGE, err.text)
                   : submit(&m, &a, form, &settings);
        free_submit(&m);
    }
    settings_clear(&settings);
out:
    free(argv);
    return code;
}
