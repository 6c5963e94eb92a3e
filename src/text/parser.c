#include "text/parser.h"

#include <stdlib.h>
#include <string.h>

#include "common/alloc.h"
#include "text/buf.h"
#include "text/detok.h"
#include "text/pyjson.h"

#define VALUE_DEPTH_MAX 128 /* of an argument's JSON; deeper is a string */

/* The block that stands open innermost.  Each has one parent, so a place tells the whole stack. */
enum place { IN_MESSAGE, IN_THINK, IN_RESPONSE, IN_TOOLS, IN_CALL, IN_ARGUMENT, IN_JSON, NO_PLACE };

static const struct {
    const char *tag;
    int level;
    enum place parent;
} places[] = {
    [IN_MESSAGE] = {"message", 0, IN_MESSAGE},
    [IN_THINK] = {"think", 1, IN_MESSAGE},
    [IN_RESPONSE] = {"response", 1, IN_MESSAGE},
    [IN_TOOLS] = {"tools", 1, IN_MESSAGE},
    [IN_CALL] = {"call", 2, IN_TOOLS},
    [IN_ARGUMENT] = {"argument", 3, IN_CALL},
    [IN_JSON] = {"json", 3, IN_CALL},
};

enum header { NO_HEADER, OPENING, CLOSING };

/* What the arguments of the open call are made of so far. */
enum arguments { NOTHING, MEMBERS, BLOCK };

struct parser {
    const struct vocab *v;
    enum place place;
    bool stopped;
    int begun, complete; /* calls */

    enum header header;    /* a marker came; its tag is being collected */
    struct buf name, type; /* scratch: attributes of a tag */
    struct buf tag;        /* at most PARSER_HEADER_MAX bytes, and one more of a longer tag */

    struct buf skipped; /* name of the unknown tag that is being skipped */
    int skipping;       /* how many of that name stand open; 0: none is skipped */

    enum arguments arguments;
    bool holding;     /* the open argument waits in `value` for its end: it is not a string */
    struct buf value; /* at most PARSER_VALUE_MAX bytes and what one token adds */

    struct detok detok;
    struct buf text; /* scratch: what the last token completed */
    struct buf out;  /* scratch: arguments' text under way */

    parser_emit *emit; /* of the call in progress */
    void *arg;
};

struct span {
    const char *s;
    size_t n;
};

static bool span_is(struct span a, const char *s, size_t n)
{
    return a.n == n && (n == 0 || memcmp(a.s, s, n) == 0);
}

struct parser *parser_create(const struct vocab *v, enum parser_start start)
{
    static const enum place first[] = {
        [PARSER_IN_MESSAGE] = IN_MESSAGE, [PARSER_IN_THINK] = IN_THINK, [PARSER_IN_RESPONSE] = IN_RESPONSE};
    struct parser *p = k3_zalloc(sizeof *p);

    p->v = v;
    p->place = first[start];
    /* What grows with a token or a tag has its room from the start; only a held value still has to grow. */
    struct buf *const bounded[] = {&p->tag, &p->skipped, &p->name, &p->type, &p->text, &p->out};
    for (size_t i = 0; i < sizeof bounded / sizeof *bounded; i++)
        buf_room(bounded[i], PARSER_HEADER_MAX + 1);
    return p;
}

void parser_destroy(struct parser *p)
{
    if (!p)
        return;
    buf_free(&p->name);
    buf_free(&p->type);
    buf_free(&p->tag);
    buf_free(&p->skipped);
    buf_free(&p->value);
    buf_free(&p->text);
    buf_free(&p->out);
    free(p);
}

static void emit(struct parser *p, enum parser_event_type type, struct span text)
{
    const struct parser_event event = {.type = type, .call = p->begun - 1, .text = text.s, .len = text.n};

    if (p->emit)
        p->emit(p->arg, &event);
}

/* Send what was put together in `out` as more of the call's arguments. */
static void emit_arguments(struct parser *p)
{
    if (p->out.n > 0)
        emit(p, PARSER_ARGUMENTS, (struct span){p->out.s, p->out.n});
    p->out.n = 0;
}

/* ---- arguments ---- */

static void begin_argument(struct parser *p, struct span key, bool is_string)
{
    buf_adds(&p->out, p->arguments == NOTHING ? "{\"" : ", \"");
    pyjson_escape(&p->out, key.s, key.n);
    buf_adds(&p->out, is_string ? "\": \"" : "\": ");
    emit_arguments(p);
    p->arguments = MEMBERS;
    p->holding = !is_string;
    p->value.n = 0;
}

