/* chat_test.c - requests to prompts, against the rendering of Moonshot's encoder and the examples of SPEC 8.4 */
#include "util.h"

#include "text/chat.h"

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

static struct chat_prompt *render(const char *request)
{
    struct k3_error err;
    struct chat_prompt *p = chat_render(request, strlen(request), &err);

    if (!p)
        fail_msg("%s", err.text);
    return p;
}

static void assert_segments(size_t number, const struct chat_prompt *p, const json_t *want)
{
    if (chat_segments(p) != json_array_size(want))
        fail_msg("case %zu: %zu segments, not %zu", number, chat_segments(p), json_array_size(want));
    for (size_t k = 0; k < chat_segments(p); k++) {
        struct chat_segment got = chat_segment(p, k);
        json_t *text = json_array_get(json_array_get(want, k), 0);
        if (got.len != json_string_length(text) || memcmp(got.text, json_string_value(text), got.len) != 0 ||
            got.control != json_is_true(json_array_get(json_array_get(want, k), 1)))
            fail_msg("case %zu: segment %zu is \"%.*s\", not \"%s\"", number, k, (int)got.len, got.text,
                     json_string_value(text));
    }
}

/* The ids are those of the segments, each alone: control ones by the raw encoder, the others by the plain one. */
static void assert_ids_of_segments(const struct chat_prompt *p)
{
    struct tokens got = {0}, want = {0};

    assert_int_equal(chat_tokens(p, toy, &got, NULL), 0);
    for (size_t k = 0; k < chat_segments(p); k++) {
        struct chat_segment s = chat_segment(p, k);
        size_t before = want.n;
        if (s.control) {
            assert_int_equal(vocab_encode_raw(toy, s.text, s.len, &want, NULL), 0);
            assert_int_equal(want.n, before + 1);
            assert_true(vocab_is_control(toy, want.id[before]));
            continue;
        }
        assert_int_equal(vocab_encode(toy, s.text, s.len, &want, NULL), 0);
        for (size_t i = before; i < want.n; i++)
            assert_false(vocab_is_control(toy, want.id[i]));
    }
    assert_int_equal(got.n, want.n);
    assert_memory_equal(got.id, want.id, want.n * sizeof *want.id);
    tokens_free(&got);
    tokens_free(&want);
}

static void assert_text_is_the_segments(const struct chat_prompt *p)
{
    size_t len, at = 0;
    const char *text = chat_text(p, &len);

    for (size_t k = 0; k < chat_segments(p); k++) {
        struct chat_segment s = chat_segment(p, k);
        assert_true(at + s.len <= len);
        assert_memory_equal(text + at, s.text, s.len);
        at += s.len;
    }
    assert_int_equal(at, len);
}

static void renders_as_the_reference_does(void **state)
{
    json_t *cases = load_cases("chat.json"), *c;
    size_t i;
    (void)state;

    json_array_foreach(cases, i, c)
    {
        char *request = json_dumps(json_object_get(c, "request"), JSON_COMPACT);
        struct chat_prompt *p = render(request);
        assert_segments(i, p, json_object_get(c, "segments"));
        assert_text_is_the_segments(p);
        assert_ids_of_segments(p);
        chat_destroy(p);
        free(request);
    }
    json_decref(cases);
}

static void assert_renders(const char *request, const char *want)
{
    struct chat_prompt *p = render(request);
    size_t len;
    const char *text = chat_text(p, &len);

    if (len != strlen(want) || memcmp(text, want, len) != 0)
        fail_msg("%s\nrenders as\n%.*s\nnot\n%s", request, (int)len, text, want);
    chat_destroy(p);
}

#define O "<|open|>"
#define C "<|close|>"
#define S "<|sep|>"
#define END C "message" S "<|end_of_msg|>"
#define THINK O "message role=\"assistant\"" S O "think" S
#define USER(text) O "message role=\"user\"" S text END

