/* k3run.c - the engine without queue or Slurm: one prompt, on one process or on the ranks that mpirun or srun started
 */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include <jansson.h>

#include "comm/comm.h"
#include "common/alloc.h"
#include "common/argv.h"
#include "common/clock.h"
#include "common/error.h"
#include "common/log.h"
#include "common/settings.h"
#include "engine/bench.h"
#include "engine/dump.h"
#include "engine/layercheck.h"
#include "engine/sampler.h"
#include "engine/single.h"
#include "text/buf.h"
#include "text/chat.h"
#include "text/parser.h"
#include "text/tokens.h"
#include "text/vocab.h"
#include "wire/message.h"

enum { EXIT_FAILED = 1, EXIT_USAGE = 2 };

struct options {
    const char *effort; /* NULL: as k3.conf says */
    const char *model, *backend, *system, *render, *dump_logits, *dump_hidden, *check_layers;
    const char *layout;   /* "": tp = all ranks */
    char *text;           /* the words of the command line; NULL when there are none */
    struct tokens prompt; /* of --prompt-tokens */
    int tokenize, bench, json, no_thinking, output_tokens, output_given, show_reasoning, ignore_eos, verbose,
        seed_given, no_verify;
    int threads; /* 0: not given */
    int choices;
    int max_tokens;    /* -1: not given */
    int prefill_chunk; /* tokens a step */
    struct sampling sampling;
};

/* --- command line ------------------------------------------------------------------------------------------------- */

enum option_id {
    OPT_MODEL = 256,
    OPT_SYSTEM,
    OPT_EFFORT,
    OPT_NO_THINKING,
    OPT_SHOW_REASONING,
    OPT_PROMPT_TOKENS,
    OPT_CHOICES,
    OPT_MAX_TOKENS,
    OPT_TEMPERATURE,
    OPT_TOP_K,
    OPT_TOP_P,
    OPT_MIN_P,
    OPT_REPETITION,
    OPT_PRESENCE,
    OPT_FREQUENCY,
    OPT_BIAS,
    OPT_LOGPROBS,
    OPT_SEED,
    OPT_IGNORE_EOS,
    OPT_OUTPUT,
    OPT_PREFILL_CHUNK,
    OPT_DUMP_LOGITS,
    OPT_DUMP_HIDDEN,
    OPT_CHECK_LAYERS,
    OPT_TOKENIZE,
    OPT_RENDER,
    OPT_BENCH,
    OPT_JSON,
    OPT_LAYOUT,
    OPT_BACKEND,
    OPT_THREADS,
    OPT_NO_VERIFY,
    OPT_VERBOSE,
    OPT_HELP,
    OPT_USAGE,
    OPT_VERSION
};

static const struct {
    const char *name, *argument, *help;
    enum option_id id;
} option_rows[] = {
    {"model", "DIR", "checkpoint: config.json, safetensors, tiktoken.model; or packs (k3pack)", OPT_MODEL},
    {"system", "TEXT", "a system message before the prompt", OPT_SYSTEM},
    {"reasoning-effort", "EFFORT", "low, medium, high or max, or none: unsaid (default: k3submit's in k3.conf)",
     OPT_EFFORT},
    {"no-thinking", NULL, "answer without thinking first", OPT_NO_THINKING},
    {"show-reasoning", NULL, "write the reasoning to stderr as it comes", OPT_SHOW_REASONING},
    {"prompt-tokens", "ID,...", "this prompt instead of a chat", OPT_PROMPT_TOKENS},
    {"choices", "N", "so many answers, with the seeds SEED, SEED + 1, ... (-n N)", OPT_CHOICES},
    {"max-tokens", "N", "end after N tokens (default 512)", OPT_MAX_TOKENS},
    {"temperature", "T", "0 takes the likeliest token (default 1)", OPT_TEMPERATURE},
    {"top-k", "K", "sample among the K likeliest tokens; 0: all (default 0)", OPT_TOP_K},
    {"top-p", "P", "sample among the likeliest that make up P (default 0.95)", OPT_TOP_P},
    {"min-p", "P", "leave out tokens P times less likely than the likeliest; 0: off (default 0)", OPT_MIN_P},
    {"repetition-penalty", "R", "above 1: less of what is in prompt or answer (default 1)", OPT_REPETITION},
    {"presence-penalty", "P", "above 0: less of what is in the answer (default 0)", OPT_PRESENCE},
    {"frequency-penalty", "F", "above 0: less of it with every use (default 0)", OPT_FREQUENCY},
    {"logit-bias", "ID:B,...", "add B to the logit of a token, -100 to 100", OPT_BIAS},
    {"logprobs", "N", "write each token's log-probability and the N likeliest to stderr", OPT_LOGPROBS},
    {"seed", "N", "the same seed gives the same text (default: a random one)", OPT_SEED},
    {"ignore-eos", NULL, "go on after the end of the answer", OPT_IGNORE_EOS},
    {"output", "text|tokens", "write text or token ids (default text)", OPT_OUTPUT},
    {"prefill-chunk", "N", "prompt tokens a step (default 256)", OPT_PREFILL_CHUNK},
    {"dump-logits", "FILE", "write the prompt's logits; stops there unless --max-tokens is given", OPT_DUMP_LOGITS},
    {"dump-hidden", "FILE", "write the residual after each layer; stops likewise", OPT_DUMP_HIDDEN},
    {"check-layers", "NAME", "compare each layer with that of backend NAME; stops likewise", OPT_CHECK_LAYERS},
    {"tokenize", NULL, "turn stdin into token ids; nothing in it is a control token", OPT_TOKENIZE},
    {"render", "FILE", "print the prompt that a chat request (JSON; - for stdin) becomes", OPT_RENDER},
    {"bench", NULL, "measure speed, and what this machine could do; no prompt", OPT_BENCH},
    {"json", NULL, "with --bench: JSON instead of a table", OPT_JSON},
    {"layout", "tp=N,pp=N,ep=N", "ranks of a stage, stages, groups that share out experts (default tp=ranks)",
     OPT_LAYOUT},
    {"backend", "NAME", "who computes: cpu, cuda or cuda:N, or ref to check them (default cpu)", OPT_BACKEND},
    {"threads", "N", "threads a rank (default: the cores when alone, else 1)", OPT_THREADS},
    {"no-verify", NULL, "load a pack without holding it against its hashes", OPT_NO_VERIFY},
    {"verbose", NULL, "log memory, loading and speed", OPT_VERBOSE},
    {"help", NULL, "show this", OPT_HELP},
    {"usage", NULL, "show a short usage", OPT_USAGE},
    {"version", NULL, "show the version", OPT_VERSION},
};

