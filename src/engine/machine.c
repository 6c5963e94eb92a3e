#include "engine/machine.h"

#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "common/alloc.h"
#include "common/clock.h"

enum { CHAINS = 12, FMA_ROUNDS = 4 << 20, READS = 8 };

/* Twelve chains keep two units of four or five cycles' latency busy.  The results must look wanted to the compiler. */
#define FMA_LOOP(name, lanes, attribute)                                                                               \
    attribute static float name(float seed)                                                                            \
    {                                                                                                                  \
        typedef float vector __attribute__((vector_size((lanes) * sizeof(float))));                                    \
        vector sum[CHAINS], a, b;                                                                                      \
        float total = 0;                                                                                               \
        for (int i = 0; i < (lanes); i++) {                                                                            \
            a[i] = 0.999f + seed;                                                                                      \
            b[i] = 0.001f + seed;                                                                                      \
        }                                                                                                              \
        for (int c = 0; c < CHAINS; c++)                                                                               \
            sum[c] = a * (float)c;                                                                                     \
        for (int r = 0; r < FMA_ROUNDS; r++)                                                                           \
            _Pragma("GCC unroll 12") for (int c = 0; c < CHAINS; c++) sum[c] = sum[c] * a + b;                         \
        for (int c = 0; c < CHAINS; c++)                                                                               \
            for (int i = 0; i < (lanes); i++)                                                                          \
                total += sum[c][i];                                                                                    \
        return total;                                                                                                  \
    }

typedef uint64_t words __attribute__((vector_size(32)));

#define READ_LOOP(name, attribute)                                                                                     \
    attribute static uint64_t name(const words *at, size_t count)                                                      \
    {                                                                                                                  \
        words sum[READS] = {{0}};                                                                                      \
        uint64_t total = 0;                                                                                            \
        for (size_t n = 0; n + READS <= count; n += READS)                                                             \
            _Pragma("GCC unroll 8") for (int i = 0; i < READS; i++) sum[i] += at[n + (size_t)i];                       \
        for (int i = 0; i < READS; i++)                                                                                \
            total += sum[i][0] + sum[i][1] + sum[i][2] + sum[i][3];                                                    \
        return total;                                                                                                  \
    }

FMA_LOOP(fma_plain, 8, )
READ_LOOP(read_plain, )
#ifdef __x86_64__
FMA_LOOP(fma_avx2, 8, __attribute__((target("avx2,fma"))))
FMA_LOOP(fma_avx512, 16, __attribute__((target("avx512f"))))
READ_LOOP(read_avx2, __attribute__((target("avx2,fma"))))
#endif

struct gang {
    int threads;
    pthread_barrier_t start;
    float (*fma)(float seed);
    uint64_t (*read)(const words *at, size_t count);
    words *memory;
    size_t part; /* words a thread */
    int reading; /* what the next run is */
    double elapsed;
};

struct member {
    struct gang *gang;
    int index;
    pthread_t thread;
    volatile uint64_t result; /* so that the work is done */
};

static void *work(void *arg)
{
    struct member *m = arg;
    struct gang *g = m->gang;

    pthread_barrier_wait(&g->start);
    double start = clock_monotonic();
    if (g->reading)
        m->result = g->read(g->memory + (size_t)m->index * g->part, g->part);
    else
        m->result = (uint64_t)g->fma((float)m->index * 1e-9f);
    pthread_barrier_wait(&g->start);
    if (m->index == 0)
        g->elapsed = clock_monotonic() - start;
    return NULL;
}

/* One run of all members; the caller is the first of them. */
static int run(struct gang *g, struct member *member, struct k3_error *err)
{
    int started = 1, rc = 0;

    if (pthread_barrier_init(&g->start, NULL, (unsigned int)g->threads) != 0)
        return k3_errorf(err, "no barrier for %d threads", g->threads);
    for (; started < g->threads; started++)
        if ((rc = pthread_create(&member[started].thread, NULL, work, &member[started])) != 0)
            break;
    if (rc != 0) { /* those who wait at the barrier cannot go on */
        for (int i = 1; i < started; i++)
            pthread_cancel(member[i].thread);
        errno = rc;
        k3_errorf(err, "thread %d of %d: %s", started, g->threads, strerror(rc));
    } else {
        work(&member[0]);
    }
    for (int i = 1; i < started; i++)
        pthread_join(member[i].thread, NULL);
    pthread_barrier_destroy(&g->start);
    return rc != 0 ? -1 : 0;
}

static int best(struct gang *g, struct member *member, int reading, double amount, double *rate, struct k3_error *err)
{
    *rate = 0;
    g->reading = reading;
    for (int i = 0; i < MACHINE_RUNS; i++) {
        if (run(g, member, err) < 0)
            return -1;
        if (amount / g->elapsed > *rate)
            *rate = amount / g->elapsed;
    }
    return 0;
}

int machine_measure(int threads, struct machine_rates *rates, struct k3_error *err)
{
    size_t bytes = (size_t)MACHINE_READ_MIB << 20;
    struct gang g = {.threads = threads, .fma = fma_plain, .read = read_plain};
    int lanes = 8;
    struct member *member = k3_calloc((size_t)threads, sizeof *member);
    int rc = -1;

    rates->fma_set = "plain C";
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        g.fma = fma_avx2;
        g.read = read_avx2;
        rates->fma_set = "AVX2";
    }
    if (__builtin_cpu_supports("avx512bw")) {
        g.fma = fma_avx512;
        rates->fma_set = "AVX-512";
        lanes = 16;
    }
#endif
    for (int i = 0; i < threads; i++)
        member[i] = (struct member){.gang = &g, .index = i};
    g.memory = aligned_alloc(64, bytes);
    if (!g.memory) {
        k3_errorf(err, "no %d MiB to measure the memory with", MACHINE_READ_MIB);
        goto out;
    }
    memset(g.memory, 1, bytes);
    g.part = bytes / sizeof *g.memory / (size_t)threads / READS * READS;
    if (best(&g, member, 1, (double)(g.part * sizeof *g.memory * (size_t)threads), &rates->read_bytes, err) < 0 ||
        best(&g, member, 0, 2.0 * lanes * CHAINS * FMA_ROUNDS * threads, &rates->fma_flops, err) < 0)
        goto out;
    rc = 0;
out:
    free(g.memory);
    free(member);
    return rc;
}
