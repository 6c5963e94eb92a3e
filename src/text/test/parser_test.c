/* parser_test.c - the outputs of SPEC 8.4 and broken ones, in every tokenisation and cut at every token */
#include "util.h"

#include "text/buf.h"
#include "text/parser.h"
#include "text/utf8.h"

#define O "<|open|>"
#define C "<|close|>"
#define S "<|sep|>"
#define E "<|end_of_msg|>"
#define R "\xef\xbf\xbd"
#define CALL(name) O "call tool=\"" name "\" index=\"1\"" S
#define ARGUMENT(key, type, value) O "argument key=\"" key "\" type=\"" type "\"" S value C "argument" S
#define ANSWER(text) O "response" S text C "response" S
#define TOOLS(calls) O "tools" S calls C "tools" S
#define END C "message" S E

static struct vocab *toy;

static int load_toy(void **state)
{
    (void)state;
    toy = toy_vocab(8192);
    return 0;
}

static int destroy_toy(void **state)
{
    (void)state;
    vocab_destroy(toy);
    return 0;
}

/* Events as one text: [think]..., [response]..., [call N]name, [arguments N]..., [end N], [stop]; text of the same kind
 * in a row is joined. */
struct transcript {
    struct buf text;
    int type, call; /* of the last event; type -1 before the first */
};

static void record(void *arg, const struct parser_event *event)
{
    static const char *const names[] = {"think", "response", "call", "arguments", "end", "stop"};
    struct transcript *t = arg;
    bool of_call = event->type >= PARSER_CALL && event->type <= PARSER_CALL_END;

    if ((int)event->type != t->type || (of_call && event->call != t->call)) {
        char head[48];
        snprintf(head, sizeof head, of_call ? "[%s %d]" : "[%s]", names[event->type], event->call);
        buf_adds(&t->text, head);
    }
    t->type = (int)event->type;
    t->call = event->call;
    /* Whole characters in every event. */
    for (size_t i = 0; i < event->len;) {
        struct utf8 c = utf8_read(event->text + i, event->len - i);
        assert_int_equal(c.kind, UTF8_CHAR);
        i += c.bytes;
    }
    if (event->type != PARSER_CALL && event->type != PARSER_CALL_END && event->type != PARSER_STOP)
        assert_true(event->len > 0);
    buf_add(&t->text, event->text, event->len);
}

/* The ids of a text whose markers are control ids: whole tokens, single bytes, or a mixture of both. */
static struct tokens tokenise(const char *text, int how)
{
    struct tokens whole = {0}, t = {0};
    uint32_t seed = 3;

    assert_int_equal(vocab_encode_raw(toy, text, strlen(text), &whole, NULL), 0);
    for (size_t i = 0; i < whole.n; i++) {
        size_t n = 0;
        const char *bytes = vocab_bytes(toy, whole.id[i], &n);
        seed = seed * 1664525 + 1013904223;
        if (!bytes || how == 0 || (how == 2 && seed >> 31)) {
            tokens_push(&t, whole.id[i]);
            continue;
        }
        for (size_t k = 0; k < n; k++) /* the toy's first 256 tokens are the bytes in order */
            tokens_push(&t, (unsigned char)bytes[k]);
    }
    tokens_free(&whole);
    return t;
}

static void assert_transcript(const struct transcript *t, const char *want, const char *output)
{
    if (t->text.n != strlen(want) || memcmp(t->text.s, want, t->text.n) != 0)
        fail_msg("%s\ngives\n%.*s\nnot\n%s", output, (int)t->text.n, t->text.s, want);
}