enum { OPTION_ROWS = sizeof option_rows / sizeof *option_rows };

static const char usage_text[] = "Usage: k3run --model DIR [OPTION...] TEXT...\n"
                                 "       k3run --model DIR [OPTION...] --prompt-tokens ID,...\n"
                                 "       k3run --model DIR --tokenize <FILE\n"
                                 "       k3run [--model DIR --output tokens] --render REQUEST.json\n"
                                 "       k3run --model DIR --bench [--json]\n";

static void help(void)
{
    printf(
        "%s\nRun one prompt through a Kimi K3 checkpoint; under mpirun or srun --mpi=pmix, split over the ranks.\n\n",
        usage_text);
    for (int i = 0; i < OPTION_ROWS; i++) {
        char left[64];
        snprintf(left, sizeof left, "--%s%s%s", option_rows[i].name, option_rows[i].argument ? "=" : "",
                 option_rows[i].argument ? option_rows[i].argument : "");
        printf("  %-26s %s\n", left, option_rows[i].help);
    }
}

static int usage_error(const struct k3_error *err)
{
    fprintf(stderr, "k3run: %s\nTry 'k3run --help'.\n", err->text);
    return EXIT_USAGE;
}

static int parse_int(const char *name, const char *text, long least, long most, int *value, struct k3_error *err)
{
    char *end;

    errno = 0;
    long n = strtol(text, &end, 10);
    if (errno || end == text || *end || n < least || n > most)
        return k3_errorf(err, "--%s: '%s' is not a number from %ld to %ld", name, text, least, most);
    *value = (int)n;
    return 0;
}

static int parse_seed(const char *text, uint64_t *value, struct k3_error *err)
{
    char *end;

    errno = 0;
    *value = strtoull(text, &end, 10);
    if (errno || end == text || *end || strchr(text, '-'))
        return k3_errorf(err, "--seed: '%s' is not a number from 0 to %llu", text, ULLONG_MAX);
    return 0;
}

static int parse_real(const char *name, const char *text, float *value, struct k3_error *err)
{
    char *end;

    *value = strtof(text, &end);
    return end == text || *end ? k3_errorf(err, "--%s: '%s' is not a number", name, text) : 0;
}

static int parse_ids(const char *text, struct tokens *ids, struct k3_error *err)
{
    for (const char *at = text;; at++) {
        char *end;
        errno = 0;
        long id = strtol(at, &end, 10);
        if (errno || end == at || (*end && *end != ',') || id < 0 || id > INT32_MAX)
            return k3_errorf(err, "--prompt-tokens: token ids with commas between them, not '%.20s'", at);
        tokens_push(ids, (int32_t)id);
        at = end;
        if (!*at)
            return 0;
    }
}

static int parse_output(const char *text, struct options *o, struct k3_error *err)
{
    o->output_given = 1;
    o->output_tokens = strcmp(text, "tokens") == 0;
    return o->output_tokens || strcmp(text, "text") == 0 ? 0
                                                         : k3_errorf(err, "--output: text or tokens, not '%s'", text);
}

