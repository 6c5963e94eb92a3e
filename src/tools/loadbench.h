/* loadbench.h - time loading a rank's pack beside plain reads of the same file */
#ifndef K3_TOOLS_LOADBENCH_H
#define K3_TOOLS_LOADBENCH_H

#include <stdbool.h>

#include <jansson.h>

#include "common/error.h"

enum { LOADBENCH_ROUNDS = 100 };

struct loadbench_options {
    const char *model; /* directory of packs */
    const char *backend;
    int rank, rounds;
    bool unverified;
};

/* Each round reads the file once plainly and loads it once, with nothing of it in the page cache.  Prints a row a round
 * and the medians, and puts them into result, an object. */
int loadbench(const struct loadbench_options *o, json_t *result, struct k3_error *err);

#endif
