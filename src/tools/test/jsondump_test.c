/* jsondump_test.c - what Python's json.dump(json.load(f), out, indent=1) makes of the same text */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tools/jsondump.h"

static void check(const char *text, const char *want)
{
    json_t *value = json_loads(text, JSON_DECODE_ANY, NULL);
    char *got = NULL;
    size_t len;
    FILE *out = open_memstream(&got, &len);

    assert_non_null(value);
    jsondump(value, out);
    fclose(out);
    assert_string_equal(got, want);
    json_decref(value);
    free(got);
}

static void containers(void **state)
{
    (void)state;
    check("{}", "{}");
    check("[]", "[]");
    check("{\"b\":[1,[],{}],\"a\":{\"c\":null}}",
          "{\n \"b\": [\n  1,\n  [],\n  {}\n ],\n \"a\": {\n  \"c\": null\n }\n}");
    check("[true,false,-7,9223372036854775807]", "[\n true,\n false,\n -7,\n 9223372036854775807\n]");
}

static void reals_are_as_short_as_they_can_be(void **state)
{
    static const char *const pairs[][2] = {
        {"0.0", "0.0"},
        {"-0.0", "-0.0"},
        {"1e-05", "1e-05"},
        {"0.00001234", "1.234e-05"},
        {"0.0001", "0.0001"},
        {"0.001234", "0.001234"},
        {"2.5", "2.5"},
        {"25.0", "25.0"},
        {"-5.0", "-5.0"},
        {"0.1", "0.1"},
        {"1e2", "100.0"},
        {"123456.75", "123456.75"},
        {"1e15", "1000000000000000.0"},
        {"1e16", "1e+16"},
        {"12345678901234567890.0", "1.2345678901234567e+19"},
        {"1e300", "1e+300"},
        {"5e-324", "5e-324"},
        {"0.30000000000000004", "0.30000000000000004"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        check(pairs[i][0], pairs[i][1]);
}

static void strings_are_ascii(void **state)
{
    (void)state;
    check("\"re:.*mlp\\\\.(gate|up)\"", "\"re:.*mlp\\\\.(gate|up)\"");
    check("\"\\\"\\/\\b\\f\\n\\r\\t\\u0001\x7f\"", "\"\\\"/\\b\\f\\n\\r\\t\\u0001\\u007f\"");
    check("\"\xc3\xa9 \xe6\x9c\x88 \xf0\x9f\x8c\x99\"", "\"\\u00e9 \\u6708 \\ud83c\\udf19\"");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(containers),
        cmocka_unit_test(reals_are_as_short_as_they_can_be),
        cmocka_unit_test(strings_are_ascii),
    };
    return cmocka_run_group_tests_name("jsondump", tests, NULL, NULL);
}