static int parse_effort(const char *text, struct options *o, struct k3_error *err)
{
    static const char *const known[] = {"low", "medium", "high", "max", "none"};

    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(text, known[i]) == 0) {
            o->effort = known[i];
            return 0;
        }
    return k3_errorf(err, "--reasoning-effort: low, medium, high, max or none, not '%s'", text);
}

static int parse_bias(const char *text, struct sampling *s, struct k3_error *err)
{
    int32_t *id = k3_calloc(SAMPLING_BIASES, sizeof *id);
    float *value = k3_calloc(SAMPLING_BIASES, sizeof *value);

    free((void *)s->bias);
    free((void *)s->bias_value);
    s->bias = id;
    s->bias_value = value;
    s->biases = 0;
    for (const char *at = text;; at++) {
        char *colon, *end;
        errno = 0;
        long n = strtol(at, &colon, 10);
        float v = *colon == ':' ? strtof(colon + 1, &end) : 0;
        if (errno || colon == at || *colon != ':' || end == colon + 1 || (*end && *end != ',') || n < 0 ||
            n > INT32_MAX || s->biases == SAMPLING_BIASES)
            return k3_errorf(err, "--logit-bias: at most %d of ID:VALUE with commas between them, not '%.20s'",
                             SAMPLING_BIASES, at);
        id[s->biases] = (int32_t)n;
        value[s->biases++] = v;
        at = end;
        if (!*at)
            return 0;
    }
}

/* One option; those that end the program at once are left to parse_options(). */
static int parse_option(int option, const char *arg, struct options *o, struct k3_error *err)
{
    switch (option) {
    case OPT_MODEL:
        o->model = arg;
        return 0;
    case OPT_NO_VERIFY:
        o->no_verify = 1;
        return 0;
    case OPT_SYSTEM:
        o->system = arg;
        return 0;
    case OPT_EFFORT:
        return parse_effort(arg, o, err);
    case OPT_NO_THINKING:
        o->no_thinking = 1;
        return 0;
    case OPT_SHOW_REASONING:
        o->show_reasoning = 1;
        return 0;
    case OPT_PROMPT_TOKENS:
        tokens_clear(&o->prompt);
        return parse_ids(arg, &o->prompt, err);
    case 'n':
    case OPT_CHOICES:
        return parse_int("choices", arg, 1, MESSAGE_CHOICES, &o->choices, err);
    case OPT_MAX_TOKENS:
        return parse_int("max-tokens", arg, 0, INT_MAX, &o->max_tokens, err);
    case OPT_TEMPERATURE:
        return parse_real("temperature", arg, &o->sampling.temperature, err);
    case OPT_TOP_K:
        return parse_int("top-k", arg, 0, INT_MAX, &o->sampling.top_k, err);
    case OPT_TOP_P:
        return parse_real("top-p", arg, &o->sampling.top_p, err);
    case OPT_MIN_P:
        return parse_real("min-p", arg, &o->sampling.min_p, err);
    case OPT_REPETITION:
        return parse_real("repetition-penalty", arg, &o->sampling.repetition, err);
    case OPT_PRESENCE:
        return parse_real("presence-penalty", arg, &o->sampling.presence, err);
    case OPT_FREQUENCY:
        return parse_real("frequency-penalty", arg, &o->sampling.frequency, err);
    case OPT_BIAS:
        return parse_bias(arg, &o->sampling, err);
    case OPT_LOGPROBS:
        return parse_int("logprobs", arg, 0, SAMPLING_LOGPROBS, &o->sampling.logprobs, err);
    case OPT_SEED:
        o->seed_given = 1;
        return parse_seed(arg, &o->sampling.seed, err);
    case OPT_IGNORE_EOS:
        o->ignore_eos = 1;
        return 0;
    case OPT_OUTPUT:
        return parse_output(arg, o, err);
    case OPT_PREFILL_CHUNK:
        return parse_int("prefill-chunk", arg, 1, 1 << 20, &o->prefill_chunk, err);
    case OPT_DUMP_LOGITS:
        o->dump_logits = arg;
        return 0;
    case OPT_DUMP_HIDDEN:
        o->dump_hidden = arg;
        return 0;
    case OPT_CHECK_LAYERS:
        o->check_layers = arg;
        return 0;
    case OPT_TOKENIZE:
        o->tokenize = 1;
        return 0;
    case OPT_RENDER:
        o->render = arg;
        return 0;
    case OPT_BENCH:
        o->bench = 1;
        return 0;
    case OPT_JSON:
        o->json = 1;
        return 0;
    case OPT_LAYOUT:
        o->layout = arg;
        return 0;
    case OPT_BACKEND:
        o->backend = arg;
        return 0;
    case OPT_THREADS:
        return parse_int("threads", arg, 1, 1024, &o->threads, err);
    case OPT_VERBOSE:
        o->verbose = 1;
        return 0;
    }
    return k3_errorf(err, "unknown option");
}

