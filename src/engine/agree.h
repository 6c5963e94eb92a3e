/* agree.h - before they load, all ranks make sure that they mean the same engine and that it fits
 *
 * Each says what it is and what it will need; all look at the same table, so all come to the same verdict. */
#ifndef K3_ENGINE_AGREE_H
#define K3_ENGINE_AGREE_H

#include <stdint.h>

#include "common/error.h"
#include "gpu/device.h"
#include "model/layout.h"

/* What a rank says of itself.  Plain memory, zeroed before it is filled. */
struct standing {
    char node[64];    /* for sentences */
    char host[64];    /* ranks of one host share its memory */
    char version[32]; /* of the program */
    char model[64];   /* hash of config.json */
    char backend[16];
    char layout[LAYOUT_NAME];
    int32_t slots, prefix_slots, page_tokens, cache_tokens, max_context, prefill_chunk, batch_tokens;
    struct k3_error problem;  /* why it cannot take part; empty: it can */
    uint64_t need_bytes;      /* by this rank */
    uint64_t available_bytes; /* on its host or GPU, before anything was loaded */
    struct device_health health;
};

/* -1 with one sentence that names the first rank, and its node, that has a problem or differs from rank 0, or the first
 * host whose ranks need more memory together than it has. */
int agree_check(const struct standing *all, int ranks, struct k3_error *err);

/* What each rank's GPU is, for the log, and which of them are slow. */
void agree_log_devices(const struct standing *all, int ranks);

#endif
