/* agree_test.c - one clear sentence when ranks differ or memory is short */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "engine/agree.h"
#include "gpu/guard.h"

#define GIB (UINT64_C(1) << 30)

static void fill(struct standing *all, int ranks)
{
    memset(all, 0, (size_t)ranks * sizeof *all);
    for (int r = 0; r < ranks; r++) {
        snprintf(all[r].node, sizeof all[r].node, "n%d", r + 1);
        snprintf(all[r].host, sizeof all[r].host, "host%d", r / 2); /* two ranks a host */
        strcpy(all[r].version, "0.1.0");
        strcpy(all[r].model, "abcd");
        strcpy(all[r].backend, "cpu");
        strcpy(all[r].layout, "tp=4");
        all[r].slots = 8;
        all[r].need_bytes = 3 * GIB;
        all[r].available_bytes = 8 * GIB;
    }
}

static void like_ranks_agree(void **state)
{
    struct standing all[4];
    struct k3_error err;
    (void)state;
    fill(all, 4);
    assert_int_equal(agree_check(all, 4, &err), 0);
    all[3].need_bytes = 5 * GIB; /* to the last byte */
    assert_int_equal(agree_check(all, 4, &err), 0);
    assert_int_equal(agree_check(all, 1, &err), 0);
}

static void the_rank_that_differs_is_named(void **state)
{
    struct standing all[4];
    struct k3_error err;
    (void)state;
    fill(all, 4);
    all[2].slots = 16;
    assert_int_equal(agree_check(all, 4, &err), -1);
    assert_string_equal(err.text, "rank 2 on n3 has k3served.slots 16, but rank 0 on n1 has 8");
    strcpy(all[1].version, "0.2.0");
    assert_int_equal(agree_check(all, 4, &err), -1);
    assert_string_equal(err.text, "rank 1 on n2 has k3 version 0.2.0, but rank 0 on n1 has 0.1.0");
}

static void a_rank_with_a_problem_speaks_for_all(void **state)
{
    struct standing all[4];
    struct k3_error err;
    (void)state;
    fill(all, 4);
    memset(&all[3].slots, 0, sizeof all[3].slots); /* it came no further */
    strcpy(all[3].problem.text, "/models/k3/config.json: No such file or directory");
    assert_int_equal(agree_check(all, 4, &err), -1);
    assert_string_equal(err.text, "rank 3 on n4: /models/k3/config.json: No such file or directory");
    assert_int_equal(agree_check(all + 3, 1, &err), -1);
    assert_string_equal(err.text, "/models/k3/config.json: No such file or directory");
}

static void ranks_of_one_host_share_its_memory(void **state)
{
    struct standing all[4];
    struct k3_error err;
    (void)state;
    fill(all, 4);
    all[3].need_bytes = 5 * GIB + 1;
    assert_int_equal(agree_check(all, 4, &err), -1);
    assert_non_null(strstr(err.text, "node n3 has 8.00 GiB of memory available and 2 rank(s) there need 8.00 GiB"));
    strcpy(all[3].host, "host9"); /* alone it has enough */
    assert_int_equal(agree_check(all, 4, &err), 0);
}

static void this_host_says_what_it_has(void **state)
{
    (void)state;
    assert_true(guard_available_bytes() > 16 << 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(like_ranks_agree),
        cmocka_unit_test(the_rank_that_differs_is_named),
        cmocka_unit_test(a_rank_with_a_problem_speaks_for_all),
        cmocka_unit_test(ranks_of_one_host_share_its_memory),
        cmocka_unit_test(this_host_says_what_it_has),
    };
    return cmocka_run_group_tests_name("agree", tests, NULL, NULL);
}
