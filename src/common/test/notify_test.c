/* What systemd would read. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/log.h"
#include "common/notify.h"

/* A socket of this name, in the file system or not, as NOTIFY_SOCKET. */
static int listen_at(const char *name)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_DGRAM, 0);
    socklen_t len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(name));

    memcpy(at.sun_path, name, strlen(name));
    if (*name == '@')
        at.sun_path[0] = '\0';
    assert_int_equal(bind(fd, (struct sockaddr *)&at, len), 0);
    setenv("NOTIFY_SOCKET", name, 1);
    return fd;
}

static void expect(int fd, const char *text)
{
    char got[200] = "";

    assert_true(recv(fd, got, sizeof got - 1, MSG_DONTWAIT) > 0);
    assert_int_equal(strncmp(got, text, strlen(text)), 0);
}

static void test_a_path(void **state)
{
    char dir[] = "/tmp/k3notify.XXXXXX", name[64];

    (void)state;
    assert_non_null(mkdtemp(dir));
    snprintf(name, sizeof name, "%s/socket", dir);
    int fd = listen_at(name);
    notify_ready();
    expect(fd, "READY=1");
    notify_reloading();
    expect(fd, "RELOADING=1\nMONOTONIC_USEC=");
    notify_stopping();
    expect(fd, "STOPPING=1");
    close(fd);
    notify_ready(); /* nobody listens any more: no harm */
    unlink(name);
    rmdir(dir);
}

static void test_a_name(void **state)
{
    char name[64];

    (void)state;
    snprintf(name, sizeof name, "@k3notify-%d", (int)getpid());
    int fd = listen_at(name);
    notify_ready();
    expect(fd, "READY=1");
    close(fd);
    unsetenv("NOTIFY_SOCKET");
    notify_ready();
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_a_path), cmocka_unit_test(test_a_name)};

    k3_log_init("notify_test", LOG_EMERG);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