static char *join_words(char *const *word)
{
    struct buf b = {0};

    for (; *word; word++) {
        if (b.n > 0)
            buf_addc(&b, ' ');
        buf_adds(&b, *word);
    }
    buf_addc(&b, '\0');
    return b.s;
}

static int check_options(const struct options *o, struct k3_error *err)
{
    int prompts = (o->text != NULL) + (o->prompt.n > 0) + o->tokenize + (o->render != NULL) + o->bench;

    if (prompts == 0)
        return k3_errorf(err, "no prompt: give a text, --prompt-tokens, --tokenize, --render or --bench");
    if (prompts > 1)
        return k3_errorf(err, "one at a time: a text, --prompt-tokens, --tokenize, --render or --bench");
    if (o->json && !o->bench)
        return k3_errorf(err, "--json belongs to --bench");
    if (!o->model && !(o->render && !o->output_tokens))
        return k3_errorf(err, "--model DIR is missing: where the checkpoint is");
    return sampling_check(&o->sampling, INT32_MAX, err);
}

/* Fill in o.  Returns -1 to go on, else the exit code to end with now. */
static int parse_options(int argc, char **argv, struct options *o)
{
    struct option list[OPTION_ROWS + 1] = {0};
    struct k3_error err;
    int option;

    for (int i = 0; i < OPTION_ROWS; i++)
        list[i] = (struct option){option_rows[i].name, option_rows[i].argument ? required_argument : no_argument, NULL,
                                  option_rows[i].id};
    while ((option = getopt_long(argc, argv, "hVn:", list, NULL)) != -1) {
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
            printf("k3run %s\n", PACKAGE_VERSION);
            return EXIT_SUCCESS;
        case '?': /* getopt_long has written its sentence */
            fprintf(stderr, "Try 'k3run --help'.\n");
            return EXIT_USAGE;
        }
        if (parse_option(option, optarg, o, &err) < 0)
            return usage_error(&err);
    }
    if (optind < argc)
        o->text = join_words(argv + optind);
    return check_options(o, &err) < 0 ? usage_error(&err) : -1;
}

/* --- text in -------------------------------------------------------------------------------------------------------
 */

/* All of a file, at most `most` bytes; "-" is stdin. */
static int read_all(const char *path, size_t most, struct buf *b, struct k3_error *err)
{
    int is_stdin = strcmp(path, "-") == 0;
    int fd = is_stdin ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC), rc = -1;
    const char *name = is_stdin ? "stdin" : path;
    ssize_t n;

    if (fd < 0)
        return k3_errorf(err, "%s: %s", path, strerror(errno));
    while ((n = read(fd, buf_room(b, 1 << 16), 1 << 16)) > 0) {
        b->n += (size_t)n;
        if (b->n > most) {
            errno = EFBIG;
            k3_errorf(err, "%s: longer than %zu bytes", name, most);
            goto out;
        }
    }
    if (n < 0)
        k3_errorf(err, "%s: %s", name, strerror(errno));
    else
        rc = 0;
out:
    if (!is_stdin)
        close(fd);
    return rc;
}

static void print_ids(const struct tokens *ids)
{
    for (size_t i = 0; i < ids->n; i++)
        printf("%s%d", i > 0 ? "," : "", ids->id[i]);
    putchar('\n');
}

static int tokenize(const struct options *o, struct k3_error *err)
{
    struct vocab *v = vocab_load(o->model, err);
    struct tokens ids = {0};
    struct buf text = {0};
    int rc = -1;

    if (!v || read_all("-", VOCAB_TEXT_MAX, &text, err) < 0 || vocab_encode(v, text.s, text.n, &ids, err) < 0)
        goto out;
    print_ids(&ids);
    rc = 0;
out:
    tokens_free(&ids);
    buf_free(&text);
    vocab_destroy(v);
    return rc;
}

static int render(const struct options *o, struct k3_error *err)
{
    struct chat_prompt *p = NULL;
    struct vocab *v = NULL;
    struct tokens ids = {0};
    struct buf request = {0};
    int rc = -1;

    if (read_all(o->render, CHAT_BYTES_MAX, &request, err) < 0)
        goto out;
    p = chat_render(request.s, request.n, err);
    if (!p) {
        k3_error_prefix(err, "%s: ", o->render);
        goto out;
    }
    if (o->output_tokens) {
        v = vocab_load(o->model, err);
        if (!v || chat_tokens(p, v, &ids, err) < 0)
            goto out;
        print_ids(&ids);
    } else {
        size_t len;
        const char *text = chat_text(p, &len);
        fwrite(text, 1, len, stdout);
    }
    rc = 0;
out:
    chat_destroy(p);
    vocab_destroy(v);
    tokens_free(&ids);
    buf_free(&request);
    return rc;
}

