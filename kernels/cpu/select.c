/* select.c - the CPU backend's best variant on this machine, and each of the others by name */
#include "config.h"

#include <errno.h>

#include "kernels/backend.h"

struct k3_stream *cpu_select_avx512(int threads)
{
#ifdef HAVE_AVX512
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("fma"))
        return cpu_avx512_stream_create(threads);
#endif
    (void)threads;
    errno = ENOTSUP;
    return NULL;
}

struct k3_stream *cpu_select_avx2(int threads)
{
#ifdef HAVE_AVX2 /* F16C is older than AVX2, and not every compiler can ask for it */
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return cpu_avx2_stream_create(threads);
#endif
    (void)threads;
    errno = ENOTSUP;
    return NULL;
}

struct k3_stream *cpu_select_best(int threads)
{
    struct k3_stream *s = cpu_select_avx512(threads);
    if (s == NULL && errno == ENOTSUP)
        s = cpu_select_avx2(threads);
    if (s == NULL && errno == ENOTSUP)
        s = cpu_plain_stream_create(threads);
    return s;
}
