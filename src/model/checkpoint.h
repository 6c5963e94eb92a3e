/* checkpoint.h - the files of a checkpoint in which every text tensor is there, as config.json says
 *
 * Opening checks the files against the whole inventory: a text tensor that is missing, misshapen or mistyped is refused
 * by name, vision tensors and weight_shape are passed over and listed in the log, anything else that is too much is
 * refused. */
#ifndef K3_MODEL_CHECKPOINT_H
#define K3_MODEL_CHECKPOINT_H

#include "common/error.h"
#include "model/config.h"
#include "model/inventory.h"
#include "model/safetensors.h"
#include "model/shard.h"

struct checkpoint;

/* Copies what it needs of the config.  list: log what is passed over. */
struct checkpoint *checkpoint_open(const char *dir, const struct k3_config *c, int list, struct k3_error *err);
void checkpoint_close(struct checkpoint *cp);

/* Borrowed until checkpoint_close(). */
const struct safetensors *checkpoint_files(const struct checkpoint *cp);
/* What tensor i of the files is; NULL when the text model does not use it. */
const struct tensor_id *checkpoint_at(const struct checkpoint *cp, size_t i);

/* The data of a tensor that checkpoint_at() knows, as it lies in its file. */
const void *checkpoint_data(const struct checkpoint *cp, const struct tensor_id *id);
/* A hash of the files' names and sizes and of samples of what is in them, as text: another checkpoint of the same
 * shapes has another. */
enum { CHECKPOINT_STAMP = 33 };
int checkpoint_stamp(const struct checkpoint *cp, char text[CHECKPOINT_STAMP], struct k3_error *err);

/* Bytes [from, from + bytes) of a rank's share of a tensor, its rows one behind the other, into `to`.  May be called by
 * several threads at once. */
void checkpoint_read(const struct checkpoint *cp, const struct shard *sh, const struct tensor_id *id, uint64_t from,
                     uint64_t bytes, void *to);

#endif
