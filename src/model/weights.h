/* weights.h - this rank's share of the weights, in one arena
 *
 * They come from the files of a checkpoint, which are checked against the whole inventory first (checkpoint.h) and of
 * which this rank's rows and columns are copied; or from this rank's pack (pack.h), which is read as it lies. */
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

struct weights_loading {
    weights_progress_f *progress; /* or NULL; called by the thread that loads */
    void *arg;
    int unverified; /* do not hold what a pack says against its hashes */
};

/* Into memory of the stream's backend, which is borrowed until weights_destroy(): from the pack for this shard where
 * model_dir has one, else from its checkpoint.  how may be NULL.  Copies what it needs of config and shard; the files
 * are closed again. */
struct weights *weights_load(const char *model_dir, const struct k3_config *c, const struct shard *sh,
                             struct k3_stream *s, const struct weights_loading *how, struct k3_error *err);
/* Whether there is something to load: the manifest or the headers of all files are read, so that one which is missing
 * or cut is known before loading begins. */
int weights_look(const char *model_dir, const struct k3_config *c, const struct shard *sh, struct k3_error *err);
/* Weights to measure with: of the right formats (config's `dense` too) and kinds (synthetic.h), but of each tensor only
 * the first SYNTHETIC_PERIOD elements, over and over, and of a layer's experts only the first. */
struct weights *weights_synthetic(const struct k3_config *c, const struct shard *sh, struct k3_stream *s,
                                  struct k3_error *err);
void weights_destroy(struct weights *w);

/* This rank's share of one tensor (rows or cols may be 0), 64-byte aligned; vectors have one row.  layer is -1 for the
 * embedding and the head.  NULL when the layer has no such tensor, and for the roles of experts.  Lives as long as w.
 */
const struct k3_tensor *weights_get(const struct weights *w, enum tensor_role role, int layer);

/* This rank's share of w1 (T_W1), w2 or w3 of its experts in one layer, MXFP4 or BF16; NULL when it has none. */
const struct kern_expert_matrix *weights_experts(const struct weights *w, enum tensor_role role, int layer);

#endif
