/* cost.h - what a layout asks of each rank: bytes that lie in memory; bytes, arithmetic and exchanges of a step (SPEC
 * 11)
 *
 * It counts, and knows no device.  Every size comes from where the engine takes its own: inventory and shard for the
 * weights, forward_bytes() for state, latents and scratch; the exchanges are those of forward.c. */
#ifndef K3_MODEL_COST_H
#define K3_MODEL_COST_H

#include <stdint.h>

#include "common/error.h"
#include "kernels/kernels.h"
#include "model/config.h"
#include "model/forward.h"
#include "model/layout.h"
#include "model/shard.h"

/* Where bytes and time go.  The groups before COST_WEIGHTS are weights. */
enum cost_group {
    COST_EMBED,
    COST_KDA,
    COST_MLA,
    COST_DENSE,
    COST_ROUTER,
    COST_LATENT, /* projections into and out of the experts' latent */
    COST_SHARED,
    COST_EXPERTS,
    COST_NORMS, /* norms and residual mixing of all layers */
    COST_HEAD,
    COST_WEIGHTS,
    COST_STATE = COST_WEIGHTS, /* KDA and convolution states, read and written */
    COST_LATENTS,              /* cached latents, and the attention over them */
    COST_STREAM,               /* residual stream: p and the snapshots */
    COST_GROUPS
};
const char *cost_group_name(enum cost_group group);

/* How the dense part is stored and the ranks work together. */
struct cost_options {
    enum k3_dtype dense;   /* K3_BF16, or K3_FP8_E4M3, K3_MXFP8, K3_MXFP4: see inventory_dtype() */
    enum k3_dtype latents; /* of the cache: kern_latent_dtype() */
    int value_bytes;       /* of a number on its way between ranks */
    int scatter_latent; /* the experts' sum is reduce-scattered, its norm finished after the next exchange (SPEC 11.5)
                         */
    int even;           /* a bound: as if all of a stage were split evenly over its ranks, whole experts apart */
};

/* Bytes that a rank's arenas take. */
struct cost_memory {
    uint64_t weights[COST_WEIGHTS];
    struct forward_bytes forward;
};
/* rank: stage by stage.  A stage's scratch also holds the snapshots of the stages before it. */
void cost_memory(const struct k3_config *c, const struct layout *l, int rank, enum k3_dtype dense,
                 const struct forward_limits *limits, struct cost_memory *m);

/* A step: `rows` tokens in all of `seqs` sequences, each behind `context` cached tokens. */
struct cost_step {
    int rows, seqs;
    int64_t context;
    int outputs; /* rows with logits */
};

/* Bytes that one rank must move between its memory and itself, and floating-point operations, on average over the
 * routing (uniform and independent).  The busiest of the ep groups decides: its share is the expected maximum. */
struct cost_work {
    double bytes[COST_GROUPS], flops[COST_GROUPS];
    double stream_bytes; /* size of the residual stream, which may stay in a device's cache */
};
void cost_work(const struct k3_config *c, const struct layout *l, int rank, const struct cost_options *o,
               const struct cost_step *step, struct cost_work *w);

/* Experts that `rows` tokens choose in one layer, on average. */
double cost_distinct_experts(const struct k3_config *c, int rows);
/* ... of those of the busiest of ep groups. */
double cost_busiest_experts(const struct k3_config *c, int ep, int rows);

enum cost_exchange_kind { COST_ALL_REDUCE, COST_ALL_GATHER, COST_REDUCE_SCATTER, COST_SEND };

/* Exchanges of one kind and size; they wait for each other. */
struct cost_exchange {
    enum cost_exchange_kind kind;
    int ranks, count;
    double bytes; /* of the whole vector that is summed, put together or sent, each */
};
enum { COST_EXCHANGES_MAX = 8 };
/* Those of one stage in one step, with what it sends to the next, the last one to the first.  Returns how many entries
 * were filled. */
int cost_exchanges(const struct k3_config *c, const struct layout *l, int stage, const struct cost_options *o,
                   const struct cost_step *step, struct cost_exchange list[COST_EXCHANGES_MAX]);

#endif
