#include "client/output.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <jansson.h>

#include "client/words.h"
#include "common/alloc.h"
#include "text/buf.h"

enum { CALLS = 1024 }; /* tool calls of one answer, at most */

struct call {
    char *name;
    struct buf arguments;
};

struct logprob {
    uint32_t id;
    float value;
};

/* One answer. */
struct choice {
    uint64_t next;
    bool inside;                 /* next may lie inside a delta */
    struct buf content, thought; /* kept until the end, unless they are written as they come */
    struct call *calls;
    size_t call_count;
    struct message_u32s ids; /* the same */
    size_t id_room;
    struct logprob *logprobs; /* the same: for each token its own and the `likeliest` ones' */
    size_t logprob_count, logprob_room, likeliest;
};

struct output {
    enum output_form form;
    bool show_reasoning;
    bool out_is_terminal, err_is_terminal;
    bool shown;     /* on a terminal */
    bool answered;  /* text of the answer was written */
    bool midline;   /* stdout's last byte is not a newline */
    bool reasoning; /* stderr's last text is reasoning, without its newline */
    bool headed;    /* the first choice has its line */
    enum delta_channel channel;
    uint64_t from; /* token from which it is wanted ... */
    bool tail;     /* ... or wherever the first delta begins */
    struct choice *choice;
    uint32_t choices;
    uint64_t wanted[MESSAGE_CHOICES];
};

int output_form_of(const char *name, bool json, enum output_form *form, struct k3_error *err)
{
    bool tokens = name && strcmp(name, "tokens") == 0;

    if (name && !tokens && strcmp(name, "text") != 0)
        return k3_errorf(err, "--output: text or tokens");
    *form = json ? OUTPUT_JSON : tokens ? OUTPUT_TOKENS : OUTPUT_TEXT;
    return 0;
}

struct output *output_create(enum output_form form, bool show_reasoning)
{
    struct output *o = k3_zalloc(sizeof *o);

    o->form = form;
    o->show_reasoning = show_reasoning;
    o->channel = CHANNELS;
    o->out_is_terminal = isatty(STDOUT_FILENO);
    o->err_is_terminal = isatty(STDERR_FILENO);
    output_expect(o, 1);
    return o;
}

static void free_choice(struct choice *c)
{
    for (size_t i = 0; i < c->call_count; i++) {
        free(c->calls[i].name);
        buf_free(&c->calls[i].arguments);
    }
    free(c->calls);
    buf_free(&c->content);
    buf_free(&c->thought);
    free(c->ids.v);
    free(c->logprobs);
}

void output_destroy(struct output *o)
{
    int saved = errno;

    if (!o)
        return;
    for (uint32_t i = 0; i < o->choices; i++)
        free_choice(&o->choice[i]);
    free(o->choice);
    free(o);
    errno = saved;
}

void output_expect(struct output *o, uint32_t choices)
{
    if (choices <= o->choices)
        return;
    o->choice = k3_reallocarray(o->choice, choices, sizeof *o->choice);
    for (; o->choices < choices; o->choices++)
        o->choice[o->choices] = (struct choice){.next = o->from, .inside = o->from > 0};
}

void output_from(struct output *o, uint64_t token)
{
    o->from = token;
    for (uint32_t i = 0; i < o->choices; i++) {
        o->choice[i].next = token;
        o->choice[i].inside = true;
    }
}

void output_tail(struct output *o, uint64_t token)
{
    output_from(o, token);
    o->tail = true;
}

uint64_t output_next(const struct output *o)
{
    uint64_t next = 0;

    for (uint32_t i = 0; i < o->choices; i++)
        next += o->choice[i].next;
    return next;
}

struct message_attach output_attach(struct output *o)
{
    for (uint32_t i = 0; i < o->choices; i++)
        o->wanted[i] = o->choice[i].next;
    return (struct message_attach){.off = o->wanted[0], .offs = {o->wanted, o->choices > 1 ? o->choices : 0}};
}

enum delta_channel output_channel(const struct output *o)
{
    return o->channel;
}

bool output_answered(const struct output *o)
{
    return o->answered;
}

bool output_on_terminal(const struct output *o)
{
    return o->shown;
}

bool output_shows(const struct output *o, const struct message_delta *d)
{
    bool thought = o->show_reasoning && o->err_is_terminal, text = o->form == OUTPUT_TEXT && o->out_is_terminal;

    if (d->c > 0)
        return false;
    for (size_t i = 0; i < d->parts.n; i++)
        if (d->parts.v[i].txt.len > 0 &&
            ((d->parts.v[i].ch == CHANNEL_THINK && thought) || (d->parts.v[i].ch == CHANNEL_RESPONSE && text)))
            return true;
    return o->form == OUTPUT_TOKENS && o->out_is_terminal;
}

