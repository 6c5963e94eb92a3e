#include "comm/network.h"

#include <errno.h>
#include <net/if.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/alloc.h"
#include "common/log.h"

static int has_interface(const char *name, const char *sys_class)
{
    (void)sys_class;
    return if_nametoindex(name) != 0;
}

/* Of an adapter "NAME" or "NAME:PORT". */
static int has_adapter(const char *name, const char *sys_class)
{
    int len = (int)strcspn(name, ":");
    char *path = name[len] ? k3_asprintf("%s/%.*s/ports/%s", sys_class, len, name, name + len + 1)
                           : k3_asprintf("%s/%s", sys_class, name);
    int has = len > 0 && !strchr(name, '/') && access(path, F_OK) == 0;

    free(path);
    return has;
}

static const struct choice {
    const char *setting, *variable, *what;
    int (*has)(const char *name, const char *sys_class);
} interface_choice = {"k3served.nccl_interface", "NCCL_SOCKET_IFNAME", "network interface", has_interface},
  adapter_choice = {"k3served.nccl_hca", "NCCL_IB_HCA", "InfiniBand or RoCE adapter", has_adapter};

static int check_names(const struct choice *c, const char *names, const char *sys_class, struct k3_error *err)
{
    char *list = k3_strdup(names), *rest = list, *name;
    int rc = 0;

    while (rc == 0 && (name = strsep(&rest, ","))) {
        if (c->has(name, sys_class))
            continue;
        errno = ENODEV;
        rc = k3_errorf(err, "%s = \"%s\": this node has no %s \"%s\"", c->setting, names, c->what, name);
    }
    free(list);
    return rc;
}

/* NCCL takes names behind = as they are, and others as beginnings of names. */
static int choose(const struct choice *c, const char *names, const char *sys_class, struct k3_error *err)
{
    const char *said = getenv(c->variable);

    if (said && *said) {
        log_info("NCCL: %s=%s, as the environment says%s%s", c->variable, said, *names ? "; not used: " : "",
                 *names ? c->setting : "");
        return 0;
    }
    if (!*names)
        return 0;
    if (check_names(c, names, sys_class, err) < 0)
        return -1;
    char *value = k3_asprintf("=%s", names);
    setenv(c->variable, value, 1);
    log_info("NCCL: %s=%s (%s)", c->variable, value, c->setting);
    free(value);
    return 0;
}

int network_choose_in(const char *interfaces, const char *adapters, const char *sys_class, struct k3_error *err)
{
    if (choose(&interface_choice, interfaces, sys_class, err) < 0)
        return -1;
    return choose(&adapter_choice, adapters, sys_class, err);
}

int network_choose(const char *interfaces, const char *adapters, struct k3_error *err)
{
    return network_choose_in(interfaces, adapters, "/sys/class/infiniband", err);
}
