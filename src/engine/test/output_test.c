/* output_test.c - deltas of an answer: every id once, text by channel, the same when another engine goes on with it */
#include "text/test/util.h"

#include "engine/output.h"
#include "text/buf.h"
#include "text/tokens.h"

#define CALL                                                                                                           \
    "<|open|>tools<|sep|><|open|>call tool=\"get_weather\" index=\"1\"<|sep|><|open|>argument key=\"city\" "           \
    "type=\"string\"<|sep|>Paris<|close|>argument<|sep|><|close|>call<|sep|><|close|>tools<|sep|>"
#define THINK "because \xf0\x9f\x8e\x89<|close|>think<|sep|>"
#define RESPONSE(text) "<|open|>response<|sep|>" text "<|close|>response<|sep|>"
#define END "<|close|>message<|sep|><|end_of_msg|>"

static struct vocab *toy;

static int load_toy(void **state)
{
    (void)state;
    toy = toy_vocab(768);
    return 0;
}

static int destroy_toy(void **state)
{
    (void)state;
    vocab_destroy(toy);
    return 0;
}

/* What a client makes of the deltas: "[0]thoughts[1]answer[2.0 tool]arguments". */
struct client {
    struct buf text;
    struct tokens ids;
    bool begun;
    enum delta_channel channel;
    uint32_t call;
};

static void take_part(struct client *c, const struct message_part *p)
{
    char head[32];
    if (!c->begun || c->channel != p->ch || c->call != p->ti || p->tn) {
        if (p->ch == CHANNEL_TOOL)
            snprintf(head, sizeof head, "[%d.%u %s]", (int)p->ch, p->ti, p->tn ? p->tn : "");
        else
            snprintf(head, sizeof head, "[%d]", (int)p->ch);
        buf_adds(&c->text, head);
    }
    c->begun = true;
    c->channel = p->ch;
    c->call = p->ti;
    buf_add(&c->text, p->txt.data, p->txt.len);
}

static void take(void *arg, const struct message_delta *d)
{
    struct client *c = arg;
    assert_int_equal(d->off, c->ids.n); /* no gap, nothing twice */
    assert_int_equal(d->ids.n, 1);
    tokens_push(&c->ids, (int32_t)d->ids.v[0]);
    for (size_t i = 0; i < d->parts.n; i++)
        take_part(c, &d->parts.v[i]);
}

static void client_clear(struct client *c)
{
    buf_free(&c->text);
    tokens_free(&c->ids);
    memset(c, 0, sizeof *c);
}

static struct output *output_of(bool chat, const char *stop, bool ignore)
{
    struct k3_error err;
    struct output *o = output_create(&(struct output_options){.vocab = toy,
                                                              .chat = chat,
                                                              .start = PARSER_IN_THINK,
                                                              .ignore_stop_ids = ignore,
                                                              .stop = &stop,
                                                              .stops = stop != NULL},
                                     &err);
    assert_non_null(o);
    return o;
}

static void encode(const char *text, struct tokens *ids)
{
    assert_int_equal(vocab_encode_raw(toy, text, strlen(text), ids, NULL), 0);
}

/* Run ids through an engine, the first `before` of them through an earlier one.  Returns how many were taken. */
static size_t run(const struct tokens *ids, size_t before, bool chat, const char *stop, struct client *c)
{
    struct output *o = output_of(chat, stop, false);
    size_t n = 0;
    bool ended = false;
    for (; n < before && !ended; n++)
        ended = output_token(o, ids->id[n], n + 1 == ids->n, take, c);
    output_destroy(o); /* it was lost */
    o = output_of(chat, stop, false);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(output_token(o, ids->id[i], false, NULL, NULL), ended && i + 1 == n);
    for (; n < ids->n && !ended; n++)
        ended = output_token(o, ids->id[n], n + 1 == ids->n, take, c);
    output_destroy(o);
    assert_int_equal(c->ids.n, n);
    assert_memory_equal(c->ids.id, ids->id, n * sizeof *ids->id);
    return n;
}

/* Whole, and cut at every token. */
static void expect(const char *text, bool chat, const char *stop, const char *wanted)
{
    struct tokens ids = {0};
    encode(text, &ids);
    for (size_t before = 0; before <= ids.n; before++) {
        struct client c = {0};
        run(&ids, before, chat, stop, &c);
        buf_addc(&c.text, '\0');
        assert_string_equal(c.text.s, wanted);
        client_clear(&c);
    }
    tokens_free(&ids);
}

static void channels_are_told_apart(void **state)
{
    (void)state;
    expect(THINK RESPONSE("It is 18 \xc2\xb0"
                          "C.") CALL END,
           true, NULL,
           "[0]because \xf0\x9f\x8e\x89[1]It is 18 \xc2\xb0"
           "C.[2.0 get_weather]{\"city\": \"Paris\"}");
}

static void a_stop_string_ends_the_response_and_is_not_part_of_it(void **state)
{
    (void)state;
    expect(THINK RESPONSE("one two three STOP four") END, true, "STOP", "[0]because \xf0\x9f\x8e\x89[1]one two three ");
    expect("one two three STOP four", false, "ee ST", "[1]one two thr");
    /* Thoughts may hold it. */
    expect("I say STOP<|close|>think<|sep|>" RESPONSE("never S") END, true, "STOP", "[0]I say STOP[1]never S");
    /* Its beginning is shown once it is no beginning any more. */
    expect(THINK RESPONSE("go STO") CALL END, true, "STOP",
           "[0]because \xf0\x9f\x8e\x89[1]go STO[2.0 get_weather]{\"city\": \"Paris\"}");
}