static int write_all(int fd, const char *s, size_t len, struct k3_error *err)
{
    while (len > 0) {
        ssize_t n = write(fd, s, len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return k3_errorf(err, "%s: %s", fd == STDOUT_FILENO ? "standard output" : "standard error",
                             strerror(errno));
        s += n;
        len -= (size_t)n;
    }
    return 0;
}

/* A terminal obeys control characters; C1 ones are C2 80 to C2 9F in UTF-8. */
static void add_harmless(struct buf *to, const char *s, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)s[i], after = i + 1 < len ? (unsigned char)s[i + 1] : 0;
        if ((c < ' ' && c != '\n' && c != '\t') || c == 0x7f) {
            buf_addc(to, '?');
        } else if (c == 0xc2 && after >= 0x80 && after < 0xa0) {
            buf_addc(to, '?');
            i++;
        } else {
            buf_addc(to, (char)c);
        }
    }
}

static int write_text(int fd, bool terminal, const char *s, size_t len, struct k3_error *err)
{
    struct buf clean = {NULL, 0, 0};
    int rc;

    if (!terminal)
        return write_all(fd, s, len, err);
    add_harmless(&clean, s, len);
    rc = write_all(fd, clean.s, clean.n, err);
    buf_free(&clean);
    return rc;
}

static int write_reasoning(struct output *o, const char *s, size_t len, struct k3_error *err)
{
    o->reasoning = true;
    o->shown |= o->err_is_terminal;
    return write_text(STDERR_FILENO, o->err_is_terminal, s, len, err);
}

/* Close the reasoning with a blank line where both are read on one screen. */
static int end_reasoning(struct output *o, struct k3_error *err)
{
    if (!o->reasoning)
        return 0;
    o->reasoning = false;
    return write_all(STDERR_FILENO, "\n\n", o->out_is_terminal && o->err_is_terminal ? 2 : 1, err);
}

static int write_content(struct output *o, const char *s, size_t len, struct k3_error *err)
{
    if (end_reasoning(o, err) < 0 || write_text(STDOUT_FILENO, o->out_is_terminal, s, len, err) < 0)
        return -1;
    o->answered = true;
    o->midline = s[len - 1] != '\n';
    o->shown |= o->out_is_terminal;
    return 0;
}

static int write_ids(struct output *o, const struct message_u32s *ids, struct k3_error *err)
{
    struct buf text = {NULL, 0, 0};
    char number[16];

    for (size_t i = 0; i < ids->n; i++) {
        snprintf(number, sizeof number, "%s%u", o->midline ? "," : "", (unsigned int)ids->v[i]);
        buf_adds(&text, number);
        o->midline = true;
    }
    int rc = write_all(STDOUT_FILENO, text.s, text.n, err);
    buf_free(&text);
    o->shown |= o->out_is_terminal && o->midline;
    return rc;
}

static void keep_ids(struct choice *c, const struct message_u32s *ids)
{
    while (c->ids.n + ids->n > c->id_room) {
        c->id_room = c->id_room ? 2 * c->id_room : 1024;
        c->ids.v = k3_reallocarray(c->ids.v, c->id_room, sizeof *c->ids.v);
    }
    for (size_t i = 0; i < ids->n; i++)
        c->ids.v[c->ids.n++] = ids->v[i];
}

static void keep_logprobs(struct choice *c, const struct message_delta *d)
{
    if (d->lpi.n == 0)
        return;
    c->likeliest = d->lpi.n / d->ids.n - 1;
    while (c->logprob_count + d->lpi.n > c->logprob_room) {
        c->logprob_room = c->logprob_room ? 2 * c->logprob_room : 1024;
        c->logprobs = k3_reallocarray(c->logprobs, c->logprob_room, sizeof *c->logprobs);
    }
    for (size_t i = 0; i < d->lpi.n; i++)
        c->logprobs[c->logprob_count++] = (struct logprob){d->lpi.v[i], d->lpv.v[i]};
}

static void keep_call(struct choice *c, const struct message_part *p)
{
    if (p->ti >= CALLS)
        return;
    if (p->ti >= c->call_count) {
        c->calls = k3_reallocarray(c->calls, p->ti + 1, sizeof *c->calls);
        memset(c->calls + c->call_count, 0, (p->ti + 1 - c->call_count) * sizeof *c->calls);
        c->call_count = p->ti + 1;
    }
    struct call *call = &c->calls[p->ti];
    if (p->tn && !call->name)
        call->name = k3_strdup(p->tn);
    buf_add(&call->arguments, p->txt.data ? p->txt.data : "", p->txt.len);
}

