/* kernbench.c - time of every operation against what this machine can do; small.c has those that move numbers along
 *
 * usage: kernbench [BACKEND [THREADS]]
 *
 * Decode is held against the bandwidth at which the same threads read memory, prefill against the rate at which they
 * multiply and add in registers; both are measured here, first.  Weights are larger than the caches or taken from
 * another place at every turn, so that they come from memory. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kernels/bench/small.h"
#include "kernels/cpu/team.h"
#include "kernels/kernels.h"

enum { ARENA_BYTES = 1 << 30, SCALE_BYTES = ARENA_BYTES / 16, READ_BYTES = 1 << 26, FMA_TURNS = 2000000 };

static uint8_t *arena;  /* weights; bytes that are sane as BF16, as e4m3 and as MXFP4 codes */
static uint8_t *scales; /* 2^-67 as e8m0, near 2^-6 as F32 */
static float *activations;
static double bandwidth, fma_rate; /* bytes, multiply-adds a second */
static int threads = 1;

/* One thread's own time leaves out what other programs take of the machine; several must be timed by the wall. */
static double now(void)
{
    struct timespec t;
    clock_gettime(threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* --- what the machine can do ------------------------------------------------------------------------------------- */

enum { STREAMS = 4, RUN = 16384, CHAINS = 12 };

static volatile float sink;

/* Memory is read from four places at a time, for one stream of addresses alone does not keep it busy; the chains of
 * multiply-adds are as many as hide their latency. */
#define LOOPS(name, lanes, attribute)                                                                                  \
    typedef float name##_vec __attribute__((vector_size(4 * (lanes))));                                                \
    attribute static void read_##name(const uint8_t *from, const uint8_t *end)                                         \
    {                                                                                                                  \
        name##_vec sum[STREAMS] = {{0}};                                                                               \
        for (; from <= end - STREAMS * RUN; from += STREAMS * RUN)                                                     \
            for (int i = 0; i < RUN; i += (int)sizeof *sum)                                                            \
                _Pragma("GCC unroll 4") for (int j = 0; j < STREAMS; j++) sum[j] +=                                    \
                    *(const name##_vec *)(const void *)(from + j * RUN + i);                                           \
        sum[0] += sum[1] + sum[2] + sum[3];                                                                            \
        sink = sum[0][0];                                                                                              \
    }                                                                                                                  \
    attribute static void fma_##name(float start)                                                                      \
    {                                                                                                                  \
        name##_vec acc[CHAINS], half = (name##_vec){0} + 0.5f;                                                         \
        for (int j = 0; j < CHAINS; j++)                                                                               \
            acc[j] = half + start + (float)j;                                                                          \
        for (int i = 0; i < FMA_TURNS; i++)                                                                            \
            _Pragma("GCC unroll 12") for (int j = 0; j < CHAINS; j++) acc[j] = acc[j] * half + half;                   \
        for (int j = 1; j < CHAINS; j++)                                                                               \
            acc[0] += acc[j];                                                                                          \
        sink = acc[0][0];                                                                                              \
    }

LOOPS(plain, 4, )
#ifdef __x86_64__
LOOPS(avx2, 8, __attribute__((target("avx2,fma"))))
LOOPS(avx512, 16, __attribute__((target("avx512f"))))
#endif

static struct {
    int lanes;
    void (*read)(const uint8_t *from, const uint8_t *end);
    void (*fma)(float start);
} loops = {4, read_plain, fma_plain};

/* The loops of the vectors that the backend uses. */
static void choose_loops(const char *variant)
{
    (void)variant;
#ifdef __x86_64__
    if (strcmp(variant, "cpu-avx512") == 0)
        loops.lanes = 16, loops.read = read_avx512, loops.fma = fma_avx512;
    if (strcmp(variant, "cpu-avx2") == 0)
        loops.lanes = 8, loops.read = read_avx2, loops.fma = fma_avx2;
#endif
}

static void read_part(void *arg, int index)
{
    const uint8_t *from = (const uint8_t *)arg + (size_t)READ_BYTES / (size_t)threads * (size_t)index;
    loops.read(from, from + (size_t)READ_BYTES / (size_t)threads);
}

static void fma_part(void *arg, int index)
{
    (void)arg;
    loops.fma((float)index);
}

static void measure_machine(void)
{
    struct cpu_team *team = cpu_team_create(threads);
    for (int i = 0; i < 40; i++) {
        double t = now();
        cpu_team_run(team, read_part, arena + (size_t)i * READ_BYTES % ARENA_BYTES);
        double rate = READ_BYTES / (now() - t);
        bandwidth = rate > bandwidth ? rate : bandwidth;
        t = now();
        cpu_team_run(team, fma_part, NULL);
        rate = 1.0 * threads * FMA_TURNS * CHAINS * loops.lanes / (now() - t);
        fma_rate = rate > fma_rate ? rate : fma_rate;
    }
    cpu_team_destroy(team);
    printf("%d threads read %.1f GB/s and do %.1f G multiply-adds a second\n", threads, bandwidth * 1e-9,
           fma_rate * 1e-9);
}

static const struct {
    const char *name;
    double data, scale; /* bytes a weight */
} forms[] = {[K3_BF16] = {"bf16", 2, 0},
             [K3_FP8_E4M3] = {"fp8", 1, 0},
             [K3_MXFP8] = {"mxfp8", 1, 1. / K3_MX_BLOCK},
             [K3_MXFP4] = {"mxfp4", .5, 1. / K3_MX_BLOCK}};

/* Weights from a place that moves through the arena. */
static struct k3_tensor weights(enum k3_dtype dtype, int64_t rows, int64_t cols)
{
    static size_t at;
    size_t bytes = (size_t)((double)(rows * cols) * forms[dtype].data);
    if (at + bytes > ARENA_BYTES)
        at = 0;
    struct k3_tensor w = {arena + at, scales + at / 16, dtype, K3_ROW_MAJOR, rows, cols, cols};
    at += (bytes + 4095) / 4096 * 4096;
    return w;
}

static struct k3_tensor rows_of(int64_t at, int64_t rows, int64_t cols)
{
    return (struct k3_tensor){activations + at, NULL, K3_F32, K3_ROW_MAJOR, rows, cols, cols};
}

static void report(const char *what, double seconds, double bytes, double fmas)
{
    printf("%-44s %10.1f us  %6.1f GB/s %3.0f %%  %7.1f GFMA/s %3.0f %%\n", what, seconds * 1e6, bytes / seconds * 1e-9,
           100 * bytes / seconds / bandwidth, fmas / seconds * 1e-9, 100 * fmas / seconds / fma_rate);
}

enum { HALF = 16 << 20 }; /* floats for inputs; outputs come after */

static void bench_linear(struct k3_stream *s, enum k3_dtype dtype, int64_t rows, int64_t out, int64_t in)
{
    struct k3_tensor x = rows_of(0, rows, in), y = rows_of(HALF, rows, out);
    double bytes = (double)(out * in) * (forms[dtype].data + forms[dtype].scale), best = 1e9;
    char what[80];
    for (double start = now(); now() - start < 0.5;) {
        struct k3_tensor w = weights(dtype, out, in);
        double t = now();
        kern_linear(&(struct linear_args){&x, &w, &y, 0}, s);
        t = now() - t;
        best = t < best ? t : best;
    }
    snprintf(what, sizeof what, "linear %s [%lld, %lld] x %lld rows", forms[dtype].name, (long long)out, (long long)in,
             (long long)rows);
    report(what, best, bytes, (double)(rows * out * in));
}

static void bench_experts(struct k3_stream *s, int64_t rows, int experts, int topk, int64_t width, int64_t inner)
{
    struct k3_tensor z = rows_of(0, rows, width), y = rows_of(HALF, rows, width);
    int32_t *id = malloc(sizeof *id * (size_t)(rows * topk));
    float *weight = malloc(sizeof *weight * (size_t)(rows * topk));
    uint8_t *chosen = malloc((size_t)experts);
    double best = 1e9, bytes = 0;
    char what[80];
    for (double start = now(); now() - start < 1;) {
        struct kern_expert_matrix m[3];
        int distinct = 0;
        memset(chosen, 0, (size_t)experts);
        for (int64_t p = 0; p < rows * topk; p++) {
            id[p] = p % topk == 0 ? rand() % experts : (id[p - 1] + 1 + rand() % (experts / topk)) % experts;
            weight[p] = 1;
            distinct += !chosen[id[p]];
            chosen[id[p]] = 1;
        }
        for (int i = 0; i < 3; i++) {
            m[i].first = weights(K3_MXFP4, experts * (i < 2 ? inner : width), i < 2 ? width : inner);
            m[i].first.rows /= experts;
            m[i].data_step = inner * width / 2;
            m[i].scale_step = inner * width / K3_MX_BLOCK;
        }
        double t = now();
        kern_experts(&(struct experts_args){&z, id, weight, topk, experts, 0, experts, &m[0], &m[1], &m[2], &y, 4, 25},
                     s);
        t = now() - t;
        if (t < best) {
            best = t;
            bytes = 3. * (double)(distinct * inner * width) * 17 / 32;
        }
    }
    snprintf(what, sizeof what, "experts %d of %d [%lld, %lld] x %lld rows", topk, experts, (long long)inner,
             (long long)width, (long long)rows);
    report(what, best, bytes, 3. * (double)(rows * topk * inner * width));
    free(id);
    free(weight);
    free(chosen);
}

static void bench_kda(struct k3_stream *s, int32_t rows, int32_t heads, int32_t prefill)
{
    int64_t cols = heads * K3_HEAD_DIM, size = rows * cols;
    struct k3_tensor q = rows_of(0, rows, cols), k = rows_of(size, rows, cols), v = rows_of(2 * size, rows, cols);
    struct k3_tensor g = rows_of(3 * size, rows, cols), beta = rows_of(4 * size, rows, heads),
                     o = rows_of(HALF, rows, cols);
    enum { SLOTS = 128 };
    float *state = aligned_alloc(4096, (size_t)heads * SLOTS * 65536);
    int32_t begin[2] = {0, rows}, slot = 0;
    int64_t pos = K3_PREFILL_BLOCK;
    memset(state, 0, (size_t)heads * SLOTS * 65536);
    for (int64_t i = 0; i < size; i++)
        ((float *)g.data)[i] = -fabsf(((float *)g.data)[i]);
    struct kern_batch b = {.rows = rows, .seqs = 1, .begin = begin, .slot = &slot, .pos = &pos, .prefill = &prefill};
    double best = 1e9;
    char what[80];
    for (double start = now(); now() - start < 0.5;) {
        double t = now();
        slot = (slot + 1) % SLOTS;
        kern_kda(&(struct kda_args){&q, &k, &v, &g, &beta, &o, state, heads, &b}, s);
        t = now() - t;
        best = t < best ? t : best;
    }
    free(state);
    snprintf(what, sizeof what, "kda %s %d heads x %d rows", prefill ? "chunked" : "recurrent", heads, rows);
    report(what, best, 2. * heads * 65536, 4. * 16384 * heads * rows);
}

static void bench_attend(struct k3_stream *s, int32_t rows, int32_t heads, int32_t positions, int expanded)
{
    struct k3_tensor q = rows_of(0, rows, heads * K3_QK_DIM), o = rows_of(HALF, rows, heads * K3_V_DIM);
    int32_t begin[2] = {0, rows}, slot = 0, *pages = malloc(sizeof *pages * (size_t)(positions / 64 + 1));
    int64_t pos = positions - rows;
    struct kern_latents cache = {activations + HALF / 2, K3_F32, 64};
    struct kern_batch b = {rows, 1, begin, &slot, &pos, pages, positions / 64 + 1, expanded ? &positions : NULL};
    double best = 1e9, pairs = (double)rows * ((double)pos + (rows + 1) / 2.);
    char what[80];
    for (int32_t i = 0; i < b.page_stride; i++)
        pages[i] = i;
    for (double start = now(); now() - start < 0.5;) {
        struct k3_tensor kv_b = weights(K3_BF16, heads * 256, 512);
        double t = now();
        kern_mla_attend(&(struct mla_attend_args){&q, &kv_b, &o, &cache, &b, heads, 0.0722f}, s);
        t = now() - t;
        best = t < best ? t : best;
    }
    snprintf(what, sizeof what, "mla %s %d heads x %d rows over %d", expanded ? "expanded" : "absorbed", heads, rows,
             positions);
    report(what, best, (double)positions * K3_CACHE_DIM * 4 + heads * 256. * 512 * 2,
           expanded ? heads * (pairs * (K3_QK_DIM + K3_V_DIM) + positions * 2. * 128 * 512)
                    : heads * (pairs * (K3_CACHE_DIM + K3_LATENT_DIM) + rows * 2. * 128 * 512));
    free(pages);
}

static void bench_attnres(struct k3_stream *s, int64_t rows, int64_t cols)
{
    struct k3_tensor snapshot[8], p = rows_of(0, rows, cols), y = rows_of(HALF, rows, cols);
    struct k3_tensor w = weights(K3_BF16, 1, cols);
    double best = 1e9;
    char what[80];
    for (int i = 0; i < 8; i++)
        snapshot[i] = rows_of((i + 1) * rows * cols % HALF, rows, cols);
    for (int turn = 0; turn < 50; turn++) {
        double t = now();
        kern_attnres(&(struct attnres_args){&p, snapshot, 8, &w, &w, &y, 1e-5f, NULL, NULL}, s);
        t = now() - t;
        best = t < best ? t : best;
    }
    snprintf(what, sizeof what, "attnres 8 snapshots of %lld x %lld rows", (long long)cols, (long long)rows);
    report(what, best, 9. * (double)(rows * cols) * 4, 27. * (double)(rows * cols));
}

static void fill(void)
{
    arena = aligned_alloc(4096, ARENA_BYTES);
    activations = aligned_alloc(4096, sizeof *activations * 2 * HALF);
    scales = malloc(SCALE_BYTES);
    if (arena == NULL || scales == NULL || activations == NULL) {
        fprintf(stderr, "kernbench: not enough memory: 1.2 GB needed\n");
        exit(1);
    }
    for (size_t i = 0; i < ARENA_BYTES; i++)
        arena[i] = (uint8_t)(60 + (i * 7 + (i >> 9)) % 4);
    memset(scales, 60, SCALE_BYTES);
    for (size_t i = 0; i < 2 * HALF; i++)
        activations[i] = (float)(i * 37 % 101) / 101 - 0.5f;
}

int main(int argc, char **argv)
{
    const char *backend = argc > 1 ? argv[1] : "cpu";
    threads = argc > 2 ? atoi(argv[2]) : 1;
    struct k3_stream *s = kern_stream_create(backend, threads);
    if (s == NULL) {
        fprintf(stderr, "usage: kernbench [BACKEND [THREADS]]\n");
        return 1;
    }
    fill();
    printf("%s\n", kern_stream_name(s));
    choose_loops(kern_stream_name(s));
    measure_machine();
    for (enum k3_dtype dtype = K3_BF16; dtype <= K3_MXFP4; dtype++)
        for (int64_t rows = 1; forms[dtype].name != NULL && rows <= 8; rows *= 2)
            bench_linear(s, dtype, rows, 7168, 7168);
    bench_linear(s, K3_BF16, 1, 2048, 2048);
    for (enum k3_dtype dtype = K3_BF16; dtype <= K3_MXFP4; dtype++)
        if (forms[dtype].name != NULL)
            bench_linear(s, dtype, 512, 2048, 2048);
    bench_linear(s, K3_BF16, 512, 1024, 7168);
    bench_experts(s, 1, 64, 8, 1024, 1024);
    bench_experts(s, 8, 64, 8, 1024, 1024);
    bench_experts(s, 512, 64, 8, 1024, 1024);
    bench_kda(s, 1, 16, 0);
    for (int32_t rows = 64; rows <= 256; rows *= 4) {
        bench_kda(s, rows, 16, 0);
        bench_kda(s, rows, 16, K3_PREFILL_BLOCK + rows);
    }
    bench_attend(s, 1, 16, 4096, 0);
    for (int32_t rows = K3_EXPAND_BLOCK; rows <= 4 * K3_EXPAND_BLOCK; rows *= 2) {
        bench_attend(s, rows, 16, 2048, 0);
        bench_attend(s, rows, 16, 2048, 1);
    }
    bench_attnres(s, 1, 7168);
    bench_attnres(s, 64, 7168);
    small_bench(s, 1, now, report);
    small_bench(s, 64, now, report);
    kern_stream_destroy(s);
    free(arena);
    free(scales);
    free(activations);
    return 0;
}