/* Cut after k tokens: what came is the beginning of `want`, but for the U+FFFD of a cut character. */
static void assert_cut(const struct tokens *ids, size_t k, enum parser_start start, const char *want)
{
    struct parser *p = parser_create(toy, start);
    struct transcript t = {.type = -1};
    size_t same = 0;

    for (size_t i = 0; i < k; i++)
        parser_feed(p, ids->id[i], record, &t);
    parser_finish(p, record, &t);
    while (same < t.text.n && want[same] == t.text.s[same])
        same++;
    if (same < t.text.n) {
        /* Step back to the start of the character that differs. */
        while (same > 0 && (t.text.s[same] & 0xc0) == 0x80)
            same--;
        if (t.text.n - same != 3 || memcmp(t.text.s + same, R, 3) != 0)
            fail_msg("cut after %zu tokens\n%.*s\nnot\n%s", k, (int)t.text.n, t.text.s, want);
    }
    buf_free(&t.text);
    parser_destroy(p);
}

/* Replay k tokens without events and go on: together with what those had given, nothing is lost or twice. */
static void assert_replay(const struct tokens *ids, size_t k, enum parser_start start, const char *want,
                          const char *output)
{
    struct parser *first = parser_create(toy, start), *second = parser_create(toy, start);
    struct transcript t = {.type = -1};

    for (size_t i = 0; i < k; i++) {
        parser_feed(first, ids->id[i], record, &t);
        parser_feed(second, ids->id[i], NULL, NULL);
    }
    for (size_t i = k; i < ids->n; i++)
        parser_feed(second, ids->id[i], record, &t);
    parser_finish(second, record, &t);
    assert_transcript(&t, want, output);
    buf_free(&t.text);
    parser_destroy(first);
    parser_destroy(second);
}

/* In every tokenisation, handed over after every token. */
static void assert_continues(enum parser_start start, const char *output, const char *want)
{
    for (int how = 0; how < 3; how++) {
        struct tokens ids = tokenise(output, how);
        for (size_t k = 0; k <= ids.n; k++)
            assert_replay(&ids, k, start, want, output);
        tokens_free(&ids);
    }
}

/* The same, and cut short after every token. */
static void assert_parses(enum parser_start start, const char *output, const char *want)
{
    assert_continues(start, output, want);
    for (int how = 0; how < 3; how++) {
        struct tokens ids = tokenise(output, how);
        for (size_t k = 0; k < ids.n; k++)
            assert_cut(&ids, k, start, want);
        tokens_free(&ids);
    }
}

static void thinking_answer_and_calls_are_told_apart(void **state)
{
    (void)state;
    assert_parses(PARSER_IN_THINK, "because" C "think" S ANSWER("a1") END, "[think]because[response]a1[stop]");
    assert_parses(PARSER_IN_RESPONSE, "2+2 = 4 \xf0\x9f\x8e\x89" C "response" S END,
                  "[response]2+2 = 4 \xf0\x9f\x8e\x89[stop]");
    assert_parses(PARSER_IN_MESSAGE,
                  O "message role=\"assistant\"" S O "think" S "\xe6\x97\xa5" C "think" S ANSWER("") END,
                  "[think]\xe6\x97\xa5[stop]");
    assert_parses(PARSER_IN_THINK,
                  "call it" C "think" S ANSWER("") TOOLS(CALL("get_weather") ARGUMENT("city", "string", "Paris")
                                                             ARGUMENT("days", "number", "3") C "call" S) END,
                  "[think]call it[call 0]get_weather[arguments 0]{\"city\": \"Paris\", \"days\": 3}[end 0][stop]");
    assert_parses(PARSER_IN_THINK,
                  C "think" S ANSWER("ok")
                      TOOLS(CALL("f") C "call" S CALL("g&amp;&quot;") ARGUMENT("a", "null", "null") C "call" S) END,
                  "[response]ok[call 0]f[arguments 0]{}[end 0][call 1]g&\"[arguments 1]{\"a\": null}[end 1][stop]");
    assert_parses(PARSER_IN_RESPONSE,
                  C "response" S TOOLS(CALL("f") O "json type=\"object\"" S "{bad json \"" C "json" S C "call" S) END,
                  "[call 0]f[arguments 0]{bad json \"[end 0][stop]");
}