static void keep(struct choice *c, const struct message_part *p)
{
    if (p->ch == CHANNEL_TOOL)
        keep_call(c, p);
    else if (p->txt.len > 0)
        buf_add(p->ch == CHANNEL_THINK ? &c->thought : &c->content, p->txt.data, p->txt.len);
}

static int write_part(struct output *o, enum delta_channel channel, const char *text, size_t len, struct k3_error *err)
{
    if (len > 0 && channel == CHANNEL_THINK && o->show_reasoning)
        return write_reasoning(o, text, len, err);
    if (len > 0 && channel == CHANNEL_RESPONSE && o->form == OUTPUT_TEXT)
        return write_content(o, text, len, err);
    return 0;
}

/* What is to be written at the end, or now. */
static int take_part(struct output *o, struct choice *c, const struct message_part *p, struct k3_error *err)
{
    bool waits = c != o->choice;

    if (p->txt.len > 0)
        o->channel = p->ch;
    if (o->form == OUTPUT_JSON || waits)
        keep(c, p);
    return waits ? 0 : write_part(o, p->ch, p->txt.data, p->txt.len, err);
}

/* The line before one of several choices. */
static int write_heading(struct output *o, uint32_t choice, struct k3_error *err)
{
    char line[64];
    int len = snprintf(line, sizeof line, "--- answer %u of %u ---\n", choice + 1, o->choices);

    if (end_reasoning(o, err) < 0 || write_all(STDOUT_FILENO, "\n", o->midline ? 1 : 0, err) < 0)
        return -1;
    o->midline = false;
    return write_all(STDERR_FILENO, line, (size_t)len, err);
}

static int take_ids(struct output *o, struct choice *c, const struct message_delta *d, struct k3_error *err)
{
    if (o->form == OUTPUT_JSON || (o->form == OUTPUT_TOKENS && c != o->choice))
        keep_ids(c, &d->ids);
    else if (o->form == OUTPUT_TOKENS)
        return write_ids(o, &d->ids, err);
    if (o->form == OUTPUT_JSON)
        keep_logprobs(c, d);
    return 0;
}

static void begin_inside(struct output *o, struct choice *c, const struct message_delta *d)
{
    if (!c->inside)
        return;
    c->inside = false;
    if (o->tail || (d->off < c->next && c->next - d->off < d->ids.n))
        c->next = d->off;
}

int output_delta(struct output *o, const struct message_delta *d, struct k3_error *err)
{
    output_expect(o, d->c + 1);

    struct choice *c = &o->choice[d->c];
    begin_inside(o, c, d);
    if (d->off != c->next) /* deltas are never cut, so one that begins earlier brings nothing new */
        return d->off < c->next;
    c->next += d->ids.n;
    if (o->choices > 1 && !o->headed && o->form != OUTPUT_JSON) {
        o->headed = true;
        if (write_heading(o, 0, err) < 0)
            return -1;
    }
    if (take_ids(o, c, d, err) < 0)
        return -1;
    for (size_t i = 0; i < d->parts.n; i++)
        if (take_part(o, c, &d->parts.v[i], err) < 0)
            return -1;
    return 1;
}

static json_t *calls_json(const struct choice *choice)
{
    json_t *list = json_array();
    char id[32];

    for (size_t i = 0; i < choice->call_count; i++) {
        const struct call *c = &choice->calls[i];
        snprintf(id, sizeof id, "call_%zu", i);
        json_array_append_new(list, json_pack("{s:s, s:s, s:{s:s, s:s%}}", "id", id, "type", "function", "function",
                                              "name", c->name ? c->name : "", "arguments",
                                              c->arguments.n ? c->arguments.s : "", c->arguments.n));
    }
    return list;
}

static json_t *ids_json(const struct choice *choice)
{
    json_t *list = json_array();

    for (size_t i = 0; i < choice->ids.n; i++)
        json_array_append_new(list, json_integer(choice->ids.v[i]));
    return list;
}

static json_t *logprob_json(const struct logprob *l)
{
    return json_pack("{s:I, s:f}", "token_id", (json_int_t)l->id, "logprob", (double)l->value);
}

