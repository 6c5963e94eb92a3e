/* median_test.c - of odd and even counts, in any order */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/median.h"

static void the_middle_or_between_the_two(void **state)
{
    double odd[] = {5, -1, 3}, even[] = {4, 1, 10, 2}, one[] = {7};

    (void)state;
    assert_true(median(odd, 3) == 3);
    assert_true(odd[0] == -1 && odd[1] == 3 && odd[2] == 5);
    assert_true(median(even, 4) == 3);
    assert_true(median(one, 1) == 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_middle_or_between_the_two)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
