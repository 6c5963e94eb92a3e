/* pack.h - the weights of one rank as one file, as they lie in its arena
 *
 * DIR/rankR.k3pack is the arena's image (weights_map.h): loading is large reads and nothing else.  DIR/rankR.json, its
 * manifest, says of what it was made and for whom, where each tensor lies in which form, and the BLAKE2b hash of each
 * block of PACK_BLOCK bytes:
 *
 *   pack, rank        what all of the directory's packs have in common (packinfo.h), and whose this one is
 *   source            the checkpoint's directory
 *   tensors           [{name, dtype, offset, bytes}], and of experts, which all lie as the first does, experts and
 * step; NAME.scale has the scales of a matrix in a dense format errors            of each of these: relative (in the
 * Frobenius norm) and largest difference to the checkpoint bytes, block_bytes, hash, blocks
 *
 * The manifest appears last, so a pack that has one is whole.  config.json and the tokenizer lie beside them: the
 * directory takes the place of the checkpoint's. */
#ifndef K3_MODEL_PACK_H
#define K3_MODEL_PACK_H

#include <stddef.h>
#include <stdint.h>

#include "common/error.h"
#include "kernels/kernels.h"
#include "model/checkpoint.h"
#include "model/config.h"
#include "model/layout.h"
#include "model/packinfo.h"
#include "model/quantize.h"
#include "model/shard.h"
#include "model/weights.h"

enum {
    PACK_BLOCK = 1 << 20,        /* bytes of a hash */
    PACK_CHUNK = 8 * PACK_BLOCK, /* bytes of a read or write */
    PACK_HASH = 16               /* bytes of one */
};

struct pack;

/* Read the manifest and hold it against config, shard and the size of the file. */
struct pack *pack_open(const char *dir, const struct k3_config *c, const struct shard *sh, struct k3_error *err);
void pack_close(struct pack *p);
uint64_t pack_bytes(const struct pack *p);
/* The image's file.  Borrowed until pack_close(). */
const char *pack_path(const struct pack *p);
/* Threads that pack_read() takes. */
int pack_threads(const struct pack *p);

/* Read all of it into memory of the stream's backend, past the page cache; `to` NULL: read, check and forget.  Several
 * threads read and hash; the caller's copies to the device.  Host memory beside `to`: PACK_CHUNK for each thread and
 * two more, 144 MiB at most.  A block that is not what was written is named with the tensors in it. */
int pack_read(const struct pack *p, void *to, struct k3_stream *s, const struct weights_loading *how,
              struct k3_error *err);

/* --- writing ---------------------------------------------------------------------------------------------------- */

struct pack_writing {
    const char *dir; /* which has its config.json by now */
    const struct checkpoint *checkpoint;
    const char *source;             /* for the manifest */
    const struct k3_config *config; /* dense is the form to write */
    const struct layout *layout;
    const int *rank; /* [ranks] */
    int ranks;
    int threads;
    weights_progress_f *progress; /* of the bytes of all ranks; by one thread at a time */
    void *arg;
};

struct pack_written {
    uint64_t bytes, kept; /* of the rank's; that were there, with the right hashes */
    struct {
        int tensors;
        struct quantize_error error;
    } role[T_ROLES]; /* of what was quantised by this call */
};

/* Write the packs of these ranks, chunk by chunk for all of them, so that a checkpoint is read once.  What an
 * interrupted call left, or a pack with blocks that are not what their hashes say, is completed: blocks that are right
 * stay.  written [ranks]. */
int pack_write(const struct pack_writing *w, struct pack_written *written, struct k3_error *err);

/* DIR/NAME with these bytes, under that name when it is whole.  A file of other bytes there is not replaced: refused.
 */
int pack_put(const char *dir, const char *name, const void *data, size_t len, struct k3_error *err);

#endif
