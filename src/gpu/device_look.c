/* device_look.c - what a GPU is and whether it is as fast as its kind
 *
 * Clocks and temperature come from NVML, which is part of the driver and is looked for when the program runs: without
 * it they stay 0. */
#include <dlfcn.h>
#include <time.h>

#include "gpu/device.h"

enum { COPY_MIB = 256, COPIES = 8, NVML_SM_CLOCK = 1, NVML_CELSIUS = 0 };

/* As nvml.h declares them. */
struct nvml {
    void *library;
    int (*init)(void);
    int (*shutdown)(void);
    int (*by_address)(const char *pci, void **device);
    int (*clock)(void *device, int type, unsigned *mhz);
    int (*most_clock)(void *device, int type, unsigned *mhz);
    int (*temperature)(void *device, int sensor, unsigned *celsius);
};

static int find(struct nvml *n, const char *name, void *function)
{
    void *symbol = dlsym(n->library, name);

    *(void **)function = symbol;
    return symbol != NULL;
}

static int nvml_open(struct nvml *n)
{
    n->library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    return n->library && find(n, "nvmlInit_v2", &n->init) && find(n, "nvmlShutdown", &n->shutdown) &&
           find(n, "nvmlDeviceGetHandleByPciBusId_v2", &n->by_address) &&
           find(n, "nvmlDeviceGetClockInfo", &n->clock) && find(n, "nvmlDeviceGetMaxClockInfo", &n->most_clock) &&
           find(n, "nvmlDeviceGetTemperature", &n->temperature) && n->init() == 0;
}

static void read_clocks(struct device_health *h)
{
    struct nvml n = {0};
    unsigned now = 0, most = 0, celsius = 0;
    void *device;

    if (nvml_open(&n)) {
        if (n.by_address(h->device.id, &device) == 0) {
            n.clock(device, NVML_SM_CLOCK, &now);
            n.most_clock(device, NVML_SM_CLOCK, &most);
            n.temperature(device, NVML_CELSIUS, &celsius);
        }
        n.shutdown();
    }
    if (n.library)
        dlclose(n.library);
    h->sm_mhz = (int)now;
    h->sm_most_mhz = (int)most;
    h->celsius = (int)celsius;
}

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* The first copy wakes the device up. */
static int measure_copy(struct k3_stream *s, struct device_health *h)
{
    size_t bytes = (size_t)COPY_MIB << 20;
    char *block = kern_alloc(s, 2 * bytes);
    double start = 0;
    int rc = block ? 0 : -1;

    for (int i = 0; rc == 0 && i <= COPIES; i++) {
        rc = kern_copy(s, block + bytes, bytes, block, bytes, bytes, 1);
        if (rc == 0 && i == 0) {
            rc = kern_sync(s);
            start = now();
        }
    }
    if (rc == 0 && (rc = kern_sync(s)) == 0)
        h->copy_gbs = 2e-9 * (double)bytes * COPIES / (now() - start);
    kern_free(s, block, 2 * bytes);
    return rc;
}

int device_look(struct k3_stream *s, struct device_health *h, struct k3_error *err)
{
    *h = (struct device_health){0};
    if (kern_is_host(s))
        return 0;
    if (kern_device_of(s, &h->device) < 0 || measure_copy(s, h) < 0)
        return k3_errorf(err, "backend %s: %s", kern_stream_name(s), kern_stream_error(s));
    read_clocks(h);
    return 0;
}