static void what_is_held_back_comes_with_the_last_token(void **state)
{
    (void)state;
    expect("one ST", false, "STOP", "[1]one ST");
    expect("half \xe2\x82", false, NULL, "[1]half \xef\xbf\xbd");
    expect(THINK RESPONSE("one ST"), true, "STOP", "[0]because \xf0\x9f\x8e\x89[1]one ST");
    expect(THINK "<|open|>tools<|sep|><|open|>call tool=\"f\" index=\"1\"<|sep|><|open|>argument key=\"n\" "
                 "type=\"number\"<|sep|>12",
           true, NULL, "[0]because \xf0\x9f\x8e\x89[2.0 f]{\"n\": 12");
}

static void a_raw_prompt_gets_plain_text_without_control_ids(void **state)
{
    (void)state;
    expect("a <|close|>think<|sep|> b \xf0\x9f\x8e\x89", false, NULL, "[1]a think b \xf0\x9f\x8e\x89");
}

static void both_stop_ids_end_an_answer_unless_they_are_ignored(void **state)
{
    static const enum vocab_special stops[] = {VOCAB_EOS, VOCAB_END_OF_MSG};
    (void)state;
    for (size_t i = 0; i < 2; i++)
        for (int chat = 0; chat < 2; chat++) {
            struct client c = {0};
            struct output *o = output_of(chat, NULL, false);
            assert_false(output_token(o, 65, false, take, &c));
            assert_true(output_token(o, vocab_special(toy, stops[i]), false, take, &c));
            assert_int_equal(c.ids.n, 2); /* the stop id is part of the ids, and has no text */
            assert_int_equal(c.text.n, 4);
            output_destroy(o);
            client_clear(&c);
            o = output_of(chat, NULL, true);
            assert_false(output_token(o, vocab_special(toy, stops[i]), false, take, &c));
            assert_false(output_token(o, 65, false, take, &c));
            assert_int_equal(c.ids.n, 2);
            output_destroy(o);
            client_clear(&c);
        }
}

static void an_answer_may_end_before_it_has_begun(void **state)
{
    (void)state;
    for (int chat = 0; chat < 2; chat++) {
        struct client c = {0};
        struct output *o = output_of(chat, NULL, false);
        assert_true(output_token(o, vocab_special(toy, VOCAB_END_OF_MSG), false, take, &c));
        assert_int_equal(c.ids.n, 1);
        assert_int_equal(c.text.n, 0);
        output_destroy(o);
        client_clear(&c);
    }
}

static void encodes(void *arg, const struct message_delta *d)
{
    struct message m = message_of(WIRE_DELTA, NULL);
    struct message_bytes body;
    uint8_t header[MESSAGE_HEADER];
    struct k3_error err = {""};
    (void)arg;
    m.delta = *d;
    if (message_encode(&m, header, &body, &err) < 0)
        fail_msg("%s", err.text);
    free(body.data);
}

/* A value that is no JSON after all goes out as a string, in which each of these bytes is written as six. */
static void an_argument_that_was_held_back_fits_into_a_message(void **state)
{
    enum { LONG = 1 << 18 };
    char head[] = "x<|close|>think<|sep|><|open|>tools<|sep|><|open|>call tool=\"f\" index=\"1\"<|sep|>"
                  "<|open|>argument key=\"k\" type=\"number\"<|sep|>";
    struct tokens ids = {0};
    char *value = malloc(LONG + 1);
    (void)state;
    memset(value, 1, LONG);
    value[LONG] = '\0';
    encode(head, &ids);
    encode(value, &ids);
    encode("<|close|>argument<|sep|>", &ids);
    struct output *o = output_of(true, NULL, false);
    for (size_t i = 0; i < ids.n; i++)
        assert_false(output_token(o, ids.id[i], i + 1 == ids.n, encodes, NULL));
    output_destroy(o);
    tokens_free(&ids);
    free(value);
}

static void impossible_stop_strings_are_refused(void **state)
{
    const char *stop = "";
    struct k3_error err;
    (void)state;
    assert_null(output_create(&(struct output_options){.vocab = toy, .stop = &stop, .stops = 1}, &err));
    assert_non_null(strstr(err.text, "stop[0]"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(channels_are_told_apart),
        cmocka_unit_test(a_stop_string_ends_the_response_and_is_not_part_of_it),
        cmocka_unit_test(what_is_held_back_comes_with_the_last_token),
        cmocka_unit_test(a_raw_prompt_gets_plain_text_without_control_ids),
        cmocka_unit_test(both_stop_ids_end_an_answer_unless_they_are_ignored),
        cmocka_unit_test(an_answer_may_end_before_it_has_begun),
        cmocka_unit_test(an_argument_that_was_held_back_fits_into_a_message),
        cmocka_unit_test(impossible_stop_strings_are_refused),
    };
    return cmocka_run_group_tests_name("output", tests, load_toy, destroy_toy);
}
