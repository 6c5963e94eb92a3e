/* select.c - the CPU backend's best variant on this machine */
#include "config.h"

#include "kernels/backend.h"

struct k3_stream *cpu_stream_create(int threads)
{
#ifdef HAVE_AVX2
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return cpu_avx2_stream_create(threads);
#endif
    return cpu_plain_stream_create(threads);
}
