/* output_test.c - deltas to stdout: forms, repeats, gaps */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <jansson.h>

#include "client/output.h"

static uint32_t ids[] = {10, 11, 12, 13, 14, 15};
static const struct message_done done = {.why = DONE_STOP, .ptok = 3, .ctok = 5};
static const struct k3_id id = {{0xab}};

#define PART(channel, text)                                                                                            \
    {                                                                                                                  \
        .ch = channel, .txt = { text, sizeof text - 1 }                                                                \
    }

static struct message_delta delta(uint64_t off, size_t n, struct message_part *parts, size_t count)
{
    return (struct message_delta){.off = off, .ids = {ids + off, n}, .parts = {parts, count}};
}

/* While it runs, standard output and error go to a file each. */
struct capture {
    int saved[2];
    FILE *file[2];
};

static struct capture begin(void)
{
    struct capture c;
    fflush(stdout);
    fflush(stderr);
    for (int i = 0; i < 2; i++) {
        c.saved[i] = dup(i + 1);
        c.file[i] = tmpfile();
        assert_non_null(c.file[i]);
        dup2(fileno(c.file[i]), i + 1);
    }
    return c;
}

static void end(struct capture *c, char out[2][2000])
{
    for (int i = 0; i < 2; i++) {
        dup2(c->saved[i], i + 1);
        close(c->saved[i]);
        rewind(c->file[i]);
        out[i][fread(out[i], 1, 1999, c->file[i])] = '\0';
        fclose(c->file[i]);
    }
}

/* Feed an answer with thinking, a token that ends it and begins the response, a character held back, and a part of it
 * twice. */
static void feed(enum output_form form, bool reasoning, char out[2][2000])
{
    struct k3_error err;
    struct output *o = output_create(form, reasoning);
    struct message_part parts[] = {PART(CHANNEL_THINK, "hmm"), PART(CHANNEL_THINK, "!"), PART(CHANNEL_RESPONSE, "A"),
                                   PART(CHANNEL_RESPONSE, "B"), PART(CHANNEL_RESPONSE, "C")};
    struct message_delta d[] = {
        delta(0, 2, parts, 1),
        delta(2, 1, parts + 1, 2),
        delta(3, 1, NULL, 0),
        delta(4, 1, parts + 3, 2),
    };
    struct message_delta gap = delta(6, 1, NULL, 0);
    struct capture c = begin();
    for (int i = 0; i < 3; i++)
        assert_int_equal(output_delta(o, &d[i], &err), 1);
    assert_int_equal(output_next(o), 4);
    for (int i = 1; i < 4; i++) /* attached again */
        assert_int_equal(output_delta(o, &d[i], &err), 1);
    assert_int_equal(output_next(o), 5);
    assert_int_equal(output_delta(o, &gap, &err), 0);
    assert_int_equal(output_end(o, &id, &done, &err), 0);
    end(&c, out);
    output_destroy(o);
}

static void text_is_the_answer_alone(void **state)
{
    char out[2][2000];
    (void)state;
    feed(OUTPUT_TEXT, false, out);
    assert_string_equal(out[0], "ABC\n");
    assert_string_equal(out[1], "");
    feed(OUTPUT_TEXT, true, out);
    assert_string_equal(out[0], "ABC\n");
    assert_string_equal(out[1], "hmm!\n");
}

static void tokens_are_one_line_of_ids(void **state)
{
    char out[2][2000];
    (void)state;
    feed(OUTPUT_TOKENS, false, out);
    assert_string_equal(out[0], "10,11,12,13,14\n");
    assert_string_equal(out[1], "");
}

static void json_holds_everything(void **state)
{
    char out[2][2000];
    json_t *j;
    (void)state;
    feed(OUTPUT_JSON, false, out);
    assert_non_null(j = json_loads(out[0], 0, NULL));
    assert_string_equal(json_string_value(json_object_get(j, "content")), "ABC");
    assert_string_equal(json_string_value(json_object_get(j, "reasoning_content")), "hmm!");
    assert_string_equal(json_string_value(json_object_get(j, "finish_reason")), "stop");
    assert_string_equal(json_string_value(json_object_get(j, "id")), "ab000000000000000000000000000000");
    assert_int_equal(json_integer_value(json_object_get(json_object_get(j, "usage"), "total_tokens")), 8);
    assert_int_equal(json_array_size(json_object_get(j, "token_ids")), 5);
    json_decref(j);
}

