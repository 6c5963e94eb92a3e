/* pack_private.h - what reading and writing packs share */
#ifndef K3_MODEL_PACK_PRIVATE_H
#define K3_MODEL_PACK_PRIVATE_H

#include "model/pack.h"
#include "model/weights_map.h"

struct pack {
    struct k3_config config;
    struct shard shard;
    int rank;                 /* of all the layout's */
    char layout[LAYOUT_NAME]; /* layout_name() */
    struct packinfo info;
    struct weights_map *map;
    char *path, *manifest;      /* of the image; of the manifest */
    uint8_t (*hash)[PACK_HASH]; /* [pack_blocks()] */
};

/* Its names and its map; nothing is read. */
struct pack *pack_create(const char *dir, const struct k3_config *c, const struct shard *sh);
size_t pack_blocks(const struct pack *p);
/* Bytes of block i. */
size_t pack_block_bytes(const struct pack *p, size_t i);
void pack_hash(const void *data, size_t bytes, uint8_t hash[PACK_HASH]);
/* Hold the blocks of [offset, offset + bytes), which begins with one, against their hashes: the first that differs, or
 * SIZE_MAX. */
size_t pack_verify(const struct pack *p, uint64_t offset, size_t bytes, const void *data);
/* The manifest as text, for free(); error [places of the map]. */
char *pack_manifest(const struct pack *p, const char *source, const struct quantize_error *error);

/* --- pack_fill.c: what is written ----------------------------------------------------------------------------------
 */

/* The bytes [offset, offset + bytes) of the image.  May be called by several threads at once. */
int pack_fill(const struct pack *p, const struct checkpoint *cp, uint64_t offset, size_t bytes, uint8_t *to,
              struct k3_error *err);
/* What quantising one place's codes costs; zeros where it has none. */
void pack_measure(const struct pack *p, const struct checkpoint *cp, const struct weights_place *place,
                  struct quantize_error *e);

#endif
