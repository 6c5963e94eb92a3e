/* layercheck.h - one layer of a backend at a time against another backend's
 *
 * The first backend's residual after each layer is kept.  The second one is given it before every layer, so that a
 * layer's difference is its own and not what earlier ones have left. */
#ifndef K3_ENGINE_LAYERCHECK_H
#define K3_ENGINE_LAYERCHECK_H

#include <stdint.h>

#include "kernels/kernels.h"
#include "model/config.h"

struct layercheck;

/* Room for so many positions.  Borrows config. */
struct layercheck *layercheck_create(const struct k3_config *c, int64_t positions);
void layercheck_destroy(struct layercheck *k);

/* For forward_trace(), arg is the layercheck: the first backend's run, then the second's. */
int layercheck_keep(int layer, const struct k3_tensor *p, void *arg);
int layercheck_compare(int layer, const struct k3_tensor *p, void *arg);
/* A step of so many rows is complete; 0 rows: back to the first. */
void layercheck_rows(struct layercheck *k, int64_t rows);

/* |difference| / |p| after a layer, Euclidean, over all positions. */
double layercheck_difference(const struct layercheck *k, int layer);

#endif
