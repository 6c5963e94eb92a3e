/* parser.c - the ids that a model emits: however its text is cut into tokens, and wherever another engine takes over,
 * the events are the same
 *
 * The first byte says where the output begins and where an engine takes over.  Bytes from 0xf8 on, which no UTF-8
 * holds, stand for markers, 0xfd for any id by two bytes more; the others stand for themselves. */
#include "text/parser.h"

#include <string.h>

#include "fuzz.h"
#include "text/buf.h"
#include "text/pyjson.h"
#include "text/utf8.h"

/* What was emitted: a new record where type or call change, and for each event without text. */
struct transcript {
    struct buf all, arguments;
    int type, call;
};

static void require_utf8(const char *s, size_t len)
{
    for (size_t at = 0; at < len;) {
        struct utf8 c = utf8_read(s + at, len - at);
        require(c.kind == UTF8_CHAR, "an event is not UTF-8");
        at += c.bytes;
    }
}

/* The arguments of a call that is complete are a JSON object.  Jansson takes no NUL in a key. */
static void check_call(const struct buf *arguments)
{
    struct k3_error err = {""};
    if (arguments->n > 0 && memmem(arguments->s, arguments->n, "\\u0000", 6))
        return;
    json_t *object = pyjson_load(arguments->n ? arguments->s : "", arguments->n, 1024, &err);

    require(object && json_is_object(object), "arguments: %s\n%.*s", err.text, (int)arguments->n, arguments->s);
    json_decref(object);
}

static void record(void *arg, const struct parser_event *event)
{
    struct transcript *t = arg;
    bool text = event->type == PARSER_THINK || event->type == PARSER_RESPONSE || event->type == PARSER_ARGUMENTS;

    require_utf8(event->text, event->len);
    require(!text || event->len > 0, "an event without text");
    if (!text || t->type != (int)event->type || t->call != event->call) {
        char head[] = {'\xff', (char)event->type, (char)event->call, (char)(event->call >> 8)};
        buf_add(&t->all, head, sizeof head);
    }
    t->type = (int)event->type;
    t->call = event->call;
    buf_add(&t->all, event->text, event->len);
    if (event->type == PARSER_CALL)
        t->arguments.n = 0;
    if (event->type == PARSER_ARGUMENTS)
        buf_add(&t->arguments, event->text, event->len);
}

static void record_and_check(void *arg, const struct parser_event *event)
{
    struct transcript *t = arg;

    record(t, event);
    if (event->type == PARSER_CALL_END)
        check_call(&t->arguments);
}

static void transcript_free(struct transcript *t)
{
    buf_free(&t->all);
    buf_free(&t->arguments);
}

static void require_same(const struct transcript *a, const struct transcript *b, const char *how)
{
    require(a->all.n == b->all.n && (a->all.n == 0 || memcmp(a->all.s, b->all.s, a->all.n) == 0), "%s: other events",
            how);
}

/* Feed ids, of which the first `silent` were delivered earlier. */
static void parse(const struct tokens *ids, enum parser_start start, size_t silent, parser_emit *emit,
                  struct transcript *t)
{
    struct parser *p = parser_create(fuzz_vocab(), start);

    t->type = -1;
    for (size_t i = 0; i < ids->n; i++)
        parser_feed(p, ids->id[i], i < silent ? NULL : emit, t);
    parser_finish(p, emit, t);
    parser_destroy(p);
}

/* The same, and only what comes after `silent` ids is kept. */
static void parse_tail(const struct tokens *ids, enum parser_start start, size_t silent, struct transcript *t)
{
    struct parser *p = parser_create(fuzz_vocab(), start);
    struct transcript before = {.type = -1};

    t->type = -1;
    for (size_t i = 0; i < ids->n; i++)
        parser_feed(p, ids->id[i], record, i < silent ? &before : t);
    parser_finish(p, record, t);
    parser_destroy(p);
    transcript_free(&before);
}

/* Plain text becomes one id a byte, or the ids of the tokenizer. */
static void add_text(struct tokens *ids, const uint8_t *text, size_t len, bool by_byte)
{
    struct k3_error err = {""};

    if (!by_byte)
        require(vocab_encode(fuzz_vocab(), (const char *)text, len, ids, &err) == 0, "%s", err.text);
    for (size_t i = 0; by_byte && i < len; i++)
        tokens_push(ids, text[i]);
}

static void read_ids(struct fuzz_input in, bool by_byte, struct tokens *ids)
{
    static const enum vocab_special markers[] = {VOCAB_OPEN, VOCAB_CLOSE, VOCAB_SEP, VOCAB_END_OF_MSG, VOCAB_EOS};
    const struct vocab *v = fuzz_vocab();

    while (in.left > 0) {
        const uint8_t *text = in.at;
        while (in.left > 0 && *in.at < 0xf8)
            fuzz_byte(&in);
        add_text(ids, text, (size_t)(in.at - text), by_byte);
        if (in.left == 0)
            break;
        uint8_t marker = fuzz_byte(&in) - 0xf8;
        if (marker < sizeof markers / sizeof *markers)
            tokens_push(ids, vocab_special(v, markers[marker]));
        else if (marker == 5) {
            int id = fuzz_byte(&in) << 8;
            tokens_push(ids, (id | fuzz_byte(&in)) % (vocab_size(v) + 16) - 8);
        } else
            tokens_push(ids, 0xf8 + marker);
    }
}

/* Can the stream hold a json block?  Its text goes out as the model wrote it. */
static bool has_json_block(const struct tokens *ids)
{
    struct buf text = {0};
    size_t len = 0;

    for (size_t i = 0; i < ids->n; i++) {
        const char *bytes = vocab_bytes(fuzz_vocab(), ids->id[i], &len);
        buf_add(&text, bytes ? bytes : "", bytes ? len : 0);
    }
    bool found = text.n > 0 && memmem(text.s, text.n, "json", 4);
    buf_free(&text);
    return found;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input in = {data, size};
    struct tokens bytes = {0}, words = {0};
    struct transcript a = {.type = -1}, b = a, c = a, d = a;
    uint8_t first = fuzz_byte(&in);
    enum parser_start start = first % 3;

    read_ids(in, true, &bytes);
    read_ids(in, false, &words);
    parse(&bytes, start, 0, has_json_block(&bytes) ? record : record_and_check, &a);
    parse(&words, start, 0, record, &b);
    require_same(&a, &b, "cut into bytes and into words");
    size_t taken_over = bytes.n * (first / 3) / 85;
    parse(&bytes, start, taken_over, record, &c);
    parse_tail(&bytes, start, taken_over, &d);
    require_same(&c, &d, "taken over");
    transcript_free(&a);
    transcript_free(&b);
    transcript_free(&c);
    transcript_free(&d);
    tokens_free(&bytes);
    tokens_free(&words);
    return 0;
}