static void values_become_json(void **state)
{
    static const struct {
        const char *argument, *want;
    } cases[] = {
        {ARGUMENT("s", "string", "line\nbreak \"q\" \\ & \x01 \xe6\x97\xa5"),
         "{\"s\": \"line\\nbreak \\\"q\\\" \\\\ & \\u0001 \xe6\x97\xa5\"}"},
        {ARGUMENT("s", "string", ""), "{\"s\": \"\"}"},
        {ARGUMENT("s", "string", "3"), "{\"s\": \"3\"}"},
        {ARGUMENT("o", "object", "{\"b\": 1, \"a\": [1.50, \"x\"]}"), "{\"o\": {\"b\": 1, \"a\": [1.50, \"x\"]}}"},
        {ARGUMENT("n", "number", "123456789012345678901"), "{\"n\": 123456789012345678901}"},
        {ARGUMENT("n", "number", "12 apples"), "{\"n\": \"12 apples\"}"},
        {ARGUMENT("b", "boolean", "True"), "{\"b\": \"True\"}"},
        {ARGUMENT("b", "boolean", ""), "{\"b\": \"\"}"},
        {ARGUMENT("a", "array", "[1, 2"), "{\"a\": \"[1, 2\"}"},
        {ARGUMENT("k\xc3\xa9 &quot;&amp;quot;", "boolean", "true"), "{\"k\xc3\xa9 \\\"&quot;\": true}"},
        {O "argument key=\"untyped\"" S "3" C "argument" S, "{\"untyped\": \"3\"}"},
        {O "argument type=\"number\" key=\"n\"" S "3" C "argument" S, "{\"n\": 3}"},
        {ARGUMENT("a", "number", "1") ARGUMENT("b", "string", "x") ARGUMENT("c", "object", "{}"),
         "{\"a\": 1, \"b\": \"x\", \"c\": {}}"},
        {O "json type=\"object\"" S C "json" S, "{}"},
        /* what cannot stand beside the other is skipped */
        {ARGUMENT("a", "number", "1") O "json type=\"object\"" S "{}" C "json" S, "{\"a\": 1}"},
        {O "json type=\"object\"" S "{\"a\": 1}" C "json" S ARGUMENT("b", "number", "2"), "{\"a\": 1}"},
    };
    (void)state;

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *output = k3_asprintf(O "tools" S CALL("f") "%s" C "call" S C "tools" S END, cases[i].argument);
        char *want = k3_asprintf("[call 0]f[arguments 0]%s[end 0][stop]", cases[i].want);
        /* Not cut: a value cut short may look like another type than it turns out to be. */
        assert_continues(PARSER_IN_MESSAGE, output, want);
        free(want);
        free(output);
    }
}

/* Markers that come as ordinary tokens are text: here each is split by encoding without specials. */
static void markers_written_as_text_stay_text(void **state)
{
    static const char text[] = "write " C "think" S " and [EOS] " E;
    struct parser *p = parser_create(toy, PARSER_IN_THINK);
    struct transcript t = {.type = -1};
    struct tokens ids = {0};
    (void)state;

    assert_int_equal(vocab_encode(toy, text, strlen(text), &ids, NULL), 0);
    for (size_t i = 0; i < ids.n; i++)
        parser_feed(p, ids.id[i], record, &t);
    parser_finish(p, record, &t);
    assert_transcript(&t, "[think]write " C "think" S " and [EOS] " E, text);
    assert_false(parser_stopped(p));
    tokens_free(&ids);
    buf_free(&t.text);
    parser_destroy(p);
}