/* An object a token. */
static json_t *logprobs_json(const struct choice *c)
{
    json_t *list = json_array();

    for (size_t i = 0; i + c->likeliest < c->logprob_count; i += 1 + c->likeliest) {
        json_t *token = logprob_json(&c->logprobs[i]), *top = json_array();
        for (size_t k = 1; k <= c->likeliest; k++)
            json_array_append_new(top, logprob_json(&c->logprobs[i + k]));
        json_object_set_new(token, "top_logprobs", top);
        json_array_append_new(list, token);
    }
    return list;
}

static void add_text(json_t *to, const struct choice *c)
{
    json_object_set_new(to, "content", json_stringn(c->content.n ? c->content.s : "", c->content.n));
    json_object_set_new(to, "reasoning_content", json_stringn(c->thought.n ? c->thought.s : "", c->thought.n));
    json_object_set_new(to, "tool_calls", calls_json(c));
}

static void add_reason(json_t *to, const struct choice *c, enum done_why why)
{
    bool calls = why == DONE_STOP && c->call_count > 0;

    json_object_set_new(to, "finish_reason", json_string(calls ? "tool_calls" : done_why_name(why)));
}

static void add_tokens(json_t *to, const struct choice *c)
{
    json_object_set_new(to, "token_ids", ids_json(c));
    if (c->logprob_count > 0)
        json_object_set_new(to, "logprobs", logprobs_json(c));
}

static json_t *choices_json(const struct output *o, const struct message_done *done)
{
    json_t *list = json_array();

    for (uint32_t i = 0; i < o->choices; i++) {
        json_t *choice = json_pack("{s:I}", "index", (json_int_t)i);
        add_text(choice, &o->choice[i]);
        add_reason(choice, &o->choice[i], i < done->cs.n ? done->cs.v[i].why : done->why);
        add_tokens(choice, &o->choice[i]);
        json_array_append_new(list, choice);
    }
    return list;
}

/* Of several choices what belongs to each stands in an array of them. */
static json_t *output_json(const struct output *o, const struct k3_id *id, const struct message_done *done)
{
    char digits[K3_ID_DIGITS + 1];
    json_t *root = json_object();

    json_object_set_new(root, "id", json_string(k3_id_format(id, digits)));
    if (o->choices > 1) {
        json_object_set_new(root, "choices", choices_json(o, done));
    } else {
        add_text(root, o->choice);
        add_reason(root, o->choice, done->why);
    }
    json_object_set_new(root, "message", words_json(done->msg));
    json_object_set_new(root, "usage",
                        json_pack("{s:I, s:I, s:I, s:{s:I}}", "prompt_tokens", (json_int_t)done->ptok,
                                  "completion_tokens", (json_int_t)done->ctok, "total_tokens",
                                  (json_int_t)done->ptok + done->ctok, "prompt_tokens_details", "cached_tokens",
                                  (json_int_t)done->cached));
    json_object_set_new(
        root, "seconds",
        json_pack("{s:f, s:f, s:f}", "waiting", done->wait_s, "prompt", done->prompt_s, "generation", done->gen_s));
    if (o->choices == 1)
        add_tokens(root, o->choice);
    return root;
}

static int write_json(const struct output *o, const struct k3_id *id, const struct message_done *done,
                      struct k3_error *err)
{
    json_t *root = output_json(o, id, done);
    char *text = json_dumps(root, JSON_COMPACT | JSON_REAL_PRECISION(15));
    int rc = text ? write_all(STDOUT_FILENO, text, strlen(text), err) : k3_errorf(err, "the answer is not UTF-8 text");

    if (rc == 0)
        rc = write_all(STDOUT_FILENO, "\n", 1, err);
    free(text);
    json_decref(root);
    return rc;
}

/* One of the choices that have waited for their turn. */
static int write_choice(struct output *o, uint32_t i, struct k3_error *err)
{
    const struct choice *c = &o->choice[i];

    if (write_heading(o, i, err) < 0)
        return -1;
    if (o->form == OUTPUT_TOKENS && write_ids(o, &c->ids, err) < 0)
        return -1;
    if (write_part(o, CHANNEL_THINK, c->thought.s, c->thought.n, err) < 0)
        return -1;
    return write_part(o, CHANNEL_RESPONSE, c->content.s, c->content.n, err);
}

int output_end(struct output *o, const struct k3_id *id, const struct message_done *done, struct k3_error *err)
{
    if (o->form == OUTPUT_JSON)
        return end_reasoning(o, err) < 0 ? -1 : write_json(o, id, done, err);
    for (uint32_t i = 1; i < o->choices; i++)
        if (write_choice(o, i, err) < 0)
            return -1;
    if (end_reasoning(o, err) < 0)
        return -1;
    return write_all(STDOUT_FILENO, "\n", o->midline ? 1 : 0, err);
}
