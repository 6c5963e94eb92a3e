/* weights_map.h - which tensor of a rank's share lies where in its arena (weights.h), and so in its pack (pack.h) */
#ifndef K3_MODEL_WEIGHTS_MAP_H
#define K3_MODEL_WEIGHTS_MAP_H

#include <stddef.h>
#include <stdint.h>

#include "model/config.h"
#include "model/inventory.h"
#include "model/shard.h"

struct weights_place {
    struct tensor_id id; /* of the tensors of the checkpoint: an expert's codes and scales are two */
    enum k3_dtype dtype; /* inventory_dtype() */
    int scales;          /* those of a matrix in a dense format, whose codes are another place */
    uint64_t offset, bytes;
};

struct weights_map {
    uint64_t bytes; /* of the arena */
    size_t count;
    struct weights_place *place; /* in the order of offsets; what lies between two is zeros */
};

struct weights_map *weights_map_create(const struct k3_config *c, const struct shard *sh);
void weights_map_destroy(struct weights_map *m);
/* The first place that ends behind this offset; count when there is none. */
size_t weights_map_find(const struct weights_map *m, uint64_t offset);

#endif