static void skipped_closers_are_forgiven(void **state)
{
    (void)state;
    assert_parses(PARSER_IN_THINK, "hm" O "response" S "yes" E, "[think]hm[response]yes[stop]");
    assert_parses(PARSER_IN_THINK, "hm" E, "[think]hm[stop]");
    assert_parses(PARSER_IN_THINK, "hm[EOS]", "[think]hm[stop]");
    assert_parses(PARSER_IN_THINK, E, "[stop]");
    assert_parses(PARSER_IN_THINK, "hm" C "message" S "lost" E, "[think]hm[stop]");
    assert_parses(PARSER_IN_THINK, "hm" C "think" O "response" S "yes" C "response" E,
                  "[think]hm[response]yes[stop]");                                            /* sep skipped */
    assert_parses(PARSER_IN_RESPONSE, "yes" C "think" S " no" END, "[response]yes no[stop]"); /* closes nothing open */
    assert_parses(PARSER_IN_RESPONSE, "yes" TOOLS(CALL("f") O "argument key=\"a\" type=\"string\"" S "x" CALL("g")) E,
                  "[response]yes[call 0]f[arguments 0]{\"a\": \"x\"}[end 0][call 1]g[arguments 1]{}[end 1][stop]");
    assert_parses(PARSER_IN_RESPONSE,
                  "yes" CALL("f") O "argument key=\"a\" type=\"number\"" S "1" O "argument key=\"b\" type=\"number\"" S
                                    "2" E,
                  "[response]yes[call 0]f[arguments 0]{\"a\": 1, \"b\": 2}[end 0][stop]");
    assert_parses(PARSER_IN_RESPONSE, "yes" O "tools" S CALL("f") C "tools" S ANSWER(" more") END,
                  "[response]yes[call 0]f[arguments 0]{}[end 0][response] more[stop]");
    assert_parses(PARSER_IN_RESPONSE, "yes" E "more" O "response" S "and more" E, "[response]yes[stop]");
}

static void unknown_tags_are_skipped_to_their_close(void **state)
{
    (void)state;
    assert_parses(PARSER_IN_RESPONSE, "a" O "odd x=\"1\"" S "hidden" C "odd" S "b" END, "[response]ab[stop]");
    assert_parses(PARSER_IN_RESPONSE,
                  "a" O "odd" S "h" O "odd" S "h" C "odd" S "h" O "response" S "h" C "think" S C "odd" S "b" END,
                  "[response]ab[stop]");
    assert_parses(PARSER_IN_RESPONSE, "a" O "odd" S "hidden" END, "[response]a[stop]");
    assert_parses(PARSER_IN_RESPONSE, "a" O "odd" S "hidden" E, "[response]a[stop]");
    assert_parses(PARSER_IN_RESPONSE, "a" O S "hidden" C S "b" END, "[response]ab[stop]");
    assert_parses(PARSER_IN_RESPONSE, "a" C "odd" S "b" S "c" END, "[response]abc[stop]");
    assert_parses(PARSER_IN_RESPONSE, TOOLS(O "call index=\"1\"" S "nameless" C "call" S CALL("f") C "call" S) END,
                  "[call 0]f[arguments 0]{}[end 0][stop]");
    assert_parses(PARSER_IN_RESPONSE, ARGUMENT("a", "string", "of no call") "b" END, "[response]b[stop]");
    assert_parses(PARSER_IN_RESPONSE, "a[BOS]b<|media_pad|>" END, "[response]ab[stop]");
}

static void ill_formed_characters_are_replaced(void **state)
{
    (void)state;
    assert_parses(PARSER_IN_THINK, "a\xe6\x97" C "think" S ANSWER("\x80z") END, "[think]a" R "[response]" R "z[stop]");
    assert_parses(PARSER_IN_RESPONSE, "\xf0\x9f\x8e[BOS]\x89" E, "[response]" R R "[stop]");
    assert_parses(PARSER_IN_RESPONSE,
                  TOOLS(CALL("f\xff") ARGUMENT("\xc3", "string", "\xe6\x97") ARGUMENT("b", "number", "\xe6")) E,
                  "[call 0]f" R "[arguments 0]{\"" R "\": \"" R "\", \"b\": \"" R "\"}[end 0][stop]");
}

