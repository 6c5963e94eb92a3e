/* The copy says what the original said, which says nothing any more. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "common/argv.h"

static void test_argv(void **state)
{
    char text[] = "program\0-x\0\0a secret";
    char *argv[] = {text, text + 8, text + 11, text + 12, NULL};
    char **copy = argv_hide(4, argv);

    (void)state;
    assert_string_equal(copy[0], "program");
    assert_string_equal(copy[1], "-x");
    assert_string_equal(copy[2], "");
    assert_string_equal(copy[3], "a secret");
    assert_null(copy[4]);
    assert_string_equal(text, "program");
    for (size_t i = 7; i < sizeof text; i++)
        assert_int_equal(text[i], 0);
    free(copy);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_argv)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
