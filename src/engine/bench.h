/* bench.h - how fast the engine is here, and against what the machine could do
 *
 * The engine's own step (scheduler, plan, its broadcast, forward pass, greedy choice) on random tokens: prompts of
 * BENCH_PROMPT tokens in chunks, then decoding by batch.  Phases take turns, BENCH_ROUNDS times each, so that a machine
 * that changes its pace changes it for all; figures are medians.  One more round of each is run under a profile of the
 * kernels: it says what had to be read (experts: the ones that this round's tokens chose) and where the time goes. */
#ifndef K3_ENGINE_BENCH_H
#define K3_ENGINE_BENCH_H

#include <stdio.h>

#include "comm/comm.h"
#include "common/error.h"
#include "model/config.h"
#include "model/layout.h"

enum { BENCH_PROMPT = 512, BENCH_CONTEXT = 32, BENCH_ROUNDS = 5, BENCH_STEPS = 8, BENCH_BATCH = 8 };

struct bench_options {
    const char *model;
    const char *backend; /* see kern_stream_create() */
    int threads;         /* a rank */
    int32_t chunk;       /* prompt tokens a step */
    int json;
};

/* On all ranks of comm at once, which is divided into the layout's stages; rank 0 writes a table, or a JSON object, to
 * `to`. */
int bench_run(const struct bench_options *o, const struct k3_config *c, const struct layout *l, struct comm *comm,
              FILE *to, struct k3_error *err);

#endif
