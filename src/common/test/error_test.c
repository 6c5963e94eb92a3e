/* error_test.c - the sentence: kept errno, truncation, context in front */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "common/error.h"

static void keeps_errno_and_returns_minus_one(void **state)
{
    struct k3_error err;
    (void)state;
    errno = ENOENT;
    assert_int_equal(k3_errorf(&err, "no %s", "tea"), -1);
    assert_int_equal(errno, ENOENT);
    assert_string_equal(err.text, "no tea");
    assert_int_equal(k3_errorf(NULL, "nobody listens"), -1);
}

static void may_quote_the_sentence_it_replaces(void **state)
{
    struct k3_error err;
    (void)state;
    k3_errorf(&err, "inner");
    k3_errorf(&err, "outer: %s", err.text);
    assert_string_equal(err.text, "outer: inner");
    k3_error_prefix(&err, "file %d: ", 7);
    assert_string_equal(err.text, "file 7: outer: inner");
}

static void long_sentences_are_cut_and_terminated(void **state)
{
    struct k3_error err;
    char big[2000];
    (void)state;
    memset(big, 'x', sizeof big);
    big[sizeof big - 1] = '\0';
    k3_errorf(&err, "%s", big);
    assert_int_equal(strlen(err.text), sizeof err.text - 1);
    k3_error_prefix(&err, "%s", big);
    assert_int_equal(strlen(err.text), sizeof err.text - 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keeps_errno_and_returns_minus_one),
        cmocka_unit_test(may_quote_the_sentence_it_replaces),
        cmocka_unit_test(long_sentences_are_cut_and_terminated),
    };
    return cmocka_run_group_tests_name("error", tests, NULL, NULL);
}
