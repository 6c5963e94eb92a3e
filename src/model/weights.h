/* weights.h - this rank's share of a checkpoint, in one arena
 *
 * Loading checks the files against the whole inventory first: a text tensor that is missing, misshapen or mistyped is
 * refused by name, vision tensors and weight_shape are passed over and listed in the log, anything else that is too
 * much is refused.  Then it copies this rank's rows and columns. */
#ifndef K3_MODEL_WEIGHTS_H
#define K3_MODEL_WEIGHTS_H

#include "common/error.h"
#include "kernels/kernels.h"
#include "model/config.h"
#include "model/inventory.h"
#include "model/shard.h"

struct weights;

enum { SYNTHETIC_PERIOD = 65521 }; /* a prime: no two rows of a matrix are the same */

/* Bytes that the arena of this shard takes, for the memory budget. */
uint64_t weights_bytes(const struct k3_config *c, const struct shard *sh);

/* Called as loading goes on, last with done == total. */
typedef void weights_progress_f(uint64_t done, uint64_t total, void *arg);

/* Into memory of the stream's backend, which is borrowed until weights_destroy().  progress may be NULL.  Copies what
 * it needs of config and shard; the files are closed again. */
struct weights *weights_load(const char *model_dir, const struct k3_config *c, const struct shard *sh,
                             struct k3_stream *s, weights_progress_f *progress, void *arg, struct k3_error *err);
/* Weights to measure with: of the right formats and kinds (synthetic.h), but of each tensor only the first
 * SYNTHETIC_PERIOD elements, over and over, and of a layer's experts only the first. */
struct weights *weights_synthetic(const struct k3_config *c, const struct shard *sh, struct k3_stream *s,
                                  struct k3_error *err);
void weights_destroy(struct weights *w);

/* This rank's share of one tensor (rows or cols may be 0), 64-byte aligned; vectors have one row.  layer is -1 for the
 * embedding and the head.  NULL when the layer has no such tensor, and for the roles of experts.  Lives as long as w.
 */
const struct k3_tensor *weights_get(const struct weights *w, enum tensor_role role, int layer);

/* This rank's share of all experts' w1 (T_W1), w2 or w3 in one layer, MXFP4 or BF16; NULL when it has none. */
const struct kern_expert_matrix *weights_experts(const struct weights *w, enum tensor_role role, int layer);

#endif