static void renders_the_worked_examples(void **state)
{
    (void)state;
    assert_renders(
        "{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}],\"thinking_effort\":\"max\"}", O
        "message role=\"system\" type=\"thinking-effort\"" S
        "`thinking_effort` guides on how much to think in your thinking channel (not including the response channel), "
        "supported values include `low`, `medium`, `high`, and `max`.\nNow the system is invoked with "
        "`thinking_effort=max`." END USER("Hi") THINK);
    assert_renders("{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}],\"thinking\":false}",
                   USER("Hi") O "message role=\"assistant\"" S O "response" S);
    assert_renders("{\"messages\":[{\"role\":\"user\",\"content\":\"q1\"},{\"role\":\"assistant\",\"content\":\"a1\","
                   "\"reasoning_content\":\"because\"},{\"role\":\"user\",\"content\":\"q2\"}]}",
                   USER("q1") THINK "because" C "think" S O "response" S "a1" C "response" S END USER("q2") THINK);
    assert_renders(
        "{\"messages\":[{\"role\":\"user\",\"content\":\"weather?\"},{\"role\":\"assistant\",\"reasoning\":\"call it\","
        "\"content\":\"\",\"tool_calls\":[{\"id\":\"call_a\",\"function\":{\"name\":\"get_weather\",\"arguments\":"
        "\"{\\\"city\\\":\\\"Paris\\\",\\\"days\\\":3}\"}}]},{\"role\":\"tool\",\"tool_call_id\":\"call_a\","
        "\"content\":\"18C\"}]}",
        USER("weather?") THINK "call it" C "think" S O "response" S C "response" S O "tools" S O
                               "call tool=\"get_weather\" index=\"1\"" S O "argument key=\"city\" type=\"string\"" S
                               "Paris" C "argument" S O "argument key=\"days\" type=\"number\"" S "3" C "argument" S C
                               "call" S C "tools" S END O "message role=\"tool\" tool=\"get_weather\" index=\"1\"" S
                               "18C" END THINK);
    assert_renders("{\"messages\":[{\"role\":\"user\",\"name\":\"bob \\\"x\\\" & y\",\"content\":\"q\"}],"
                   "\"add_generation_prompt\":false}",
                   O "message role=\"user\" name=\"bob &quot;x&quot; &amp; y\"" S "q" END);
    assert_renders("{\"messages\":[{\"role\":\"system\",\"content\":\"ignored\",\"tools\":[{\"b\":1,\"a\":[2.0]}]}],"
                   "\"add_generation_prompt\":false}",
                   O
                   "message role=\"system\" type=\"tool-declare\"" S
                   "## New Tools Available\nThe system dynamically extends the toolset via lazy-loading.\n"
                   "You have access to all existing and extended tools.\nHere are the specs for the extended tools.\n\n"
                   "```json\n[{\"a\":[2.0],\"b\":1}]\n```" END);
}

/* One assistant message with a call of f, its arguments spelled as given, and what stands inside the call. */
static void assert_arguments(const char *arguments, const char *want)
{
    char *request = k3_asprintf("{\"thinking\":false,\"add_generation_prompt\":false,\"messages\":[{\"role\":"
                                "\"assistant\",\"tool_calls\":[{\"name\":\"f\",\"arguments\":%s}]}]}",
                                arguments);
    char *prompt = k3_asprintf("%s%s%s",
                               O "message role=\"assistant\"" S O "response" S C "response" S O "tools" S O
                                 "call tool=\"f\" index=\"1\"" S,
                               want, C "call" S C "tools" S END);

    assert_renders(request, prompt);
    free(prompt);
    free(request);
}

#define ARGUMENT(key, type, value) O "argument key=\"" key "\" type=\"" type "\"" S value C "argument" S
#define BLOCK(text) O "json type=\"object\"" S text C "json" S

static void arguments_come_as_object_or_text(void **state)
{
    (void)state;
    assert_arguments("{\"a\":[1,{\"z\":1,\"b\":\"\\u00e9\"}]}",
                     ARGUMENT("a", "array", "[1, {\"z\": 1, \"b\": \"\xc3\xa9\"}]"));
    assert_arguments("\"{\\\"b\\\":true,\\\"a\\\":null}\"",
                     ARGUMENT("b", "boolean", "true") ARGUMENT("a", "null", "null"));
    assert_arguments("null", "");
    assert_arguments("\" \\u001c\\n\"", "");
    assert_arguments("\"{bad json\"", BLOCK("{bad json"));
    assert_arguments("\"{} trailing\"", BLOCK("{} trailing"));
    assert_arguments("{\"n\":123456789012345678901234567890}",
                     ARGUMENT("n", "number", "123456789012345678901234567890"));
    assert_arguments("\"{\\\"n\\\":-18446744073709551616}\"", ARGUMENT("n", "number", "-18446744073709551616"));
    assert_arguments("\"{\\\"n\\\":1e999}\"", BLOCK("{\"n\":1e999}"));
    assert_arguments("{\"\":\"\"}", O "argument key=\"\" type=\"string\"" S C "argument" S);
    /* The last of two equal keys wins, in the place of the first. */
    assert_arguments("\"{\\\"a\\\":1,\\\"b\\\":2,\\\"a\\\":3}\"",
                     ARGUMENT("a", "number", "3") ARGUMENT("b", "number", "2"));
}

