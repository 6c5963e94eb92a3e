#include "kernels/host.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

void *host_alloc(size_t bytes)
{
    void *p = MAP_FAILED;

    errno = ENOMEM;
    if (bytes <= SIZE_MAX / 2)
        p = mmap(NULL, bytes ? bytes : 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

void host_free(void *p, size_t bytes)
{
    munmap(p, bytes ? bytes : 1);
}

void host_copy(void *to, size_t to_step, const void *from, size_t from_step, size_t bytes, size_t rows)
{
    if (to_step == bytes && from_step == bytes) {
        memcpy(to, from, bytes * rows);
        return;
    }
    for (size_t r = 0; r < rows; r++)
        memcpy((char *)to + r * to_step, (const char *)from + r * from_step, bytes);
}

static double now_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e6 * (double)t.tv_sec + 1e-3 * (double)t.tv_nsec;
}

void host_delay(double microseconds)
{
    for (double end = now_us() + microseconds; now_us() < end;)
        ;
}
