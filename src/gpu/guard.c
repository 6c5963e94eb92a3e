#include "gpu/guard.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/alloc.h"
#include "common/fault.h"

struct guard {
    uint64_t least;
    void (*starve)(uint64_t left, void *arg);
    void *arg;
    pthread_t thread;
    atomic_int stop;
};

uint64_t guard_available_bytes(void)
{
    FILE *f = fopen("/proc/meminfo", "re");
    unsigned long long kib = 0;
    char line[128];

    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "MemAvailable: %llu kB", &kib) == 1)
            break;
    if (f)
        fclose(f);
    return kib << 10;
}

static void *watch(void *arg)
{
    struct guard *g = arg;

    while (!atomic_load(&g->stop)) {
        uint64_t left = fault("memory-low") ? 1 : guard_available_bytes();
        if (left > 0 && left < g->least) {
            g->starve(left, g->arg);
            return NULL;
        }
        nanosleep(&(struct timespec){.tv_nsec = GUARD_MS * 1000000L}, NULL);
    }
    return NULL;
}

struct guard *guard_create(uint64_t least, void (*starve)(uint64_t left, void *arg), void *arg, struct k3_error *err)
{
    uint64_t left = guard_available_bytes();
    struct guard *g;

    if (left > 0 && left < least) {
        errno = ENOMEM;
        k3_errorf(err, "this host has %.2f GiB of memory left, and %.2f GiB shall always be", (double)left / (1 << 30),
                  (double)least / (1 << 30));
        return NULL;
    }
    g = k3_zalloc(sizeof *g);
    *g = (struct guard){.least = least, .starve = starve, .arg = arg};
    if ((errno = pthread_create(&g->thread, NULL, watch, g)) != 0) {
        k3_errorf(err, "a thread that watches the host's memory: %s", strerror(errno));
        free(g);
        return NULL;
    }
    return g;
}

void guard_destroy(struct guard *g)
{
    if (!g)
        return;
    atomic_store(&g->stop, 1);
    pthread_join(g->thread, NULL);
    free(g);
}
