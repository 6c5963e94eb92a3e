/* guard_test.c - a host that runs out of memory is noticed, once, and one that has too little at once */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/fault.h"
#include "gpu/guard.h"

static void write_left(uint64_t left, void *arg)
{
    ssize_t n = write(*(int *)arg, &left, sizeof left);
    (void)n;
}

static void starving_is_told_once(void **state)
{
    struct k3_error err;
    uint64_t left = 0;
    int ends[2];
    (void)state;

    setenv("K3_FAULT", "memory-low:2", 1); /* the second look */
    fault_init();
    assert_int_equal(pipe(ends), 0);
    struct guard *g = guard_create(2, write_left, &ends[1], &err);
    assert_non_null(g);
    assert_int_equal(read(ends[0], &left, sizeof left), sizeof left);
    assert_int_equal(left, 1);
    guard_destroy(g);
    guard_destroy(NULL);
    close(ends[1]);
    assert_int_equal(read(ends[0], &left, sizeof left), 0);
    close(ends[0]);
}

static void too_little_at_the_start_is_refused(void **state)
{
    struct k3_error err;
    (void)state;

    assert_true(guard_available_bytes() > 1 << 20);
    assert_null(guard_create(UINT64_MAX, write_left, NULL, &err));
    assert_non_null(strstr(err.text, "of memory left"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(starving_is_told_once),
        cmocka_unit_test(too_little_at_the_start_is_refused),
    };

    return cmocka_run_group_tests_name("guard", tests, NULL, NULL);
}