/* The words of the command line as a chat request; NULL when they are not UTF-8. */
static char *chat_request(const struct options *o, const char *effort)
{
    json_t *messages = json_array();
    char *text = NULL;

    if (o->system)
        json_array_append_new(messages, json_pack("{s:s, s:s}", "role", "system", "content", o->system));
    json_array_append_new(messages, json_pack("{s:s, s:s}", "role", "user", "content", o->text));
    json_t *request = json_pack("{s:o, s:b}", "messages", messages, "thinking", !o->no_thinking);
    if (strcmp(effort, "none") != 0)
        json_object_set_new(request, "thinking_effort", json_string(effort));
    if (request && json_array_size(messages) == (o->system ? 2 : 1))
        text = json_dumps(request, 0);
    json_decref(request);
    return text;
}

static int chat(const struct options *o, const struct vocab *v, struct tokens *ids, enum parser_start *start,
                struct k3_error *err)
{
    struct settings settings;
    struct chat_prompt *p = NULL;
    int rc = -1;

    if (settings_load(&settings, NULL, err) < 0)
        return -1;
    char *request = chat_request(o, o->effort ? o->effort : settings.k3submit.reasoning_effort);
    if (!request) {
        k3_errorf(err, "the prompt is not UTF-8 text");
        goto out;
    }
    p = chat_render(request, strlen(request), err);
    if (!p || chat_tokens(p, v, ids, err) < 0)
        goto out;
    *start = chat_start(p);
    rc = 0;
out:
    chat_destroy(p);
    free(request);
    settings_clear(&settings);
    return rc;
}

/* --- text out ------------------------------------------------------------------------------------------------------
 */

/* What rank 0 prints with; the others have none. */
struct printer {
    struct vocab *vocab;
    struct parser *parser; /* NULL: token ids */
    enum parser_start start;
    int show_reasoning;
    int reasoning, answer; /* something was printed there */
};

/* Reasoning goes to stderr, and is ended with a line before the answer begins on stdout. */
static void end_reasoning(struct printer *p)
{
    if (p->reasoning)
        fputc('\n', stderr);
    p->reasoning = 0;
}

static void print_event(void *arg, const struct parser_event *e)
{
    struct printer *p = arg;

    if (e->type == PARSER_THINK) {
        if (p->show_reasoning)
            p->reasoning |= fwrite(e->text, 1, e->len, stderr) > 0;
        return;
    }
    end_reasoning(p);
    if (e->type == PARSER_CALL)
        printf("%s%.*s ", p->answer ? "\n" : "", (int)e->len, e->text);
    else if (e->type == PARSER_RESPONSE || e->type == PARSER_ARGUMENTS)
        fwrite(e->text, 1, e->len, stdout);
    p->answer = 1;
}

static void print_token(struct printer *p, int32_t id)
{
    if (p->parser)
        parser_feed(p->parser, id, print_event, p);
    else
        printf("%s%d", p->answer++ ? "," : "", id);
    fflush(stdout);
}

static void print_end(struct printer *p)
{
    if (p->parser)
        parser_finish(p->parser, print_event, p);
    end_reasoning(p);
    putchar('\n');
}

/* --- the run -------------------------------------------------------------------------------------------------------
 */

struct run {
    const struct options *o;
    struct comm *comm;
    struct k3_config config;
    struct layout layout;
    struct tokens prompt;
    int32_t max_tokens;
    struct printer printer;
    struct single *single;
    float *first_logits;       /* of the prompt's last token, where several answers begin with them */
    struct sampler *sampler;   /* rank 0, as are the next three */
    struct tokens text;        /* prompt and answer */
    struct layercheck *layers; /* --check-layers */
    struct dump *dump;
    struct sampling sampling;
};

static int is_first(const struct run *r)
{
    return comm_rank(r->comm) == 0;
}

static int load_vocab(struct run *r, struct k3_error *err)
{
    r->printer.vocab = vocab_load(r->o->model, err);
    if (!r->printer.vocab)
        return -1;
    if (vocab_size(r->printer.vocab) != r->config.vocab)
        return k3_errorf(err, "%s: tiktoken.model and the special slots make %d tokens, config.json says %d",
                         r->o->model, vocab_size(r->printer.vocab), r->config.vocab);
    return 0;
}

