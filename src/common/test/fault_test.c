/* fault_test.c - fault points: off by default, every time, the Nth time only */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "common/fault.h"
#include "common/log.h"

static void nothing_fires_without_the_variable(void **state)
{
    (void)state;
    unsetenv("K3_FAULT");
    fault_init();
    assert_false(fault("a"));
    setenv("K3_FAULT", "", 1);
    fault_init();
    assert_false(fault("a"));
}

static void a_bare_name_fires_every_time_and_only_that_name(void **state)
{
    (void)state;
    setenv("K3_FAULT", "a,b", 1);
    fault_init();
    assert_true(fault("a"));
    assert_true(fault("a"));
    assert_true(fault("b"));
    assert_false(fault("ab"));
    assert_false(fault("c"));
}

static void a_counted_name_fires_once(void **state)
{
    (void)state;
    setenv("K3_FAULT", "b,a:3", 1);
    fault_init();
    assert_false(fault("a"));
    assert_false(fault("a"));
    assert_true(fault("a"));
    assert_false(fault("a"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_fires_without_the_variable),
        cmocka_unit_test(a_bare_name_fires_every_time_and_only_that_name),
        cmocka_unit_test(a_counted_name_fires_once),
    };
    k3_log_init("fault_test", LOG_ERR);
    return cmocka_run_group_tests_name("fault", tests, NULL, NULL);
}
