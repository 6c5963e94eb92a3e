/* id_test.c - request ids: text form, parsing, prefixes */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "wire/id.h"

static const char digits[] = "0123456789abcdef00ff7f8012345678";

static void text_and_bytes_are_the_same_id(void **state)
{
    struct k3_id id;
    char text[K3_ID_DIGITS + 1];
    (void)state;
    assert_int_equal(k3_id_parse(&id, digits), 0);
    assert_int_equal(id.bytes[0], 0x01);
    assert_int_equal(id.bytes[15], 0x78);
    assert_string_equal(k3_id_format(&id, text), digits);
    assert_int_equal(k3_id_parse(&id, "0123456789ABCDEF00FF7F8012345678"), 0);
    assert_string_equal(k3_id_format(&id, text), digits);
}

static void other_text_is_refused_and_changes_nothing(void **state)
{
    static const char *const wrong[] = {"",
                                        "0123",
                                        "0123456789abcdef00ff7f801234567",
                                        "0123456789abcdef00ff7f80123456789",
                                        "0123456789abcdef00ff7f801234567g",
                                        " 123456789abcdef00ff7f8012345678"};
    struct k3_id id, before;
    (void)state;
    k3_id_random(&id);
    before = id;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(k3_id_parse(&id, wrong[i]), -1);
        assert_int_equal(errno, EINVAL);
        assert_true(k3_id_equal(&id, &before));
    }
}

static void random_ids_differ(void **state)
{
    struct k3_id a, b, none = {{0}};
    (void)state;
    k3_id_random(&a);
    k3_id_random(&b);
    assert_false(k3_id_equal(&a, &b));
    assert_false(k3_id_is_none(&a));
    assert_true(k3_id_is_none(&none));
}

static void prefixes_match_by_digit(void **state)
{
    struct k3_id id;
    (void)state;
    assert_int_equal(k3_id_parse(&id, digits), 0);
    assert_true(k3_id_has_prefix(&id, "0"));
    assert_true(k3_id_has_prefix(&id, "01234"));
    assert_true(k3_id_has_prefix(&id, "0123456789ABCDEF"));
    assert_true(k3_id_has_prefix(&id, digits));
    assert_false(k3_id_has_prefix(&id, "1"));
    assert_false(k3_id_has_prefix(&id, "01235"));
    assert_false(k3_id_has_prefix(&id, ""));
    assert_false(k3_id_has_prefix(&id, "0123456789abcdef00ff7f80123456780"));
    assert_false(k3_id_is_prefix("01x"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_and_bytes_are_the_same_id),
        cmocka_unit_test(other_text_is_refused_and_changes_nothing),
        cmocka_unit_test(random_ids_differ),
        cmocka_unit_test(prefixes_match_by_digit),
    };
    return cmocka_run_group_tests_name("id", tests, NULL, NULL);
}