static void results_follow_their_calls(void **state)
{
    static const char calls[] =
        "{\"thinking\":false,\"add_generation_prompt\":false,\"messages\":[{\"role\":\"assistant\",\"tool_calls\":["
        "{\"id\":\"A\",\"function\":{\"name\":\"f\"}},{\"id\":\"B\",\"function\":{\"name\":\"g\"}}]}%s]}";
    static const struct {
        const char *results, *want;
    } cases[] = {
        /* sorted, the call's name above a stale one, two answers to one call in their order */
        {",{\"role\":\"tool\",\"tool_call_id\":\"B\",\"content\":\"1\",\"tool\":\"stale\"},"
         "{\"role\":\"tool\",\"id\":\"A\",\"content\":\"2\"},{\"role\":\"tool\",\"tool_call_id\":\"B\",\"content\":"
         "\"3\"}",
         O "message role=\"tool\" tool=\"f\" index=\"1\"" S "2" END O "message role=\"tool\" tool=\"g\" index=\"2\"" S
           "1" END O "message role=\"tool\" tool=\"g\" index=\"3\"" S "3" END},
        /* one id unknown: as they stand, named by themselves or by order */
        {",{\"role\":\"tool\",\"tool_call_id\":\"B\",\"content\":\"1\"},"
         "{\"role\":\"tool\",\"tool_call_id\":\"X\",\"content\":\"2\",\"name\":\"h\"}",
         O "message role=\"tool\" tool=\"f\" index=\"1\"" S "1" END O "message role=\"tool\" tool=\"h\" index=\"2\"" S
           "2" END},
        /* a user message parts the runs; the count goes on */
        {",{\"role\":\"tool\",\"tool_call_id\":\"B\",\"content\":\"1\"},{\"role\":\"user\",\"content\":\"u\"},"
         "{\"role\":\"tool\",\"tool_call_id\":\"A\",\"content\":\"2\"}",
         O "message role=\"tool\" tool=\"g\" index=\"1\"" S "1" END USER("u") O
         "message role=\"tool\" tool=\"f\" index=\"2\"" S "2" END},
    };
    (void)state;

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *request = k3_asprintf(calls, cases[i].results);
        char *want = k3_asprintf("%s%s",
                                 O "message role=\"assistant\"" S O "response" S C "response" S O "tools" S O
                                   "call tool=\"f\" index=\"1\"" S C "call" S O "call tool=\"g\" index=\"2\"" S C
                                   "call" S C "tools" S END,
                                 cases[i].want);
        assert_renders(request, want);
        free(want);
        free(request);
    }
}

static void says_where_the_output_begins(void **state)
{
    static const struct {
        const char *request;
        enum parser_start start;
    } cases[] = {
        {"{\"messages\":[]}", PARSER_IN_THINK},
        {"{\"messages\":[],\"thinking\":true}", PARSER_IN_THINK},
        {"{\"messages\":[],\"thinking\":false}", PARSER_IN_RESPONSE},
        {"{\"messages\":[],\"add_generation_prompt\":false}", PARSER_IN_MESSAGE},
    };
    (void)state;

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct chat_prompt *p = render(cases[i].request);
        assert_int_equal(chat_start(p), cases[i].start);
        chat_destroy(p);
    }
}

