/* network_test.c - what NCCL is told to use is there, or is named before it waits for it */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "comm/network.h"
#include "common/alloc.h"

static char sys_class[] = "/tmp/k3-network-XXXXXX";

static int setup(void **state)
{
    static const char *const dirs[] = {"mlx5_0", "mlx5_0/ports", "mlx5_0/ports/1", "rocep1s0f0"};

    (void)state;
    if (!mkdtemp(sys_class))
        return -1;
    for (size_t i = 0; i < sizeof dirs / sizeof *dirs; i++) {
        char *path = k3_asprintf("%s/%s", sys_class, dirs[i]);
        mkdir(path, 0755);
        free(path);
    }
    return 0;
}

static int teardown(void **state)
{
    char *command = k3_asprintf("rm -r %s", sys_class);
    int rc = system(command);

    (void)state;
    free(command);
    return rc;
}

static int forget(void **state)
{
    (void)state;
    unsetenv("NCCL_SOCKET_IFNAME");
    unsetenv("NCCL_IB_HCA");
    return 0;
}

static void what_is_there_is_taken(void **state)
{
    struct k3_error err = {""};

    (void)state;
    assert_int_equal(network_choose_in("lo", "mlx5_0:1,rocep1s0f0", sys_class, &err), 0);
    assert_string_equal(getenv("NCCL_SOCKET_IFNAME"), "=lo");
    assert_string_equal(getenv("NCCL_IB_HCA"), "=mlx5_0:1,rocep1s0f0");
}

static void nothing_said_is_nccls_choice(void **state)
{
    struct k3_error err = {""};

    (void)state;
    assert_int_equal(network_choose_in("", "", sys_class, &err), 0);
    assert_null(getenv("NCCL_SOCKET_IFNAME"));
    assert_null(getenv("NCCL_IB_HCA"));
}

static void the_environment_counts_more(void **state)
{
    struct k3_error err = {""};

    (void)state;
    setenv("NCCL_SOCKET_IFNAME", "eth7", 1);
    assert_int_equal(network_choose_in("no-such-one", "", sys_class, &err), 0);
    assert_string_equal(getenv("NCCL_SOCKET_IFNAME"), "eth7");
}

static void what_is_not_there_is_named(void **state)
{
    static const struct {
        const char *interfaces, *adapters, *sentence;
    } bad[] = {
        {"lo,nosuch0", "", "k3served.nccl_interface = \"lo,nosuch0\": this node has no network interface \"nosuch0\""},
        {"lo,", "", "k3served.nccl_interface = \"lo,\": this node has no network interface \"\""},
        {"", "mlx5_1", "k3served.nccl_hca = \"mlx5_1\": this node has no InfiniBand or RoCE adapter \"mlx5_1\""},
        {"", "mlx5_0:2", "k3served.nccl_hca = \"mlx5_0:2\": this node has no InfiniBand or RoCE adapter \"mlx5_0:2\""},
        {"", "../mlx5_0",
         "k3served.nccl_hca = \"../mlx5_0\": this node has no InfiniBand or RoCE adapter \"../mlx5_0\""},
    };

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct k3_error err = {""};
        assert_int_equal(network_choose_in(bad[i].interfaces, bad[i].adapters, sys_class, &err), -1);
        assert_string_equal(err.text, bad[i].sentence);
    }
    assert_null(getenv("NCCL_IB_HCA"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(what_is_there_is_taken, forget),
        cmocka_unit_test_setup(nothing_said_is_nccls_choice, forget),
        cmocka_unit_test_setup(the_environment_counts_more, forget),
        cmocka_unit_test_setup(what_is_not_there_is_named, forget),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