/* Rank 0's part of the start: the prompt's ids, and all that it takes to print the answer. */
static int prepare_prompt(struct run *r, struct k3_error *err)
{
    const struct options *o = r->o;

    r->printer.start = PARSER_IN_RESPONSE;
    r->printer.show_reasoning = o->show_reasoning;
    int prints_text = !o->output_tokens && r->max_tokens > 0;
    if ((o->text || prints_text) && load_vocab(r, err) < 0)
        return -1;
    if (o->text && chat(o, r->printer.vocab, &r->prompt, &r->printer.start, err) < 0)
        return -1;
    if (!o->text)
        tokens_append(&r->prompt, o->prompt.id, o->prompt.n);
    for (size_t i = 0; i < r->prompt.n; i++)
        if (r->prompt.id[i] >= r->config.vocab)
            return k3_errorf(err, "prompt token %zu, id %d, is not in the vocabulary of %d", i, r->prompt.id[i],
                             r->config.vocab);
    if ((int64_t)r->prompt.n + r->max_tokens > r->config.max_position)
        return k3_errorf(err, "a prompt of %zu tokens and --max-tokens %d exceed the context of %d", r->prompt.n,
                         r->max_tokens, r->config.max_position);
    if (o->dump_logits || o->dump_hidden) {
        r->dump = dump_create(&r->config, (int64_t)r->prompt.n, o->dump_logits, o->dump_hidden, err);
        if (!r->dump)
            return -1;
    }
    r->sampler = sampler_create(r->config.vocab);
    r->sampling = o->sampling;
    if (sampling_check(&r->sampling, r->config.vocab, err) < 0)
        return -1;
    if (!o->seed_given && getrandom(&r->sampling.seed, sizeof r->sampling.seed, 0) < 0)
        return k3_errorf(err, "no random seed: %s", strerror(errno));
    return 0;
}

static int share_prompt(struct run *r, struct k3_error *err)
{
    uint64_t n = r->prompt.n;

    if (comm_broadcast(r->comm, &n, sizeof n, 0, err) < 0)
        return -1;
    for (size_t i = r->prompt.n; i < n; i++)
        tokens_push(&r->prompt, 0);
    return comm_broadcast(r->comm, r->prompt.id, n * sizeof *r->prompt.id, 0, err);
}

static int feed_prompt(struct run *r, struct single *s, const float **logits, struct k3_error *err)
{
    int64_t n = (int64_t)r->prompt.n, chunk;

    for (int64_t at = 0; at < n; at += chunk) {
        chunk = n - at < r->o->prefill_chunk ? n - at : r->o->prefill_chunk;
        enum single_outputs outputs = r->o->dump_logits ? SINGLE_ALL : at + chunk == n ? SINGLE_LAST : SINGLE_NONE;
        if (single_feed(s, r->prompt.id + at, (int32_t)chunk, outputs, logits, err) < 0)
            return -1;
        if (r->dump && s == r->single)
            dump_rows(r->dump, *logits, (int32_t)chunk);
        if (r->layers)
            layercheck_rows(r->layers, chunk);
        if (outputs == SINGLE_ALL && *logits)
            *logits += (chunk - 1) * r->config.vocab;
    }
    return 0;
}

static int default_threads(const struct comm *comm)
{
    cpu_set_t set;

    if (comm_size(comm) > 1 || sched_getaffinity(0, sizeof set, &set) < 0)
        return 1;
    return CPU_COUNT(&set);
}

static struct single *load_on(struct run *r, const char *backend, struct k3_error *err)
{
    const struct options *o = r->o;
    int64_t prompt = (int64_t)r->prompt.n;
    struct single_options so = {
        .model = o->model,
        .backend = backend,
        .threads = o->threads > 0 ? o->threads : default_threads(r->comm),
        .rows = prompt < o->prefill_chunk ? (int32_t)prompt : o->prefill_chunk,
        .tokens = prompt + r->max_tokens,
        .prompt = (int32_t)prompt,
        .forks = o->choices > 1,
        .unverified = o->no_verify,
        .all_outputs = o->dump_logits != NULL,
    };

    return single_create(&so, &r->config, &r->layout, r->comm, err);
}

/* What the other backend makes of the prompt, layer by layer. */
static int keep_layers(struct run *r, struct k3_error *err)
{
    struct single *other = load_on(r, r->o->check_layers, err);
    const float *logits;
    int rc = -1;

    if (!other)
        return -1;
    r->layers = layercheck_create(&r->config, (int64_t)r->prompt.n);
    forward_trace(single_forward(other), layercheck_keep, r->layers);
    rc = feed_prompt(r, other, &logits, err);
    layercheck_rows(r->layers, 0);
    single_destroy(other);
    return rc;
}

static int load(struct run *r, struct k3_error *err)
{
    if (r->o->check_layers && keep_layers(r, err) < 0)
        return -1;
    r->single = load_on(r, r->o->backend, err);
    if (r->single && r->layers)
        forward_trace(single_forward(r->single), layercheck_compare, r->layers);
    else if (r->single && r->dump && r->o->dump_hidden)
        forward_trace(single_forward(r->single), dump_hidden, r->dump);
    return r->single ? 0 : -1;
}

