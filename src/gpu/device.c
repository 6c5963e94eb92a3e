#include "gpu/device.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int local_rank(void)
{
    static const char *const names[] = {"OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (getenv(names[i]))
            return atoi(getenv(names[i]));
    return 0;
}

struct k3_stream *device_stream_create(const char *backend, int threads, struct k3_error *err)
{
    char own[32];
    int devices = kern_devices("cuda");

    if (strcmp(backend, "cuda") == 0 && devices > 0) {
        snprintf(own, sizeof own, "cuda:%d", local_rank() % devices);
        backend = own;
    }
    struct k3_stream *s = kern_stream_create(backend, threads);
    if (!s)
        k3_errorf(err, "backend %s: %s", backend,
                  errno == ENOTSUP  ? "this build does not have it, or this machine cannot run it"
                  : errno == ENODEV ? "no such GPU is seen here (nvidia-smi, CUDA_VISIBLE_DEVICES)"
                  : errno == EINVAL
                      ? "no such backend; there are ref, cpu, cpu-avx512, cpu-avx2, cpu-plain, cuda, cuda:N"
                      : strerror(errno));
    return s;
}
