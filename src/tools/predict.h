/* predict.h - how long a step takes: what it costs (model/cost.h) on what a device can do (device.h)
 *
 *     step = sum over groups of max(passes x bytes / (share x bandwidth), operations / (matrix_share x matrix_tflops))
 *            + layers x layer_us + exchanges
 *     exchange = phases x phase_us + bytes sent / link_gbs
 *
 * A decoding step takes its dense weights in passes of step_rows rows and its experts' products at expert_tflops; all
 * else is read once.  A stage of a pipeline waits for its slowest rank, which is its first: shares are uneven that way
 * (shard.h). */
#ifndef K3_TOOLS_PREDICT_H
#define K3_TOOLS_PREDICT_H

#include "model/cost.h"
#include "tools/device.h"

struct predict_options {
    struct cost_options cost;
    int one_shot; /* a sum is one phase in which everyone sends all of it to everyone; else it takes two, of parts */
    double
        exchange_us; /* an exchange takes this long, whatever its kind and size; below 0: as the device's links say */
};

/* Decoding: `seqs` sequences, a token each; or, when prefill > 0, one prompt's chunk of so many tokens. */
struct predict_step {
    int seqs, prefill;
    int64_t context; /* tokens before those of the step, each sequence */
};

/* Times of a step on its way through all stages. */
struct prediction {
    struct cost_work work; /* of the rank that moves the most bytes */
    double bytes;          /* ... in all, without what stays in the device's cache */
    double memory_ms;      /* moving bytes */
    double compute_ms;     /* computing where that takes longer, beyond memory_ms */
    double layers_ms;
    int exchanges, phases;
    double latency_ms, wire_ms;
    double wait_ms; /* for the other sequences' turn in the slowest stage */
    double step_ms; /* the sum: from one token of a sequence to its next */
    double tokens_per_second;
};
void predict(const struct k3_config *c, const struct layout *l, const struct device *d, const struct predict_options *o,
             const struct predict_step *step, struct prediction *p);

/* One rank's part, without a pipeline. */
void predict_rank(const struct k3_config *c, const struct layout *l, int rank, const struct device *d,
                  const struct predict_options *o, const struct predict_step *step, struct prediction *p);

#endif
