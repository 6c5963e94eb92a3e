/* rankbench.h - time the steps of one rank whose peers are imagined */
#ifndef K3_TOOLS_RANKBENCH_H
#define K3_TOOLS_RANKBENCH_H

#include <jansson.h>

#include "common/error.h"
#include "kernels/kernels.h"

enum { RANKBENCH_LIST = 16 };

struct rankbench_options {
    const char *config, *backend;
    enum k3_dtype dense; /* of inventory_dtype()'s dense matrices */
    int tp, rank;
    int batch[RANKBENCH_LIST], batches;
    int context[RANKBENCH_LIST], contexts;
    int delay[RANKBENCH_LIST], delays; /* microseconds of an exchange */
    int prefill;                       /* tokens of one prompt in a step; 0: decode */
    int steps;
    int layers; /* 0: all */
};

/* Prints a row a run and adds it to runs, an object that measured_load() reads.  A run is every delay of every context
 * of every batch; a batch whose contexts do not fit into the device's memory is an error. */
int rankbench(const struct rankbench_options *o, json_t *runs, struct k3_error *err);

#endif