static void faults_are_refused_by_key(void **state)
{
#define MESSAGE(fields) "{\"messages\":[{\"role\":\"user\",\"content\":\"\"}," fields "]}"
#define CALL(fields) MESSAGE("{\"role\":\"assistant\",\"tool_calls\":[{\"name\":\"f\"}," fields "]}")
#define WITH(fields) "{\"messages\":[]," fields "}"
    static const struct {
        const char *request, *why;
    } cases[] = {
        {"", "request: not JSON: line 1"},
        {"{\"messages\":[\"secret\"", "request: not JSON: line 1 column 21: "},
        {"[]", "request: must be a JSON object"},
        {"{}", "messages: is missing"},
        {"{\"messages\":{}}", "messages: must be a list"},
        {"{\"messages\":[7]}", "messages[0]: must be an object"},
        {MESSAGE("{}"), "messages[1].role: is missing"},
        {MESSAGE("{\"role\":3}"), "messages[1].role: must be a string"},
        {MESSAGE("{\"role\":12345678901234567890}"), "messages[1].role: must be a string"},
        {MESSAGE("{\"role\":\"dev\\nil\"}"), "messages[1].role: \"dev?il\" is none of"},
        {MESSAGE("{\"role\":\"user\",\"name\":[]}"), "messages[1].name: must be a string"},
        {MESSAGE("{\"role\":\"user\",\"content\":7}"), "messages[1].content: must be a string or a list of parts"},
        {MESSAGE("{\"role\":\"user\",\"content\":[\"x\"]}"), "messages[1].content[0]: must be an object"},
        {MESSAGE("{\"role\":\"user\",\"content\":[{\"type\":\"image_url\",\"image_url\":{}}]}"),
         "messages[1].content[0].type: images are not served"},
        {MESSAGE("{\"role\":\"user\",\"content\":[{\"type\":\"video\"}]}"),
         "messages[1].content[0].type: \"video\" is not a kind of content"},
        {MESSAGE("{\"role\":\"user\",\"content\":[{\"type\":\"text\"}]}"), "messages[1].content[0].text: is missing"},
        {MESSAGE("{\"role\":\"system\",\"tools\":[1]}"), "messages[1].tools[0]: must be an object"},
        {MESSAGE("{\"role\":\"assistant\",\"tool_calls\":7}"), "messages[1].tool_calls: must be a list"},
        {MESSAGE("{\"role\":\"assistant\",\"reasoning\":7}"), "messages[1].reasoning: must be a string"},
        {CALL("7"), "messages[1].tool_calls[1]: must be an object"},
        {CALL("{}"), "messages[1].tool_calls[1].name: is missing"},
        {CALL("{\"function\":{}}"), "messages[1].tool_calls[1].function.name: is missing"},
        {CALL("{\"name\":\"f\",\"arguments\":[]}"), "tool_calls[1].arguments: must be an object or the text of one"},
        {CALL("{\"name\":\"f\",\"arguments\":\"[]\"}"), "tool_calls[1].arguments: is JSON but not an object"},
        {MESSAGE("{\"role\":\"tool\"}"), "messages[1].tool: is missing"},
        {WITH("\"tools\":{}"), "tools: must be a list"},
        {WITH("\"tools\":[[]]"), "tools[0]: must be an object"},
        {WITH("\"thinking\":\"no\""), "thinking: must be true or false"},
        {WITH("\"thinking_effort\":\"extreme\""), "thinking_effort: \"extreme\" is none of low, medium, high and max"},
        {WITH("\"thinking_effort\":\"\",\"thinking\":false"), "thinking_effort: \"\" is none of"},
        {WITH("\"tool_choice\":\"any\""), "tool_choice: \"any\" is none of auto, none and required"},
        {WITH("\"response_format\":7"), "response_format: must be an object"},
        {WITH("\"response_format\":{}"), "response_format.type: is missing"},
        {WITH("\"response_format\":{\"type\":\"xml\"}"), "response_format.type: \"xml\" is none of"},
        {WITH("\"response_format\":{\"type\":\"json_schema\"}"), "response_format.json_schema: must be an object"},
        {WITH("\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"schema\":7}}"),
         "response_format.json_schema.schema: must be an object"},
        {WITH("\"add_generation_prompt\":1"), "add_generation_prompt: must be true or false"},
        {WITH("\"tools\":[{\"minimum\":1e999}]"), "request: not JSON: line 1 column 40: real number overflow"},
    };
    struct k3_error err;
    (void)state;

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct chat_prompt *p = chat_render(cases[i].request, strlen(cases[i].request), &err);
        if (p || !strstr(err.text, cases[i].why) || strstr(err.text, "secret"))
            fail_msg("%s says: %s", cases[i].request, p ? "accepted" : err.text);
    }
}

static void limits_come_before_work(void **state)
{
    struct k3_error err;
    char *request = k3_zalloc(CHAT_MESSAGES_MAX * 3 + 64);
    (void)state;

    /* The length alone refuses: the text is not read. */
    assert_null(chat_render("", (size_t)CHAT_BYTES_MAX + 1, &err));
    assert_non_null(strstr(err.text, "request: has 16777217 bytes; at most 16777216 are taken"));

    char *s = request + sprintf(request, "{\"messages\":[{}");
    for (int i = 0; i < CHAT_MESSAGES_MAX; i++)
        s += sprintf(s, ",{}");
    strcpy(s, "]}");
    assert_null(chat_render(request, strlen(request), &err));
    assert_non_null(strstr(err.text, "messages: has 16385 entries; at most 16384 are taken"));

    memset(request, '[', 129);
    assert_null(chat_render(request, 129, &err));
    assert_non_null(strstr(err.text, "nested more than 128 deep"));
    free(request);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(renders_as_the_reference_does),    cmocka_unit_test(renders_the_worked_examples),
        cmocka_unit_test(arguments_come_as_object_or_text), cmocka_unit_test(results_follow_their_calls),
        cmocka_unit_test(says_where_the_output_begins),     cmocka_unit_test(faults_are_refused_by_key),
        cmocka_unit_test(limits_come_before_work),
    };
    return cmocka_run_group_tests_name("chat", tests, load_toy, destroy_toy);
}
