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

struct output {
    enum output_form form;
    bool show_reasoning;
    bool out_is_terminal, err_is_terminal;
    bool shown;     /* on a terminal */
    bool answered;  /* text of the answer was written */
    bool midline;   /* stdout's last byte is not a newline */
    bool reasoning; /* stderr's last text is reasoning, without its newline */
    enum delta_channel channel;
    uint64_t next;
    bool inside;                 /* next may lie inside a delta */
    struct buf content, thought; /* kept for the JSON form only */
    struct call *calls;
    size_t call_count;
    struct message_u32s ids; /* the same */
    size_t id_room;
    struct logprob *logprobs; /* the same: for each token its own and the `likeliest` ones' */
    size_t logprob_count, logprob_room, likeliest;
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
    return o;
}

void output_destroy(struct output *o)
{
    int saved = errno;

    if (!o)
        return;
    for (size_t i = 0; i < o->call_count; i++) {
        free(o->calls[i].name);
        buf_free(&o->calls[i].arguments);
    }
    free(o->calls);
    buf_free(&o->content);
    buf_free(&o->thought);
    free(o->ids.v);
    free(o->logprobs);
    free(o);
    errno = saved;
}

void output_from(struct output *o, uint64_t token)
{
    o->next = token;
    o->inside = true;
}