/* Find the layout, and divide the ranks by it. */
static int take_layout(const struct options *o, const struct k3_config *c, struct comm *comm, struct layout *l,
                       struct k3_error *err)
{
    if (layout_of_job(o->layout, comm_size(comm), c, l, err) < 0)
        return k3_error_prefix(err, "--layout: ");
    if (l->pp > 1 && (o->dump_hidden || o->check_layers))
        return k3_errorf(err, "--dump-hidden and --check-layers look at all layers on one rank: not with pp=%d", l->pp);
    return comm_divide(comm, l->pp, err);
}

/* Everything up to the first step.  What fails for one rank fails for all, and all leave together. */
static int prepare(struct run *r, struct k3_error *err)
{
    double start = clock_monotonic();

    if (comm_agree(r->comm, k3_config_load(r->o->model, &r->config, err), err) < 0 ||
        comm_agree(r->comm, take_layout(r->o, &r->config, r->comm, &r->layout, err), err) < 0 ||
        comm_agree(r->comm, is_first(r) ? prepare_prompt(r, err) : 0, err) < 0 || share_prompt(r, err) < 0 ||
        comm_agree(r->comm, load(r, err), err) < 0)
        return -1;
    if (is_first(r))
        log_info("loaded for %d ranks in %.1f s", comm_size(r->comm), clock_monotonic() - start);
    return 0;
}

static void print_layers(const struct run *r)
{
    for (int l = 0; l < r->config.layers; l++)
        printf("layer %d %s %.3g\n", l, r->config.attention[l] == K3_KDA ? "KDA" : "MLA",
               layercheck_difference(r->layers, l));
}

/* Run the prompt; logits are then those of its last token. */
static int prefill(struct run *r, const float **logits, struct k3_error *err)
{
    int64_t n = (int64_t)r->prompt.n;
    double start = clock_monotonic();

    if (feed_prompt(r, r->single, logits, err) < 0)
        return -1;
    if (r->layers && is_first(r))
        print_layers(r);
    if (is_first(r))
        log_info("prompt: %lld tokens, %.1f a second", (long long)n, (double)n / (clock_monotonic() - start));
    forward_trace(single_forward(r->single), NULL, NULL);
    return r->dump ? dump_write(r->dump, err) : 0;
}

/* Both ids end a message: config.json names one, tokenizer_config.json the other (SPEC 7.1). */
static int is_stop(const struct run *r, int32_t id)
{
    int32_t base = r->config.vocab - VOCAB_SLOTS;

    return id == base + VOCAB_END_OF_MSG || id == base + VOCAB_EOS || id == r->config.eos_id;
}

static void print_logprobs(const struct run *r, const float *logits, int32_t token)
{
    struct logprob list[1 + SAMPLING_LOGPROBS];
    int n = r->sampling.logprobs;

    sampler_logprobs(r->sampler, logits, token, n, list);
    for (int i = 0; i <= n; i++)
        fprintf(stderr, "%s%d %.6f", i > 0 ? ", " : "", list[i].id, list[i].value);
    fputc('\n', stderr);
}

/* Rank 0 chooses the next token, everyone learns it. */
static int choose(struct run *r, const float *logits, int32_t *token, struct k3_error *err)
{
    struct choice {
        int32_t token;
        struct k3_error err;
    } c;

    if (is_first(r)) {
        struct sampler_text text = {r->text.id, (int32_t)r->prompt.n, (int32_t)r->text.n};
        c.token = sampler_pick(r->sampler, &r->sampling, logits, &text, &c.err);
        tokens_push(&r->text, c.token);
        if (c.token >= 0 && r->sampling.logprobs > 0)
            print_logprobs(r, logits, c.token);
    }
    if (comm_broadcast(r->comm, &c, sizeof c, 0, err) < 0)
        return -1;
    *token = c.token;
    return c.token < 0 ? k3_errorf(err, "%s", c.err.text) : 0;
}

/* Rank 0's part of another answer: nothing of the one before is left. */
static void begin_answer(struct run *r, int choice)
{
    parser_destroy(r->printer.parser);
    r->printer.parser = r->o->output_tokens ? NULL : parser_create(r->printer.vocab, r->printer.start);
    r->printer.answer = 0;
    tokens_clear(&r->text);
    tokens_append(&r->text, r->prompt.id, r->prompt.n);
    if (r->o->choices > 1)
        fprintf(stderr, "--- answer %d of %d ---\n", choice + 1, r->o->choices);
    r->sampling.seed += choice > 0;
}

static int generate(struct run *r, const float *logits, struct k3_error *err)
{
    double start = clock_monotonic();
    int n = 0;

    for (int32_t token; n < r->max_tokens; n++) {
        if (n > 0 && single_feed(r->single, &token, 1, SINGLE_LAST, &logits, err) < 0)
            return -1;
        if (choose(r, logits, &token, err) < 0)
            return -1;
        if (is_stop(r, token) && !r->o->ignore_eos)
            break;
        if (is_first(r))
            print_token(&r->printer, token);
    }
    if (is_first(r)) {
        print_end(&r->printer);
        log_info("answer: %d tokens, %.1f a second", n, (double)n / (clock_monotonic() - start));
    }
    return 0;
}

