/* cpu.c - the CPU backend's stream: table of operations, team of workers, scratch */
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "kernels/cpu/cpu.h"

enum { WORKER_FLOATS = CPU_X_FLOATS + CPU_W_FLOATS + CPU_OWN_FLOATS };

static void destroy(struct k3_stream *s)
{
    struct cpu_stream *c = (struct cpu_stream *)s;
    cpu_team_destroy(c->team);
    free(c->memory);
    free(c->shared_ints);
    free(c->worker);
    free(c);
}

static int sync_nothing(struct k3_stream *s)
{
    (void)s;
    return 0;
}

static const struct kern_backend backend = {.name = CPU_VARIANT,
                                            .destroy = destroy,
                                            .sync = sync_nothing,
#define X(op) .op = CPU(op),
                                            KERN_OPERATIONS(X)
#undef X
};

/* 2^-127 is subnormal; 255 is NaN. */
static float e8m0(int scale)
{
    return scale == 255 ? NAN : ldexpf(1, scale - 127);
}

/* SPEC 3.3.  What overflows fp32 (scale 254 with codes above 1.5) is infinite, as it is in every fp32 arithmetic. */
static void fill_mxfp4(struct mxfp4_table table[256])
{
    static const float magnitude[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
    for (int scale = 0; scale < 256; scale++)
        for (int code = 0; code < 16; code++) {
            float v = magnitude[code & 7] * e8m0(scale);
            mxfp4_set(&table[scale], code, code & 8 ? -v : v);
        }
}

/* The team's memory starts on a cache line, and so does every part of it. */
static int allocate(struct cpu_stream *c, int threads)
{
    size_t floats = (size_t)threads * WORKER_FLOATS + CPU_SHARED_FLOATS;
    c->memory = aligned_alloc(64, floats * sizeof *c->memory);
    c->shared_ints = malloc(CPU_SHARED_INTS * sizeof *c->shared_ints);
    c->worker = calloc((size_t)threads, sizeof *c->worker);
    if (c->memory == NULL || c->shared_ints == NULL || c->worker == NULL)
        return -1;
    c->shared = c->memory + (size_t)threads * WORKER_FLOATS;
    for (int i = 0; i < threads; i++) {
        float *mine = c->memory + (size_t)i * WORKER_FLOATS;
        c->worker[i] = (struct cpu_worker){.index = i,
                                           .x = mine,
                                           .w = mine + CPU_X_FLOATS,
                                           .own = mine + CPU_X_FLOATS + CPU_W_FLOATS,
                                           .mxfp4 = c->mxfp4,
                                           .e8m0 = c->e8m0};
    }
    return 0;
}

struct k3_stream *CPU(stream_create)(int threads)
{
    struct cpu_stream *c = aligned_alloc(64, (sizeof *c + 63) / 64 * 64);
    if (c == NULL)
        return NULL;
    memset(c, 0, sizeof *c);
    c->base.backend = &backend;
    c->threads = threads;
    fill_mxfp4(c->mxfp4);
    for (int scale = 0; scale < 256; scale++)
        c->e8m0[scale] = e8m0(scale);
    if (allocate(c, threads) < 0 || (c->team = cpu_team_create(threads)) == NULL) {
        kern_stream_destroy(&c->base);
        return NULL;
    }
    return &c->base;
}

struct piece {
    struct cpu_stream *stream;
    int count;
    void (*fn)(struct cpu_worker *w, const void *arg);
    const void *arg;
};

static void run_piece(void *arg, int index)
{
    struct piece *p = arg;
    if (index >= p->count)
        return;
    struct cpu_worker *w = &p->stream->worker[index];
    w->count = p->count;
    p->fn(w, p->arg);
}

void CPU(run)(struct k3_stream *s, int64_t workers, void (*fn)(struct cpu_worker *w, const void *arg), const void *arg)
{
    struct cpu_stream *c = (struct cpu_stream *)s;
    struct piece p = {.stream = c, .count = (int)(workers < c->threads ? workers : c->threads), .fn = fn, .arg = arg};
    if (p.count > 1)
        cpu_team_run(c->team, run_piece, &p);
    else if (p.count == 1)
        run_piece(&p, 0);
}
