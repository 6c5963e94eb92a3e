/* comm_self_test.c - one process: every collective gives back what it was given, and comm_create() sees who started us
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "comm/boot.h"
#include "comm/comm.h"

static void everything_is_a_copy(void **state)
{
    struct comm *c = comm_self_create();
    struct k3_stream *s = kern_stream_create("ref", 1);
    struct k3_error err;
    float x[6] = {1, -0.0f, 3, 4, 5, 6}, all[6] = {0};
    const float before[6] = {1, -0.0f, 3, 4, 5, 6};
    const int64_t begin[2] = {0, 3};
    (void)state;

    assert_int_equal(comm_rank(c), 0);
    assert_int_equal(comm_size(c), 1);
    assert_int_equal(comm_allreduce(c, s, x, 6, &err), 0);
    assert_memory_equal(x, before, sizeof x);
    assert_int_equal(comm_allgather_columns(c, s, &(struct comm_columns){x, all, begin}, 1, 2, &err), 0);
    assert_memory_equal(all, before, sizeof all);
    memset(all, 0, sizeof all);
    assert_int_equal(comm_allgather(c, x, all, sizeof x, &err), 0);
    assert_memory_equal(all, before, sizeof all);
    assert_int_equal(comm_broadcast(c, x, sizeof x, 0, &err), 0);
    assert_int_equal(comm_broadcast_idle(c, x, sizeof x, 0, &err), 0);
    assert_memory_equal(x, before, sizeof x);
    assert_int_equal(comm_barrier(c, &err), 0);
    comm_destroy(c);
    comm_destroy(NULL);
    kern_stream_destroy(s);
}

static void alone_without_a_launcher(void **state)
{
    struct k3_error err;
    (void)state;

    struct comm *c = comm_create(&err);
    assert_non_null(c);
    assert_int_equal(comm_size(c), 1);
    comm_destroy(c);
}

static void tasks_without_pmix_are_refused(void **state)
{
    struct k3_error err;
    (void)state;

    setenv("SLURM_STEP_NUM_TASKS", "4", 1);
    assert_null(comm_create(&err));
    assert_non_null(strstr(err.text, "one of 4 tasks"));
    assert_non_null(strstr(err.text, "--mpi=pmix"));
    unsetenv("SLURM_STEP_NUM_TASKS");
}

static void boot_alone_hears_itself(void **state)
{
    struct k3_error err;
    char said[4] = "";
    (void)state;

    struct boot *b = boot_create(&err);
    assert_non_null(b);
    assert_int_equal(boot_rank(b), 0);
    assert_int_equal(boot_size(b), 1);
    assert_true(boot_node(b)[0] != '\0');
    assert_int_equal(boot_exchange(b, "word", "tea", 4, said, &err), 0);
    assert_string_equal(said, "tea");
    boot_destroy(b);
    boot_destroy(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(everything_is_a_copy),
        cmocka_unit_test(alone_without_a_launcher),
        cmocka_unit_test(tasks_without_pmix_are_refused),
        cmocka_unit_test(boot_alone_hears_itself),
    };

    /* Whoever runs the tests may itself be a task of a job. */
    unsetenv("OMPI_COMM_WORLD_SIZE");
    unsetenv("PMIX_RANK");
    unsetenv("SLURM_STEP_NUM_TASKS");
    return cmocka_run_group_tests_name("comm_self", tests, NULL, NULL);
}