uint64_t output_next(const struct output *o)
{
    return o->next;
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

static void keep_ids(struct output *o, const struct message_u32s *ids)
{
    while (o->ids.n + ids->n > o->id_room) {
        o->id_room = o->id_room ? 2 * o->id_room : 1024;
        o->ids.v = k3_reallocarray(o->ids.v, o->id_room, sizeof *o->ids.v);
    }
    for (size_t i = 0; i < ids->n; i++)
        o->ids.v[o->ids.n++] = ids->v[i];
}

static void keep_logprobs(struct output *o, const struct message_delta *d)
{
    if (d->lpi.n == 0)
        return;
    o->likeliest = d->lpi.n / d->ids.n - 1;
    while (o->logprob_count + d->lpi.n > o->logprob_room) {
        o->logprob_room = o->logprob_room ? 2 * o->logprob_room : 1024;
        o->logprobs = k3_reallocarray(o->logprobs, o->logprob_room, sizeof *o->logprobs);
    }
    for (size_t i = 0; i < d->lpi.n; i++)
        o->logprobs[o->logprob_count++] = (struct logprob){d->lpi.v[i], d->lpv.v[i]};
}

static void keep_call(struct output *o, const struct message_part *p)
{
    if (p->ti >= CALLS)
        return;
    if (p->ti >= o->call_count) {
        o->calls = k3_reallocarray(o->calls, p->ti + 1, sizeof *o->calls);
        memset(o->calls + o->call_count, 0, (p->ti + 1 - o->call_count) * sizeof *o->calls);
        o->call_count = p->ti + 1;
    }
    struct call *call = &o->calls[p->ti];
    if (p->tn && !call->name)
        call->name = k3_strdup(p->tn);
    buf_add(&call->arguments, p->txt.data ? p->txt.data : "", p->txt.len);
}

static void keep(struct output *o, const struct message_part *p)
{
    if (p->ch == CHANNEL_TOOL)
        keep_call(o, p);
    else if (p->txt.len > 0)
        buf_add(p->ch == CHANNEL_THINK ? &o->thought : &o->content, p->txt.data, p->txt.len);
}

static int take_part(struct output *o, const struct message_part *p, struct k3_error *err)
{
    if (o->form == OUTPUT_JSON)
        keep(o, p);
    if (p->txt.len == 0)
        return 0;
    o->channel = p->ch;
    if (p->ch == CHANNEL_THINK && o->show_reasoning)
        return write_reasoning(o, p->txt.data, p->txt.len, err);
    if (p->ch == CHANNEL_RESPONSE && o->form == OUTPUT_TEXT)
        return write_content(o, p->txt.data, p->txt.len, err);
    return 0;
}

int output_delta(struct output *o, const struct message_delta *d, struct k3_error *err)
{
    if (o->inside && d->off < o->next && o->next - d->off < d->ids.n)
        o->next = d->off;
    o->inside = false;
    if (d->off != o->next) /* deltas are never cut, so one that begins earlier brings nothing new */
        return d->off < o->next;
    o->next += d->ids.n;
    if (o->form == OUTPUT_JSON) {
        keep_ids(o, &d->ids);
        keep_logprobs(o, d);
    } else if (o->form == OUTPUT_TOKENS && write_ids(o, &d->ids, err) < 0) {
        return -1;
    }
    for (size_t i = 0; i < d->parts.n; i++)
        if (take_part(o, &d->parts.v[i], err) < 0)
            return -1;
    return 1;
}

static json_t *calls_json(const struct output *o)
{
    json_t *list = json_array();
    char id[32];

    for (size_t i = 0; i < o->call_count; i++) {
        const struct call *c = &o->calls[i];
        snprintf(id, sizeof id, "call_%zu", i);
        json_array_append_new(list, json_pack("{s:s, s:s, s:{s:s, s:s%}}", "id", id, "type", "function", "function",
                                              "name", c->name ? c->name : "", "arguments",
                                              c->arguments.n ? c->arguments.s : "", c->arguments.n));
    }
    return list;
}

static json_t *ids_json(const struct output *o)
{
    json_t *list = json_array();

    for (size_t i = 0; i < o->ids.n; i++)
        json_array_append_new(list, json_integer(o->ids.v[i]));
    return list;
}

static json_t *logprob_json(const struct logprob *l)
{
    return json_pack("{s:I, s:f}", "token_id", (json_int_t)l->id, "logprob", (double)l->value);
}

/* An object a token. */
static json_t *logprobs_json(const struct output *o)
{
    json_t *list = json_array();

    for (size_t i = 0; i + o->likeliest < o->logprob_count; i += 1 + o->likeliest) {
        json_t *token = logprob_json(&o->logprobs[i]), *top = json_array();
        for (size_t k = 1; k <= o->likeliest; k++)
            json_array_append_new(top, logprob_json(&o->logprobs[i + k]));
        json_object_set_new(token, "top_logprobs", top);
        json_array_append_new(list, token);
    }
    return list;
}

static json_t *output_json(const struct output *o, const struct k3_id *id, const struct message_done *done)
{
    char digits[K3_ID_DIGITS + 1];
    const char *why = done_why_name(done->why);
    json_t *root = json_object();

    if (done->why == DONE_STOP && o->call_count > 0)
        why = "tool_calls";
    json_object_set_new(root, "id", json_string(k3_id_format(id, digits)));
    json_object_set_new(root, "content", json_stringn(o->content.n ? o->content.s : "", o->content.n));
    json_object_set_new(root, "reasoning_content", json_stringn(o->thought.n ? o->thought.s : "", o->thought.n));
    json_object_set_new(root, "tool_calls", calls_json(o));
    json_object_set_new(root, "finish_reason", json_string(why));
    json_object_set_new(root, "message", words_json(done->msg));
    json_object_set_new(root, "usage",
                        json_pack("{s:I, s:I, s:I, s:{s:I}}", "prompt_tokens", (json_int_t)done->ptok,
                                  "completion_tokens", (json_int_t)done->ctok, "total_tokens",
                                  (json_int_t)done->ptok + done->ctok, "prompt_tokens_details", "cached_tokens",
                                  (json_int_t)done->cached));
    json_object_set_new(
        root, "seconds",
        json_pack("{s:f, s:f, s:f}", "waiting", done->wait_s, "prompt", done->prompt_s, "generation", done->gen_s));
    json_object_set_new(root, "token_ids", ids_json(o));
    if (o->logprob_count > 0)
        json_object_set_new(root, "logprobs", logprobs_json(o));
    return root;
}

int output_end(struct output *o, const struct k3_id *id, const struct message_done *done, struct k3_error *err)
{
    if (end_reasoning(o, err) < 0)
        return -1;
    if (o->form != OUTPUT_JSON)
        return write_all(STDOUT_FILENO, "\n", o->midline ? 1 : 0, err);

    json_t *root = output_json(o, id, done);
    char *text = json_dumps(root, JSON_COMPACT | JSON_REAL_PRECISION(15));
    int rc = text ? write_all(STDOUT_FILENO, text, strlen(text), err) : k3_errorf(err, "the answer is not UTF-8 text");
    if (rc == 0)
        rc = write_all(STDOUT_FILENO, "\n", 1, err);
    free(text);
    json_decref(root);
    return rc;
}
