/* A message may be read after its connection has ended: what is done for it must not meet the next connection. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "queue/crowd.h"
#include "queue/gate.h"

enum { ROOM = 256 }; /* descriptors of this process */

static int listener;
static struct sockaddr_un address = {.sun_family = AF_UNIX};

static int setup(void **state)
{
    struct rlimit limit = {ROOM, ROOM};

    (void)state;
    setrlimit(RLIMIT_NOFILE, &limit);
    gate_open();
    snprintf(address.sun_path + 1, sizeof address.sun_path - 1, "k3-gate-test-%d", (int)getpid());
    listener = socket(AF_UNIX, SOCK_STREAM, 0);
    return bind(listener, (struct sockaddr *)&address, sizeof address) < 0 ? -1 : listen(listener, 8);
}

static int teardown(void **state)
{
    (void)state;
    return close(listener);
}

/* Both ends. */
static void meet(int *client, int *server)
{
    *client = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(connect(*client, (struct sockaddr *)&address, sizeof address), 0);
    *server = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
}

static int is_cut(int client)
{
    char byte;

    return recv(client, &byte, 1, MSG_DONTWAIT) == 0;
}

static void test_late_message_meets_nobody(void **state)
{
    int client, server, first;
    char who[CROWD_NAME];

    (void)state;
    meet(&client, &first);
    assert_true(first >= 0);
    close(client);
    close(first);
    meet(&client, &server);
    assert_false(crowd_expel(first, who));
    assert_false(is_cut(client));
    assert_true(crowd_expel(server, who));
    assert_true(is_cut(client));
    close(client);
    close(server);
}

static void test_numbers_come_round(void **state)
{
    (void)state;
    for (int i = 0; i < 5 * ROOM; i++) {
        int client, server;
        meet(&client, &server);
        assert_true(server >= 0 && (unsigned int)server < gate_width());
        close(client);
        close(server);
    }
}

static void test_full(void **state)
{
    int client[ROOM], server[ROOM], n = 0;

    (void)state;
    for (;; n++) {
        meet(&client[n], &server[n]);
        if (server[n] < 0)
            break;
    }
    assert_int_equal(errno, ECONNABORTED);
    assert_in_range(n, gate_width() / 2 - 8, gate_width() / 2); /* each takes one at either end */
    assert_int_equal(gate_refused(), 1);
    for (int i = 0; i < n; i++)
        close(client[i]), close(server[i]);
    close(client[n]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_late_message_meets_nobody),
        cmocka_unit_test(test_numbers_come_round),
        cmocka_unit_test(test_full),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
