#include "common/notify.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/log.h"

static void notify(const char *text)
{
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    int fd;

    if (!path || !*path)
        return;
    size_t len = strlen(path);
    if (len >= sizeof to.sun_path || (fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)) < 0)
        return;
    memcpy(to.sun_path, path, len);
    if (*path == '@') /* a name that is in no file system */
        to.sun_path[0] = '\0';
    if (sendto(fd, text, strlen(text), MSG_NOSIGNAL, (struct sockaddr *)&to,
               (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len)) < 0)
        log_warning("systemd is not told %s: %m", text);
    close(fd);
}

void notify_ready(void)
{
    notify("READY=1");
}

void notify_reloading(void)
{
    char text[64];

    snprintf(text, sizeof text, "RELOADING=1\nMONOTONIC_USEC=%.0f", clock_monotonic() * 1e6);
    notify(text);
}

void notify_stopping(void)
{
    notify("STOPPING=1");
}