/* All answers, each from the state that the prompt has left. */
static int answer(struct run *r, const float *logits, struct k3_error *err)
{
    size_t bytes = (size_t)r->config.vocab * sizeof *logits;

    if (r->o->choices > 1 && is_first(r))
        r->first_logits = memcpy(k3_calloc(1, bytes), logits, bytes);
    for (int i = 0; i < r->o->choices; i++) {
        if (r->o->choices > 1)
            single_fork(r->single);
        if (is_first(r))
            begin_answer(r, i);
        if (generate(r, r->first_logits ? r->first_logits : logits, err) < 0)
            return -1;
    }
    return 0;
}

static void release(struct run *r)
{
    free(r->first_logits);
    single_destroy(r->single);
    dump_destroy(r->dump);
    layercheck_destroy(r->layers);
    sampler_destroy(r->sampler);
    parser_destroy(r->printer.parser);
    vocab_destroy(r->printer.vocab);
    tokens_free(&r->prompt);
    tokens_free(&r->text);
}

/* The first rank says why while all are still here: one that leaves in failure takes the others with it. */
static void say_for_all(const struct comm *comm, struct k3_error *err)
{
    if (comm_rank(comm) == 0)
        fprintf(stderr, "k3run: %s\n", err->text);
    err->text[0] = '\0';
}

static int bench(const struct options *o, struct k3_error *err)
{
    struct comm *comm = comm_create(err);
    struct k3_config config;
    struct layout layout;
    int rc = -1;

    if (!comm)
        return -1;
    if (o->prefill_chunk % K3_PREFILL_BLOCK != 0) {
        k3_errorf(err, "--bench: --prefill-chunk (%d) must be a multiple of %d", o->prefill_chunk, K3_PREFILL_BLOCK);
        say_for_all(comm, err);
        comm_destroy(comm);
        return -1;
    }
    struct bench_options bo = {.model = o->model,
                               .backend = o->backend,
                               .threads = o->threads > 0 ? o->threads : default_threads(comm),
                               .chunk = o->prefill_chunk,
                               .json = o->json};
    if (comm_agree(comm, k3_config_load(o->model, &config, err), err) < 0 ||
        comm_agree(comm, take_layout(o, &config, comm, &layout, err), err) < 0 ||
        bench_run(&bo, &config, &layout, comm, stdout, err) < 0)
        say_for_all(comm, err);
    else
        rc = 0;
    comm_destroy(comm);
    return rc;
}

static int run_prompt(const struct options *o, struct k3_error *err)
{
    struct run r = {.o = o, .comm = comm_create(err)};
    const float *logits;
    int rc = -1;

    if (!r.comm)
        return -1;
    r.max_tokens = o->max_tokens >= 0 ? o->max_tokens : o->dump_logits || o->dump_hidden || o->check_layers ? 0 : 512;
    if (prepare(&r, err) < 0) {
        say_for_all(r.comm, err);
        goto out;
    }
    if (prefill(&r, &logits, err) < 0 || (r.max_tokens > 0 && answer(&r, logits, err) < 0)) {
        fflush(stdout);
        if (comm_size(r.comm) > 1) {
            fprintf(stderr, "k3run: rank %d: %s\n", comm_rank(r.comm), err->text);
            comm_abort(r.comm, EXIT_FAILED);
        }
        goto out;
    }
    rc = 0;
out:
    release(&r);
    comm_destroy(r.comm);
    return rc;
}

int main(int argc, char **argv)
{
    struct options o = {
        .backend = "cpu",
        .layout = "",
        .choices = 1,
        .max_tokens = -1,
        .prefill_chunk = 256,
        .sampling = {.temperature = 1.0f, .top_p = 0.95f},
    };
    struct k3_error err = {""};

    argv = argv_hide(argc, argv); /* the prompt may stand there */
    int code = parse_options(argc, argv, &o);
    if (code < 0) {
        k3_log_init("k3run", o.verbose ? LOG_INFO : LOG_WARNING);
        int rc = o.tokenize ? tokenize(&o, &err)
                 : o.render ? render(&o, &err)
                 : o.bench  ? bench(&o, &err)
                            : run_prompt(&o, &err);
        if (rc == 0 && (fflush(stdout) != 0 || ferror(stdout)))
            rc = k3_errorf(&err, "cannot write the output: %s", strerror(errno));
        if (rc < 0 && err.text[0])
            fprintf(stderr, "k3run: %s\n", err.text);
        code = rc < 0 ? EXIT_FAILED : EXIT_SUCCESS;
    }
    tokens_free(&o.prompt);
    free((void *)o.sampling.bias);
    free((void *)o.sampling.bias_value);
    free(o.text);
    free(argv);
    return code;
}