static void json_has_the_log_probabilities_of_each_token(void **state)
{
    struct k3_error err;
    char out[2][2000];
    uint32_t lpi[] = {10, 7, 11, 11};
    float lpv[] = {-2.5f, -0.5f, -0.25f, -0.25f};
    struct output *o = output_create(OUTPUT_JSON, false);
    struct message_delta d = delta(0, 2, NULL, 0);
    (void)state;
    d.lpi = (struct message_u32s){lpi, 4};
    d.lpv = (struct message_f32s){lpv, 4};
    struct capture c = begin();
    assert_int_equal(output_delta(o, &d, &err), 1);
    assert_int_equal(output_end(o, &id, &done, &err), 0);
    end(&c, out);
    output_destroy(o);
    assert_non_null(strstr(out[0],
                           "\"logprobs\":[{\"token_id\":10,\"logprob\":-2.5,"
                           "\"top_logprobs\":[{\"token_id\":7,\"logprob\":-0.5}]},{\"token_id\":11,\"logprob\":-0.25,"
                           "\"top_logprobs\":[{\"token_id\":11,\"logprob\":-0.25}]}]"));
}

static void tool_calls_are_put_together(void **state)
{
    struct k3_error err;
    char out[2][2000];
    struct output *o = output_create(OUTPUT_JSON, false);
    struct message_part parts[] = {PART(CHANNEL_TOOL, "{\"a\""), PART(CHANNEL_TOOL, ":1}"), PART(CHANNEL_TOOL, "{}")};
    struct message_delta d[] = {delta(0, 1, parts, 1), delta(1, 1, parts + 1, 2)};
    (void)state;
    parts[0].tn = "f";
    parts[2].tn = "g";
    parts[2].ti = 1;
    struct capture c = begin();
    for (int i = 0; i < 2; i++)
        assert_int_equal(output_delta(o, &d[i], &err), 1);
    assert_int_equal(output_end(o, &id, &done, &err), 0);
    end(&c, out);
    output_destroy(o);
    assert_non_null(strstr(out[0],
                           "\"tool_calls\":[{\"id\":\"call_0\",\"type\":\"function\",\"function\":{\"name\":\"f\","
                           "\"arguments\":\"{\\\"a\\\":1}\"}},{\"id\":\"call_1\""));
    assert_non_null(strstr(out[0], "\"finish_reason\":\"tool_calls\""));
}

/* Who asks for token 1 gets the delta that it came in, and what follows. */
static void it_may_begin_inside_a_delta(void **state)
{
    struct k3_error err;
    struct message_part parts[] = {PART(CHANNEL_RESPONSE, "ab"), PART(CHANNEL_RESPONSE, "c")};
    struct message_delta first = delta(0, 2, parts, 1), second = delta(2, 1, parts + 1, 1);
    struct output *o = output_create(OUTPUT_TEXT, false);
    struct capture c = begin();
    char out[2][2000];

    (void)state;
    output_from(o, 1);
    int rc = output_delta(o, &first, &err), again = output_delta(o, &first, &err),
        next = output_delta(o, &second, &err);
    end(&c, out);
    assert_int_equal(rc + again + next, 3);
    assert_string_equal(out[0], "abc");
    output_destroy(o);
}

static void a_reader_that_is_gone_is_told(void **state)
{
    struct k3_error err;
    struct message_part part = PART(CHANNEL_RESPONSE, "x");
    struct message_delta d = delta(0, 1, &part, 1);
    struct output *o = output_create(OUTPUT_TEXT, false);
    int p[2], saved = dup(STDOUT_FILENO);
    (void)state;
    fflush(stdout);
    signal(SIGPIPE, SIG_IGN);
    assert_int_equal(pipe(p), 0);
    close(p[0]);
    dup2(p[1], STDOUT_FILENO);
    close(p[1]);
    int rc = output_delta(o, &d, &err), cause = errno;
    dup2(saved, STDOUT_FILENO);
    close(saved);
    assert_int_equal(rc, -1);
    assert_int_equal(cause, EPIPE);
    output_destroy(o);
}

static struct message_delta of_choice(uint32_t choice, uint64_t off, struct message_part *part)
{
    struct message_delta d = delta(off, 1, part, 1);

    d.c = choice;
    return d;
}

/* Two choices that come token by token, in turns. */
static void feed_two(struct output *o)
{
    static struct message_part a[] = {PART(CHANNEL_RESPONSE, "one "), PART(CHANNEL_RESPONSE, "answer")};
    static struct message_part b[] = {PART(CHANNEL_THINK, "well"), PART(CHANNEL_RESPONSE, "another")};
    struct k3_error err;

    for (uint64_t off = 0; off < 2; off++) {
        struct message_delta first = of_choice(0, off, a + off), second = of_choice(1, off, b + off);
        assert_int_equal(output_delta(o, &first, &err), 1);
        assert_int_equal(output_delta(o, &second, &err), 1);
        assert_int_equal(output_delta(o, &first, &err), 1); /* again */
    }
}

