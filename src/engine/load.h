/* load.h - every rank loads its share of the checkpoint, and rank 0 hears how far each has come
 *
 * Ranks meet LOAD_PIECES times on the way, each after the same part of its own share, and say how much they have. */
#ifndef K3_ENGINE_LOAD_H
#define K3_ENGINE_LOAD_H

#include <stdbool.h>
#include <stdint.h>

#include "comm/comm.h"
#include "common/error.h"
#include "model/weights.h"

enum { LOAD_PIECES = 20 };

/* Bytes loaded and bytes in all, [ranks] each. */
typedef void load_progress_f(const uint64_t *done, const uint64_t *total, int ranks, void *arg);

/* weights_load() on all ranks of c at once; `progress` is called on rank 0.  It fails on all ranks or on none.
 * verify: hold packs against their hashes. */
struct weights *load_weights(const char *model_dir, const struct k3_config *config, const struct shard *sh,
                             struct k3_stream *s, struct comm *c, bool verify, load_progress_f *progress, void *arg,
                             struct k3_error *err);

#endif
