#include "kernels/profile.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kernels/backend.h"

enum operation {
#define X(op) OP_##op,
    KERN_OPERATIONS(X)
#undef X
        OPERATIONS
};

static const char *const names[OPERATIONS] = {
#define X(op) #op,
    KERN_OPERATIONS(X)
#undef X
};

/* The stream's table of operations while it is profiled; from there the timed calls find the rest. */
struct kern_profile {
    struct kern_backend timed;
    const struct kern_backend *inner;
    struct kern_profile_row row[OPERATIONS];
    double seconds;  /* of all, counting included */
    double tick;     /* seconds */
    uint64_t epoch;  /* ticks */
    uint8_t *chosen; /* [chosen_room]: an expert was chosen by a row of this call */
    int32_t chosen_room;
};

/* --- time -----------------------------------------------------------------------------------------------------------
 *
 * The processor's counter, where it has one that runs evenly: reading it touches no memory, while clock_gettime() finds
 * its code and data pushed out of the caches by every operation, which is then taken for the caller's time. */

static double read_clock(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static uint64_t read_ticks(void)
{
#if defined __x86_64__
    return __builtin_ia32_rdtsc();
#elif defined __aarch64__
    uint64_t ticks;
    __asm__ volatile("mrs %0, cntvct_el0" : "=r"(ticks));
    return ticks;
#else
    return (uint64_t)(1e9 * read_clock());
#endif
}

/* Seconds a tick, from a few milliseconds of both clocks. */
static double measure_tick(void)
{
    double start = read_clock(), end;
    uint64_t ticks = read_ticks();

    do
        end = read_clock();
    while (end - start < 5e-3);
    return (end - start) / (double)(read_ticks() - ticks);
}

/* --- what an operation costs -------------------------------------------------------------------------------------- */

struct cost {
    uint64_t bytes, flops;
};

static uint64_t weight_bytes(const struct k3_tensor *t)
{
    uint64_t n = (uint64_t)(t->rows * t->cols);

    switch (t->dtype) {
    case K3_MXFP4:
        return n / 2 + n / K3_MX_BLOCK;
    case K3_MXFP8:
        return n + n / K3_MX_BLOCK;
    case K3_BF16:
        return 2 * n;
    case K3_FP8_E4M3:
        return n + (uint64_t)t->rows * sizeof(float);
    case K3_U8:
        return n;
    default:
        return 4 * n;
    }
}

/* Activations and vectors of a few kilobytes. */
#define COSTS_NOTHING(op)                                                                                              \
    static struct cost cost_##op(struct kern_profile *p, const struct op##_args *a)                                    \
    {                                                                                                                  \
        (void)p, (void)a;                                                                                              \
        return (struct cost){0, 0};                                                                                    \
    }
COSTS_NOTHING(gather)
COSTS_NOTHING(add)
COSTS_NOTHING(sum)
COSTS_NOTHING(columns)
COSTS_NOTHING(rmsnorm)
COSTS_NOTHING(situ)
COSTS_NOTHING(attnres)
COSTS_NOTHING(kda_gate)
COSTS_NOTHING(gated_norm)
COSTS_NOTHING(mla_append)
COSTS_NOTHING(sigmoid_gate)
COSTS_NOTHING(router)

static struct cost cost_embed(struct kern_profile *p, const struct embed_args *a)
{
    (void)p;
    return (struct cost){(uint64_t)(a->y->rows * a->y->cols) * 2, 0};
}

static struct cost cost_linear(struct kern_profile *p, const struct linear_args *a)
{
    (void)p;
    return (struct cost){weight_bytes(a->w), 2 * (uint64_t)(a->x->rows * a->w->rows * a->w->cols)};
}

static struct cost cost_conv(struct kern_profile *p, const struct conv_args *a)
{
    uint64_t state = (uint64_t)a->batch->seqs * (K3_TAPS - 1) * (uint64_t)a->x->cols * sizeof(float);

    (void)p;
    return (struct cost){weight_bytes(a->w) + 2 * state, 0};
}

/* A token of a head: the state times k, the outer product, the state times q. */
static struct cost cost_kda(struct kern_profile *p, const struct kda_args *a)
{
    uint64_t state = (uint64_t)a->heads * K3_HEAD_DIM * K3_HEAD_DIM;

    (void)p;
    return (struct cost){2 * (uint64_t)a->batch->seqs * state * sizeof(float),
                         3 * 2 * (uint64_t)a->batch->rows * state};
}

static struct cost cost_mla_attend(struct kern_profile *p, const struct mla_attend_args *a)
{
    const struct kern_batch *b = a->batch;
    uint64_t cached = 0, pairs = 0, heads = (uint64_t)a->heads;

    (void)p;
    for (int32_t i = 0; i < b->seqs; i++) {
        uint64_t before = (uint64_t)b->pos[i], n = (uint64_t)(b->begin[i + 1] - b->begin[i]);
        cached += before + n;
        pairs += before * n + n * (n + 1) / 2;
    }
    return (struct cost){
        weight_bytes(a->kv_b) + cached * K3_CACHE_DIM * sizeof(float),
        2 * heads * (pairs * (K3_QK_DIM + K3_V_DIM) + (uint64_t)b->rows * K3_LATENT_DIM * (K3_NOPE_DIM + K3_V_DIM))};
}

/* Of those that are held: how often they are chosen, and how many of them. */
static uint64_t count_choices(struct kern_profile *p, const struct experts_args *a, uint64_t *distinct)
{
    int64_t picks = a->z->rows * a->topk;
    uint64_t choices = 0;

    *distinct = 0;

    if (p->chosen_room < a->held) {
        uint8_t *more = realloc(p->chosen, (size_t)a->held);
        if (more == NULL)
            return 0;
        p->chosen = more;
        p->chosen_room = a->held;
    }
    memset(p->chosen, 0, (size_t)a->held);
    for (int64_t i = 0; i < picks; i++) {
        if (a->id[i] < a->first || a->id[i] - a->first >= a->held)
            continue;
        uint8_t *chosen = &p->chosen[a->id[i] - a->first];
        *distinct += !*chosen;
        *chosen = 1;
        choices++;
    }
    return choices;
}

static struct cost cost_experts(struct kern_profile *p, const struct experts_args *a)
{
    const struct k3_tensor *w1 = &a->w1->first, *w3 = &a->w3->first, *w2 = &a->w2->first;
    uint64_t one = weight_bytes(w1) + weight_bytes(w3) + weight_bytes(w2);
    uint64_t products = (uint64_t)(w1->rows * w1->cols + w3->rows * w3->cols + w2->rows * w2->cols);

    uint64_t distinct, choices = count_choices(p, a, &distinct);

    return (struct cost){distinct * one, 2 * choices * products};
}

/* --- between the caller and the backend ----------------------------------------------------------------------------
 */

static double now(const struct kern_profile *p)
{
    return (double)(read_ticks() - p->epoch) * p->tick;
}

/* `timed` is the first member. */
static struct kern_profile *profile_of(const struct k3_stream *s)
{
    return (struct kern_profile *)(uintptr_t)s->backend;
}

#define X(op)                                                                                                          \
    static int timed_##op(const struct op##_args *a, struct k3_stream *s)                                              \
    {                                                                                                                  \
        struct kern_profile *p = profile_of(s);                                                                        \
        struct kern_profile_row *row = &p->row[OP_##op];                                                               \
        double start = now(p);                                                                                         \
        int rc = p->inner->op(a, s);                                                                                   \
        if (rc == 0)                                                                                                   \
            rc = p->inner->sync(s);                                                                                    \
        row->seconds += now(p) - start;                                                                                \
        row->calls++;                                                                                                  \
        struct cost cost = cost_##op(p, a);                                                                            \
        row->bytes += cost.bytes;                                                                                      \
        row->flops += cost.flops;                                                                                      \
        p->seconds += now(p) - start;                                                                                  \
        return rc;                                                                                                     \
    }
KERN_OPERATIONS(X)
#undef X

struct kern_profile *kern_profile_create(void)
{
    struct kern_profile *p = calloc(1, sizeof *p);

    if (p == NULL)
        return NULL;
    p->timed = (struct kern_backend){
#define X(op) .op = timed_##op,
        KERN_OPERATIONS(X)
#undef X
    };
    p->tick = measure_tick();
    p->epoch = read_ticks();
    kern_profile_reset(p);
    return p;
}

void kern_profile_destroy(struct kern_profile *p)
{
    int saved = errno;

    if (p != NULL)
        free(p->chosen);
    free(p);
    errno = saved;
}

void kern_profile_start(struct kern_profile *p, struct k3_stream *s)
{
    p->inner = s->backend;
    p->timed.name = p->inner->name;
    p->timed.destroy = p->inner->destroy;
    p->timed.sync = p->inner->sync;
    s->backend = &p->timed;
}

void kern_profile_stop(struct kern_profile *p, struct k3_stream *s)
{
    s->backend = p->inner;
}

void kern_profile_reset(struct kern_profile *p)
{
    for (int i = 0; i < OPERATIONS; i++)
        p->row[i] = (struct kern_profile_row){.name = names[i]};
    p->seconds = 0;
}

const struct kern_profile_row *kern_profile_rows(const struct kern_profile *p, int *count)
{
    *count = OPERATIONS;
    return p->row;
}

double kern_profile_seconds(const struct kern_profile *p)
{
    return p->seconds;
}