static void only_closed_calls_are_complete(void **state)
{
    static const char output[] = TOOLS(CALL("f") C "call" S CALL("g") ARGUMENT("a", "number", "12"));
    struct tokens ids = tokenise(output, 1);
    struct parser *p = parser_create(toy, PARSER_IN_MESSAGE);
    (void)state;

    size_t closers = strlen("argument") + 2 + strlen("tools") + 2; /* as single bytes, with their markers */
    for (size_t i = 0; i < ids.n - closers; i++)
        parser_feed(p, ids.id[i], NULL, NULL);
    assert_int_equal(parser_calls(p), 1);
    struct transcript t = {.type = -1};
    parser_finish(p, record, &t);
    assert_transcript(&t, "[arguments 1]12", output);
    assert_int_equal(parser_calls(p), 1);
    assert_false(parser_stopped(p));
    for (size_t i = ids.n - closers; i < ids.n; i++)
        parser_feed(p, ids.id[i], NULL, NULL);
    assert_int_equal(parser_calls(p), 2);
    parser_feed(p, vocab_special(toy, VOCAB_EOS), NULL, NULL);
    assert_true(parser_stopped(p));
    buf_free(&t.text);
    tokens_free(&ids);
    parser_destroy(p);
}

static void feed_text(struct parser *p, const char *text, struct transcript *t)
{
    struct tokens ids = tokenise(text, 0);

    for (size_t i = 0; i < ids.n; i++)
        parser_feed(p, ids.id[i], record, t);
    tokens_free(&ids);
}

static void ids_outside_the_vocabulary_are_ignored(void **state)
{
    struct parser *p = parser_create(toy, PARSER_IN_RESPONSE);
    struct transcript t = {.type = -1};
    (void)state;

    feed_text(p, "a", &t);
    parser_feed(p, -1, record, &t);
    parser_feed(p, vocab_size(toy), record, &t);
    parser_feed(p, INT32_MAX, record, &t);
    feed_text(p, "b", &t);
    assert_transcript(&t, "[response]ab", "ids outside");
    buf_free(&t.text);
    parser_destroy(p);
}

static void memory_is_bounded(void **state)
{
    struct parser *p = parser_create(toy, PARSER_IN_RESPONSE);
    struct transcript t = {.type = -1};
    char *many = k3_zalloc(2 * PARSER_VALUE_MAX + 1);
    (void)state;

    /* A tag of at most 4096 bytes counts, a longer one is unknown. */
    memset(many, 'x', PARSER_HEADER_MAX);
    char *tag = k3_asprintf("a" O "response %.*s" S "b" C "response" S O "response %.*s" S "hidden" C "response" S,
                            PARSER_HEADER_MAX - 9, many, PARSER_HEADER_MAX - 8, many);
    feed_text(p, tag, &t);
    assert_transcript(&t, "[response]ab", "long tags");
    free(tag);

    /* A value that is too long to wait for goes out as a string. */
    t.text.n = 0;
    t.type = -1;
    memset(many, '1', 2 * PARSER_VALUE_MAX);
    feed_text(p, O "tools" S CALL("f") O "argument key=\"n\" type=\"number\"" S, &t);
    feed_text(p, many, &t);
    feed_text(p, C "argument" S C "call" S, &t);
    char *want = k3_asprintf("[call 0]f[arguments 0]{\"n\": \"%s\"}[end 0]", many);
    assert_transcript(&t, want, "a long value");
    free(want);

    t.text.n = 0;
    for (int i = 1; i < PARSER_CALLS_MAX + 5; i++)
        feed_text(p, CALL("g") C "call" S, &t);
    assert_int_equal(parser_calls(p), PARSER_CALLS_MAX);
    t.text.n = 0;
    feed_text(p, ANSWER("still here"), &t);
    assert_transcript(&t, "[response]still here", "too many calls");
    free(many);
    buf_free(&t.text);
    parser_destroy(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(thinking_answer_and_calls_are_told_apart),
        cmocka_unit_test(values_become_json),
        cmocka_unit_test(markers_written_as_text_stay_text),
        cmocka_unit_test(skipped_closers_are_forgiven),
        cmocka_unit_test(unknown_tags_are_skipped_to_their_close),
        cmocka_unit_test(ill_formed_characters_are_replaced),
        cmocka_unit_test(only_closed_calls_are_complete),
        cmocka_unit_test(ids_outside_the_vocabulary_are_ignored),
        cmocka_unit_test(memory_is_bounded),
    };
    return cmocka_run_group_tests_name("parser", tests, load_toy, destroy_toy);
}
