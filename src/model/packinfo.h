/* packinfo.h - what the packs of a directory have in common: DIR/k3pack.json
 *
 *   format, version   "k3pack", 1
 *   tp, pp, ep        the layout (layout.h)
 *   dense             "bf16", "fp8" or "mxfp8": the form of inventory_dtype()'s dense matrices
 *   model, stamp      hash of config.json (modelhash.h); hash of the checkpoint's files (checkpoint_stamp())
 *
 * The same object stands in each rank's manifest (pack.h), so a pack that was carried there from elsewhere is known.  A
 * directory that has this file is a directory of packs, whatever else lies in it. */
#ifndef K3_MODEL_PACKINFO_H
#define K3_MODEL_PACKINFO_H

#include <jansson.h>

#include "common/error.h"
#include "kernels/kernels.h"
#include "model/layout.h"

enum { PACKINFO_HASH = 33 }; /* a hash as text */
#define PACKINFO_NAME "k3pack.json"

struct packinfo {
    struct layout layout;
    enum k3_dtype dense;
    char model[PACKINFO_HASH], stamp[PACKINFO_HASH];
};

int packinfo_is_in(const char *dir);
int packinfo_read(const char *dir, struct packinfo *info, struct k3_error *err);

/* A new object; and what one that `file` holds says. */
json_t *packinfo_encode(const struct packinfo *info);
int packinfo_decode(const char *file, const json_t *object, struct packinfo *info, struct k3_error *err);

#endif
