#include "common/fault.h"

#include <stdlib.h>
#include <string.h>

#include "common/log.h"

/* Fault points are reached from everywhere, so what arms them is the process's, like its environment. */
bool fault_armed;
static struct {
    char name[64];
    unsigned long at; /* 0: every time */
    unsigned long reached;
} points[8];
static size_t count;

void fault_init(void)
{
    const char *text = getenv("K3_FAULT");

    count = 0;
    while (text && *text && count < sizeof points / sizeof *points) {
        size_t len = strcspn(text, ",");
        size_t name = strcspn(text, ":,");
        if (name < sizeof points->name) {
            memcpy(points[count].name, text, name);
            points[count].name[name] = '\0';
            points[count].at = name < len ? strtoul(text + name + 1, NULL, 10) : 0;
            points[count++].reached = 0;
        }
        text += len + (text[len] == ',');
    }
    fault_armed = count > 0;
}

bool fault_reached(const char *name)
{
    for (size_t i = 0; i < count; i++) {
        if (strcmp(points[i].name, name) != 0)
            continue;
        points[i].reached++;
        if (points[i].at && points[i].at != points[i].reached)
            return false;
        log_notice("fault point %s reached, time %lu", name, points[i].reached);
        return true;
    }
    return false;
}