/* The held value turns out to be a string: send it, with what follows to be sent as it comes. */
static void release_as_string(struct parser *p)
{
    buf_addc(&p->out, '"');
    pyjson_escape(&p->out, p->value.s, p->value.n);
    p->holding = false;
}

static void add_to_argument(struct parser *p, struct span text)
{
    if (!p->holding) {
        pyjson_escape(&p->out, text.s, text.n);
    } else {
        buf_add(&p->value, text.s, text.n);
        if (p->value.n > PARSER_VALUE_MAX)
            release_as_string(p);
    }
    emit_arguments(p);
}

static void end_argument(struct parser *p)
{
    if (p->holding) {
        json_t *json = pyjson_load(p->value.s, p->value.n, VALUE_DEPTH_MAX, NULL);
        if (json)
            buf_add(&p->out, p->value.s, p->value.n);
        else
            release_as_string(p);
        json_decref(json);
    }
    if (!p->holding)
        buf_addc(&p->out, '"');
    p->holding = false;
    emit_arguments(p);
}

static void end_call(struct parser *p)
{
    static const char *const ends[] = {[NOTHING] = "{}", [MEMBERS] = "}", [BLOCK] = ""};

    buf_adds(&p->out, ends[p->arguments]);
    emit_arguments(p);
    emit(p, PARSER_CALL_END, (struct span){NULL, 0});
    p->complete++;
}

/* ---- blocks ---- */

/* Close the innermost blocks down to and including `level`. */
static void close_level(struct parser *p, int level)
{
    while (p->place != IN_MESSAGE && places[p->place].level >= level) {
        if (p->place == IN_ARGUMENT)
            end_argument(p);
        else if (p->place == IN_CALL)
            end_call(p);
        p->place = places[p->place].parent;
    }
}

static enum place find_place(struct span name)
{
    for (enum place place = IN_MESSAGE; place < NO_PLACE; place++)
        if (span_is(name, places[place].tag, strlen(places[place].tag)))
            return place;
    return NO_PLACE;
}

/* The value of an attribute in a tag's ` key="value"` pairs, unescaped into `value`. */
static bool get_attribute(struct span pairs, const char *key, struct buf *value)
{
    const char *s = pairs.s, *end = s + pairs.n;

    value->n = 0;
    while (s < end) {
        const char *equals = memchr(s, '=', (size_t)(end - s));
        if (!equals || end - equals < 2 || equals[1] != '"')
            return false;
        const char *from = equals + 2, *to = memchr(from, '"', (size_t)(end - from));
        if (!to)
            return false;
        if (*s == ' ' && span_is((struct span){s + 1, (size_t)(equals - s - 1)}, key, strlen(key))) {
            while (from < to) {
                bool quote = to - from >= 6 && memcmp(from, "&quot;", 6) == 0;
                bool ampersand = to - from >= 5 && memcmp(from, "&amp;", 5) == 0;
                buf_addc(value, quote ? '"' : *from);
                from += quote ? 6 : ampersand ? 5 : 1;
            }
            return true;
        }
        s = to + 1;
    }
    return false;
}

static void skip_tag(struct parser *p, struct span name)
{
    p->skipped.n = 0;
    buf_add(&p->skipped, name.s, name.n);
    p->skipping = 1;
}

/* What an opened block needs beyond its place; false makes it an unknown tag. */
static bool enter(struct parser *p, enum place place, struct span attributes)
{
    struct buf *name = &p->name;
    bool known = true;

    switch (place) {
    case IN_CALL:
        known = p->begun < PARSER_CALLS_MAX && get_attribute(attributes, "tool", name);
        if (known) {
            p->begun++;
            p->arguments = NOTHING;
            emit(p, PARSER_CALL, (struct span){name->s, name->n});
        }
        break;
    case IN_ARGUMENT:
        known = p->place == IN_CALL && p->arguments != BLOCK && get_attribute(attributes, "key", name);
        if (known) {
            bool typed = get_attribute(attributes, "type", &p->type);
            begin_argument(p, (struct span){name->s, name->n},
                           !typed || span_is((struct span){p->type.s, p->type.n}, "string", 6));
        }
        break;
    case IN_JSON:
        known = p->place == IN_CALL && p->arguments == NOTHING;
        break;
    default:
        break;
    }
    return known;
}

static void open_tag(struct parser *p, struct span name, struct span attributes)
{
    enum place place = find_place(name);

    if (place != NO_PLACE)
        close_level(p, places[place].level);
    if (place != NO_PLACE && p->tag.n <= PARSER_HEADER_MAX && enter(p, place, attributes))
        p->place = place;
    else
        skip_tag(p, name);
}