static void choices_come_one_after_the_other(void **state)
{
    static const struct {
        enum output_form form;
        const char *out, *err;
    } forms[] = {
        {OUTPUT_TEXT, "one answer\nanother\n", "--- answer 1 of 2 ---\n--- answer 2 of 2 ---\nwell\n"},
        {OUTPUT_TOKENS, "10,11\n10,11\n", "--- answer 1 of 2 ---\n--- answer 2 of 2 ---\nwell\n"},
    };
    struct k3_error err;
    char out[2][2000];
    (void)state;
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        struct output *o = output_create(forms[i].form, true);
        output_expect(o, 2);
        struct capture c = begin();
        feed_two(o);
        int rc = output_end(o, &id, &done, &err);
        end(&c, out);
        assert_int_equal(rc, 0);
        assert_string_equal(out[0], forms[i].out);
        assert_string_equal(out[1], forms[i].err);
        output_destroy(o);
    }
}

static void choices_are_an_array_of_json(void **state)
{
    struct message_choice ends[] = {{DONE_STOP, 2}, {DONE_LENGTH, 2}};
    struct message_done both = {.why = DONE_LENGTH, .ctok = 4, .cs = {ends, 2}};
    struct output *o = output_create(OUTPUT_JSON, false);
    const char *content, *reason, *thought;
    struct k3_error err;
    char out[2][2000];
    int n = 0;
    (void)state;
    output_expect(o, 2);
    struct capture c = begin();
    feed_two(o);
    int rc = output_end(o, &id, &both, &err);
    end(&c, out);
    assert_int_equal(rc, 0);
    json_t *root = json_loads(out[0], 0, NULL), *ids_of;
    assert_non_null(root);
    assert_int_equal(json_array_size(json_object_get(root, "choices")), 2);
    assert_null(json_object_get(root, "content"));
    assert_int_equal(json_unpack(json_array_get(json_object_get(root, "choices"), 1), "{s:i, s:s, s:s, s:s, s:o}",
                                 "index", &n, "content", &content, "reasoning_content", &thought, "finish_reason",
                                 &reason, "token_ids", &ids_of),
                     0);
    assert_int_equal(n, 1);
    assert_string_equal(content, "another");
    assert_string_equal(thought, "well");
    assert_string_equal(reason, "length");
    assert_int_equal(json_array_size(ids_of), 2);
    json_decref(root);
    output_destroy(o);
}

static void each_choice_is_taken_up_where_it_was(void **state)
{
    struct message_part p[] = {PART(CHANNEL_RESPONSE, "x")};
    struct output *o = output_create(OUTPUT_JSON, false);
    struct message_delta d = of_choice(1, 0, p);
    struct k3_error err;
    (void)state;
    output_expect(o, 3);
    output_delta(o, &d, &err);
    d = of_choice(2, 1, p);
    assert_int_equal(output_delta(o, &d, &err), 0);
    struct message_attach wanted = output_attach(o);
    assert_int_equal(wanted.offs.n, 3);
    assert_memory_equal(wanted.offs.v, ((uint64_t[]){0, 1, 0}), 3 * sizeof(uint64_t));
    assert_int_equal(output_next(o), 1);
    output_destroy(o);
    o = output_create(OUTPUT_JSON, false); /* of those that run only what comes */
    output_tail(o, 4);
    output_expect(o, 2);
    d = of_choice(1, 3, p);
    assert_int_equal(output_delta(o, &d, &err), 1);
    output_destroy(o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_is_the_answer_alone),      cmocka_unit_test(tokens_are_one_line_of_ids),
        cmocka_unit_test(json_holds_everything),         cmocka_unit_test(json_has_the_log_probabilities_of_each_token),
        cmocka_unit_test(tool_calls_are_put_together),   cmocka_unit_test(it_may_begin_inside_a_delta),
        cmocka_unit_test(a_reader_that_is_gone_is_told), cmocka_unit_test(choices_come_one_after_the_other),
        cmocka_unit_test(choices_are_an_array_of_json),  cmocka_unit_test(each_choice_is_taken_up_where_it_was),
    };
    return cmocka_run_group_tests_name("output", tests, NULL, NULL);
}
