/* cpu.h - the CPU backend: its stream, its workers, its scratch
 *
 * The operations are compiled once a variant (an instruction set); CPU(name) is a variant's name of a function.  Work
 * is shared out by output rows, channels or heads, so no sum depends on how many threads there are.  All memory is
 * taken when the stream is created: an operation cuts its work into tiles that fit. */
#ifndef K3_KERNELS_CPU_CPU_H
#define K3_KERNELS_CPU_CPU_H

#include "kernels/backend.h"
#include "kernels/cpu/simd.h"
#include "kernels/cpu/team.h"

#ifdef CPU_AVX512
#define CPU(name) cpu_avx512_##name
#define CPU_VARIANT "cpu-avx512"
#elif defined(CPU_AVX2)
#define CPU(name) cpu_avx2_##name
#define CPU_VARIANT "cpu-avx2"
#else
#define CPU(name) cpu_plain_##name
#define CPU_VARIANT "cpu-plain"
#endif

#define X(op) int CPU(op)(const struct op##_args *a, struct k3_stream *s);
KERN_OPERATIONS(X)
#undef X

enum {
    CPU_TILE_ROWS = 256,                 /* rows of x that a matrix meets at a time */
    CPU_X_FLOATS = CPU_TILE_ROWS * 1024, /* a worker's copy of those rows, in the order of the decoded weights */
    CPU_W_FLOATS = 32 * 1024,            /* a worker's decoded weights */
    CPU_OWN_FLOATS = 64 * 1024,          /* a worker's scratch for the operation itself */
    CPU_SHARED_FLOATS = 2 * 1024 * 1024, /* what the workers of one operation hand to each other */
    CPU_SHARED_INTS = 32 * 1024
};

struct cpu_worker {
    int index, count; /* of the workers that share the present operation */
    float *x, *w, *own;
    const struct mxfp4_table *mxfp4; /* [256], by scale byte */
    const float *e8m0;               /* [256], what scale bytes stand for */
};

struct cpu_stream {
    struct k3_stream base;
    struct cpu_team *team;
    struct cpu_worker *worker;
    int threads;
    float *memory, *shared;
    int32_t *shared_ints;
    struct mxfp4_table mxfp4[256];
    float e8m0[256];
};

/* Let `workers` of the stream's threads (at most all of them) run fn(worker, arg) and wait for them. */
void CPU(run)(struct k3_stream *s, int64_t workers, void (*fn)(struct cpu_worker *w, const void *arg), const void *arg);

/* The part [*begin, *end) of n items that falls to this worker, in whole units but for the last. */
static inline void cpu_share(const struct cpu_worker *w, int64_t n, int64_t unit, int64_t *begin, int64_t *end)
{
    int64_t units = (n + unit - 1) / unit;
    *begin = units * w->index / w->count * unit;
    *end = units * (w->index + 1) / w->count * unit;
    *end = *end < n ? *end : n;
}

static inline float *cpu_row(const struct k3_tensor *t, int64_t r)
{
    return (float *)t->data + r * t->stride;
}

static inline float cpu_bf16(uint16_t bits)
{
    uint32_t wide = (uint32_t)bits << 16;
    float f;
    memcpy(&f, &wide, sizeof f);
    return f;
}

/* LANES (or n < LANES) of a one-row tensor of weights, F32 or BF16. */
static inline vec cpu_weights(const struct k3_tensor *w, int64_t d, int64_t n)
{
    if (w->dtype == K3_F32)
        return n < LANES ? vec_load_n((const float *)w->data + d, n) : vec_load((const float *)w->data + d);
    uint16_t lane[LANES] = {0};
    const uint16_t *from = (const uint16_t *)w->data + d;
    if (n < LANES)
        from = memcpy(lane, from, (size_t)n * sizeof *from);
    return bf16_load(from);
}

/* The 576 cached values of sequence i's token at position pos. */
static inline float *cpu_latent(const struct kern_latents *cache, const struct kern_batch *b, int i, int64_t pos)
{
    int64_t page = b->pages[(int64_t)i * b->page_stride + pos / cache->page_tokens];
    return (float *)cache->data + (page * cache->page_tokens + pos % cache->page_tokens) * K3_CACHE_DIM;
}

#endif