/* A closer of what does not stand open means nothing. */
static void close_tag(struct parser *p, struct span name)
{
    enum place place = find_place(name);

    for (enum place open = p->place; place != NO_PLACE && open != place; open = places[open].parent)
        if (open == IN_MESSAGE)
            return;
    if (place != NO_PLACE)
        close_level(p, places[place].level);
}

/* Within an unknown tag only its own name counts, and the end of the message. */
static void skip_header(struct parser *p, struct span name)
{
    if (p->header == CLOSING && find_place(name) == IN_MESSAGE) {
        p->skipping = 0;
        close_level(p, 0);
    } else if (span_is(name, p->skipped.s, p->skipped.n)) {
        p->skipping += p->header == OPENING ? 1 : -1;
    }
}

/* The tag is whole: the name up to the first space, then attributes. */
static void end_header(struct parser *p)
{
    const char *s = p->tag.n > 0 ? p->tag.s : "", *space = memchr(s, ' ', p->tag.n);
    struct span name = {s, space ? (size_t)(space - s) : p->tag.n};
    struct span attributes = {s + name.n, p->tag.n - name.n};

    if (p->skipping)
        skip_header(p, name);
    else if (p->header == OPENING)
        open_tag(p, name, attributes);
    else
        close_tag(p, name);
    p->header = NO_HEADER;
}

/* ---- tokens ---- */

/* Characters that a token completed, to where they belong. */
static void take_text(struct parser *p, struct span text)
{
    if (text.n == 0)
        return;
    if (p->header != NO_HEADER) {
        /* One byte too many stays, by which open_tag() knows a longer tag. */
        size_t room = p->tag.n <= PARSER_HEADER_MAX ? PARSER_HEADER_MAX + 1 - p->tag.n : 0;
        buf_add(&p->tag, text.s, text.n < room ? text.n : room);
        return;
    }
    if (p->skipping)
        return;
    switch (p->place) {
    case IN_THINK:
        emit(p, PARSER_THINK, text);
        break;
    case IN_RESPONSE:
        emit(p, PARSER_RESPONSE, text);
        break;
    case IN_ARGUMENT:
        add_to_argument(p, text);
        break;
    case IN_JSON:
        p->arguments = BLOCK;
        emit(p, PARSER_ARGUMENTS, text);
        break;
    default:
        break;
    }
}

static void take_bytes(struct parser *p, const char *bytes, size_t len)
{
    p->text.n = 0;
    detok_feed(&p->detok, bytes, len, &p->text);
    take_text(p, (struct span){p->text.s, p->text.n});
}

/* No character goes on across a control id. */
static void flush_text(struct parser *p)
{
    p->text.n = 0;
    detok_flush(&p->detok, &p->text);
    take_text(p, (struct span){p->text.s, p->text.n});
}

static void stop(struct parser *p)
{
    p->skipping = 0;
    close_level(p, 0);
    p->stopped = true;
    emit(p, PARSER_STOP, (struct span){NULL, 0});
}

static void take_control(struct parser *p, int32_t id)
{
    int slot = id - vocab_base(p->v);
    bool marker = slot == VOCAB_OPEN || slot == VOCAB_CLOSE || slot == VOCAB_SEP;
    bool stops = slot == VOCAB_END_OF_MSG || slot == VOCAB_EOS;

    flush_text(p);
    if (!marker && !stops)
        return;
    /* Any of them ends a tag: a skipped sep is as good as one. */
    if (p->header != NO_HEADER)
        end_header(p);
    if (stops) {
        stop(p);
    } else if (slot != VOCAB_SEP) {
        p->header = slot == VOCAB_OPEN ? OPENING : CLOSING;
        p->tag.n = 0;
    }
}

void parser_feed(struct parser *p, int32_t id, parser_emit *emit, void *arg)
{
    const char *bytes;
    size_t len;

    if (p->stopped)
        return;
    p->emit = emit;
    p->arg = arg;
    if (vocab_is_control(p->v, id))
        take_control(p, id);
    else if ((bytes = vocab_bytes(p->v, id, &len)))
        take_bytes(p, bytes, len);
}

void parser_finish(struct parser *p, parser_emit *emit, void *arg)
{
    p->emit = emit;
    p->arg = arg;
    flush_text(p);
    if (p->place == IN_ARGUMENT && p->holding) {
        buf_add(&p->out, p->value.s, p->value.n);
        p->value.n = 0;
        emit_arguments(p);
    }
}

bool parser_stopped(const struct parser *p)
{
    return p->stopped;
}

int parser_calls(const struct parser *p)
{
    return p->complete;
}
