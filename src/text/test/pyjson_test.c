/* pyjson_test.c - JSON as Python writes it */
#include "util.h"

#include "text/pyjson.h"

static void assert_dumps(const char *text, enum pyjson_style style, const char *want)
{
    struct k3_error err;
    struct buf out = {0};
    json_t *value = pyjson_load(text, strlen(text), 16, &err);

    if (!value)
        fail_msg("%s: %s", text, err.text);
    pyjson_dump(&out, value, style);
    if (out.n != strlen(want) || memcmp(out.s, want, out.n) != 0)
        fail_msg("%s: \"%.*s\", not \"%s\"", text, (int)out.n, out.s, want);
    buf_free(&out);
    json_decref(value);
}

/* What repr(float) says in Python 3. */
static void reals_are_pythons(void **state)
{
    static const char *const cases[][2] = {
        {"1.0", "1.0"},
        {"-2.5", "-2.5"},
        {"0.1", "0.1"},
        {"0.0", "0.0"},
        {"-0.0", "-0.0"},
        {"100.0", "100.0"},
        {"1e5", "100000.0"},
        {"123456.789", "123456.789"},
        {"0.0001", "0.0001"},
        {"0.00001", "1e-05"},
        {"0.000012345", "1.2345e-05"},
        {"1e15", "1000000000000000.0"},
        {"1e16", "1e+16"},
        {"12345678901234567.0", "1.2345678901234568e+16"},
        {"1e22", "1e+22"},
        {"1e100", "1e+100"},
        {"1.7976931348623157e308", "1.7976931348623157e+308"},
        {"5e-324", "5e-324"},
        {"2.2250738585072014e-308", "2.2250738585072014e-308"},
        {"0.30000000000000004", "0.30000000000000004"},
        {"9007199254740993.0", "9007199254740992.0"},
        {"5.684341886080802e-14", "5.684341886080802e-14"},
    };
    (void)state;

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_dumps(cases[i][0], PYJSON_SPACED, cases[i][1]);
}

static void integers_keep_every_digit(void **state)
{
    static const char *const cases[] = {
        "0",
        "-7",
        "9223372036854775807",
        "9223372036854775808",
        "-9223372036854775809",
        "18446744073709551615",
        "1000000000000000019884624838656",
        "[12345678901234567890,-12345678901234567890]",
        "{\"a\":12345678901234567890}",
    };
    (void)state;

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_dumps(cases[i], PYJSON_SORTED, cases[i]);
    assert_dumps("-0", PYJSON_SORTED, "0");
    assert_dumps("12345678901234567890.0", PYJSON_SORTED, "1.2345678901234567e+19");
    assert_dumps("12345678901234567890e1", PYJSON_SORTED, "1.2345678901234568e+20");
}

static void no_string_is_taken_for_a_wide_integer(void **state)
{
    static const char *const texts[] = {"\"\\u000012345678901234567890\"", "\"\\u0000\\u00001\"", "\"\\u0000\"",
                                        "\"\\\\u0000\"", "\"12345678901234567890\""};
    (void)state;

    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        json_t *value = pyjson_load(texts[i], strlen(texts[i]), 1, NULL);
        const char *s;
        size_t n;
        assert_non_null(value);
        assert_string_equal(pyjson_type(value), "string");
        assert_true(pyjson_string(value, &s, &n));
        json_decref(value);
        assert_dumps(texts[i], PYJSON_SORTED, texts[i]);
    }
    json_t *wide = pyjson_load("12345678901234567890", 20, 1, NULL);
    const char *s;
    size_t n;
    assert_string_equal(pyjson_type(wide), "number");
    assert_false(pyjson_string(wide, &s, &n));
    json_decref(wide);
}

static void strings_are_escaped_as_python_does(void **state)
{
    (void)state;
    assert_dumps("\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u0000\\u001f\\u007f\\u00e9\\u2028\\ud83c\\udf89\"", PYJSON_SPACED,
                 "\"\\\"\\\\/\\b\\f\\n\\r\\t\\u0000\\u001f\x7f\xc3\xa9\xe2\x80\xa8\xf0\x9f\x8e\x89\"");
}

static void separators_and_order_follow_the_style(void **state)
{
    static const char text[] =
        "{\"b\":[1,{\"z\":null,\"a\":true}],\"\\u00e9\":{},\"B\":[],\"\\ud83c\\udf89\":1,\"\\uff5b\":2}";
    (void)state;

    assert_dumps(text, PYJSON_SPACED,
                 "{\"b\": [1, {\"z\": null, \"a\": true}], \"\xc3\xa9\": {}, \"B\": [], \"\xf0\x9f\x8e\x89\": 1, "
                 "\"\xef\xbd\x9b\": 2}");
    assert_dumps(text, PYJSON_SORTED,
                 "{\"B\":[],\"b\":[1,{\"a\":true,\"z\":null}],\"\xc3\xa9\":{},\"\xef\xbd\x9b\":2,"
                 "\"\xf0\x9f\x8e\x89\":1}");
}

static void what_is_not_json_is_refused(void **state)
{
    static const char *const texts[] = {"",
                                        "{",
                                        "[1,]",
                                        "nul",
                                        "01",
                                        "1.",
                                        "-",
                                        "+1",
                                        "NaN",
                                        "Infinity",
                                        "1e999",
                                        "\"\\ud800\"",
                                        "\"\n\"",
                                        "\"\xff\"",
                                        "[1] 2",
                                        "{1:2}",
                                        "012345678901234567890",
                                        "12345678901234567890x",
                                        "--12345678901234567890",
                                        "-01234567890123456789",
                                        "{12345678901234567890:1}",
                                        "12345678901234567890.",
                                        "{\"\\u0000\":1}"};
    struct k3_error err;
    (void)state;

    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (pyjson_load(texts[i], strlen(texts[i]), 16, &err))
            fail_msg("%s is accepted", texts[i]);
}

static void depth_is_bounded(void **state)
{
    struct k3_error err;
    static const char text[] = "[[{\"[[[[\":\"\\\"[[[\"}],[],[]]"; /* brackets in strings do not count */
    json_t *value;
    (void)state;

    value = pyjson_load(text, strlen(text), 3, &err);
    assert_non_null(value);
    json_decref(value);
    assert_null(pyjson_load("[[[[", 4, 3, &err));
    assert_string_equal(err.text, "nested more than 3 deep");
}

static void blank_is_what_python_strips(void **state)
{
    (void)state;
    assert_true(pyjson_blank("", 0));
    assert_true(pyjson_blank(" \t\r\n\x1c\xc2\x85\xe3\x80\x80", 10));
    assert_false(pyjson_blank(" \xe2\x80\x8b", 4)); /* zero width space is not white */
    assert_false(pyjson_blank("\0", 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reals_are_pythons),
        cmocka_unit_test(integers_keep_every_digit),
        cmocka_unit_test(no_string_is_taken_for_a_wide_integer),
        cmocka_unit_test(strings_are_escaped_as_python_does),
        cmocka_unit_test(separators_and_order_follow_the_style),
        cmocka_unit_test(what_is_not_json_is_refused),
        cmocka_unit_test(depth_is_bounded),
        cmocka_unit_test(blank_is_what_python_strips),
    };
    return cmocka_run_group_tests_name("pyjson", tests, NULL, NULL);
}
