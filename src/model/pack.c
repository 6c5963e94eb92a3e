#include "model/pack.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <jansson.h>
#include <sodium.h>

#include "common/alloc.h"
#include "model/jsontext.h"
#include "model/modelhash.h"
#include "model/pack_private.h"

enum { MANIFEST_BYTES = 128 << 20, MANIFEST_DEPTH = 8 };

/* --- the pieces ----------------------------------------------------------------------------------------------------
 */

struct pack *pack_create(const char *dir, const struct k3_config *c, const struct shard *sh)
{
    struct pack *p = k3_zalloc(sizeof *p);
    struct layout layout;

    p->config = *c;
    p->shard = *sh;
    p->map = weights_map_create(c, sh);
    p->rank = layout_of_shard(sh, &layout);
    layout_name(&layout, p->layout);
    p->path = k3_asprintf("%s/rank%d.k3pack", dir, p->rank);
    p->manifest = k3_asprintf("%s/rank%d.json", dir, p->rank);
    p->hash = k3_calloc(pack_blocks(p), sizeof *p->hash);
    return p;
}

void pack_close(struct pack *p)
{
    if (!p)
        return;
    weights_map_destroy(p->map);
    free(p->path);
    free(p->manifest);
    free(p->hash);
    free(p);
}

uint64_t pack_bytes(const struct pack *p)
{
    return p->map->bytes;
}

const char *pack_path(const struct pack *p)
{
    return p->path;
}

size_t pack_blocks(const struct pack *p)
{
    return (size_t)((p->map->bytes + PACK_BLOCK - 1) / PACK_BLOCK);
}

size_t pack_block_bytes(const struct pack *p, size_t i)
{
    uint64_t left = p->map->bytes - (uint64_t)i * PACK_BLOCK;

    return left < PACK_BLOCK ? (size_t)left : PACK_BLOCK;
}

void pack_hash(const void *data, size_t bytes, uint8_t hash[PACK_HASH])
{
    crypto_generichash(hash, PACK_HASH, data, bytes, NULL, 0);
}

size_t pack_verify(const struct pack *p, uint64_t offset, size_t bytes, const void *data)
{
    uint8_t hash[PACK_HASH];
    size_t first = (size_t)(offset / PACK_BLOCK);

    for (size_t i = first, at = 0; at < bytes; at += PACK_BLOCK, i++) {
        pack_hash((const char *)data + at, pack_block_bytes(p, i), hash);
        if (memcmp(hash, p->hash[i], sizeof hash) != 0)
            return i;
    }
    return SIZE_MAX;
}

/* --- the manifest --------------------------------------------------------------------------------------------------
 */

/* As a checkpoint would call it. */
static const char *dtype_name(const struct weights_place *place, const struct tensor_desc *t)
{
    if (place->dtype == K3_FP8_E4M3)
        return place->scales ? "F32" : "F8_E4M3";
    if (place->dtype == K3_MXFP8)
        return place->scales ? "F8_E8M0" : "F8_E4M3";
    return t->dtype;
}

static void describe(const struct pack *p, const struct weights_place *place, struct tensor_desc *t)
{
    inventory_describe(&p->config, place->id.role, place->id.layer, place->id.expert, t);
}

/* How far an expert's tensors lie behind the one's before: the map has them in the same order, all of one expert
 * together. */
static uint64_t expert_step(const struct weights_map *m, size_t i)
{
    for (size_t j = i + 1; j < m->count; j++)
        if (m->place[j].id.expert == m->place[i].id.expert + 1 && m->place[j].id.role == m->place[i].id.role)
            return m->place[j].offset - m->place[i].offset;
    return 0;
}

/* Where everything lies, in which form. */
static json_t *list_tensors(const struct pack *p)
{
    const struct weights_map *m = p->map;
    json_t *list = json_array();
    struct range experts = shard_range(&p->config, &p->shard, SHARD_EXPERTS);
    struct tensor_desc t;

    for (size_t i = 0; i < m->count; i++) {
        const struct weights_place *at = &m->place[i];
        if (at->id.expert > experts.begin)
            continue;
        describe(p, at, &t);
        json_t *row = json_pack("{s:s+, s:s, s:I, s:I}", "name", t.name, at->scales ? ".scale" : "", "dtype",
                                dtype_name(at, &t), "offset", (json_int_t)at->offset, "bytes", (json_int_t)at->bytes);
        if (at->id.expert >= 0) {
            json_object_set_new(row, "experts", json_integer(experts.end - experts.begin));
            json_object_set_new(row, "step", json_integer((json_int_t)expert_step(m, i)));
        }
        json_array_append_new(list, row);
    }
    return list;
}

static json_t *list_blocks(const struct pack *p)
{
    json_t *list = json_array();
    char text[2 * PACK_HASH + 1];

    for (size_t i = 0; i < pack_blocks(p); i++)
        json_array_append_new(list, json_string(sodium_bin2hex(text, sizeof text, p->hash[i], PACK_HASH)));
    return list;
}

static json_t *list_errors(const struct pack *p, const struct quantize_error *error)
{
    json_t *list = json_object();
    struct tensor_desc t;

    for (size_t i = 0; i < p->map->count; i++) {
        if (error[i].norm2 == 0)
            continue;
        describe(p, &p->map->place[i], &t);
        json_object_set_new(
            list, t.name,
            json_pack("{s:f, s:f}", "relative", quantize_relative(&error[i]), "largest", error[i].largest));
    }
    return list;
}

char *pack_manifest(const struct pack *p, const char *source, const struct quantize_error *error)
{
    json_t *root =
        json_pack("{s:o, s:i, s:s, s:I, s:i, s:s, s:o, s:o, s:o}", "pack", packinfo_encode(&p->info), "rank", p->rank,
                  "source", source, "bytes", (json_int_t)p->map->bytes, "block_bytes", PACK_BLOCK, "hash",
                  "blake2b-128", "errors", list_errors(p, error), "tensors", list_tensors(p), "blocks", list_blocks(p));
    char *text = json_dumps(root, JSON_INDENT(1) | JSON_REAL_PRECISION(9));

    json_decref(root);
    return text;
}

/* What a pack that cannot be used is to be mended with. */
static int refuse(const struct pack *p, const char *what, struct k3_error *err)
{
    errno = EINVAL;
    return k3_errorf(err, "%s: %s: k3pack --layout %s --rank %d writes it anew", p->manifest, what, p->layout, p->rank);
}

static int check_number(const struct pack *p, const json_t *root, const char *key, uint64_t want, struct k3_error *err)
{
    const json_t *is = json_object_get(root, key);
    char what[128];

    if (json_is_integer(is) && (uint64_t)json_integer_value(is) == want)
        return 0;
    snprintf(what, sizeof what, "%s is %" JSON_INTEGER_FORMAT ", not %" PRIu64, key, json_integer_value(is), want);
    return refuse(p, what, err);
}

static int check_tensors(const struct pack *p, const json_t *root, struct k3_error *err)
{
    json_t *is = json_object_get(root, "tensors"), *want = list_tensors(p), *row;
    char what[2 * TENSOR_NAME_MAX];
    size_t i;
    int rc = 0;

    json_array_foreach(want, i, row) if (!json_equal(row, json_array_get(is, i)))
    {
        snprintf(what, sizeof what, "tensor %s does not lie there as this k3 wants it",
                 json_string_value(json_object_get(row, "name")));
        rc = refuse(p, what, err);
        break;
    }
    if (rc == 0 && json_array_size(is) != json_array_size(want)) {
        snprintf(what, sizeof what, "has %zu tensors, not %zu", json_array_size(is), json_array_size(want));
        rc = refuse(p, what, err);
    }
    json_decref(want);
    return rc;
}

static int read_blocks(struct pack *p, const json_t *root, struct k3_error *err)
{
    const json_t *list = json_object_get(root, "blocks");
    char what[128];

    snprintf(what, sizeof what, "has hashes of %zu blocks, not %zu", json_array_size(list), pack_blocks(p));
    if (json_array_size(list) != pack_blocks(p))
        return refuse(p, what, err);
    for (size_t i = 0; i < pack_blocks(p); i++) {
        const char *hex = json_string_value(json_array_get(list, i)), *end = NULL;
        size_t len = 0;
        snprintf(what, sizeof what, "the hash of block %zu is not %d hex digits", i, 2 * PACK_HASH);
        if (!hex || sodium_hex2bin(p->hash[i], PACK_HASH, hex, strlen(hex), NULL, &len, &end) < 0 || *end ||
            len != PACK_HASH)
            return refuse(p, what, err);
    }
    return 0;
}

static int check_size(const struct pack *p, struct k3_error *err)
{
    struct stat st;

    if (stat(p->path, &st) < 0)
        return k3_errorf(err, "%s: %s", p->path, strerror(errno));
    if ((uint64_t)st.st_size == p->map->bytes)
        return 0;
    errno = EINVAL;
    return k3_errorf(err, "%s: has %lld bytes, not %" PRIu64 ": k3pack --layout %s --rank %d mends it", p->path,
                     (long long)st.st_size, p->map->bytes, p->layout, p->rank);
}

/* The directory: for this model and layout? */
static int check_info(struct pack *p, const char *dir, struct k3_error *err)
{
    char model[MODELHASH_TEXT], is[LAYOUT_NAME];

    if (packinfo_read(dir, &p->info, err) < 0 || modelhash(dir, model, err) < 0)
        return -1;
    errno = EINVAL;
    layout_name(&p->info.layout, is);
    if (strcmp(is, p->layout) != 0)
        return k3_errorf(err,
                         "%s/" PACKINFO_NAME
                         ": layout is %s, not %s: start %d rank%s with it, or run k3pack --layout %s "
                         "into another directory",
                         dir, is, p->layout, layout_ranks(&p->info.layout),
                         layout_ranks(&p->info.layout) == 1 ? "" : "s", p->layout);
    if (strcmp(p->info.model, model) != 0)
        return k3_errorf(err,
                         "%s/" PACKINFO_NAME ": model is not the hash of the config.json there: put back the one that "
                         "was packed, or run k3pack into another directory",
                         dir);
    if (p->info.dense != p->config.dense)
        return k3_errorf(err, "%s/" PACKINFO_NAME ": dense is %s, not %s", dir, inventory_dense_name(p->info.dense),
                         inventory_dense_name(p->config.dense));
    return 0;
}

static int check_manifest(struct pack *p, const json_t *root, struct k3_error *err)
{
    json_t *want = packinfo_encode(&p->info);
    const char *hash = json_string_value(json_object_get(root, "hash"));
    int same = json_equal(want, json_object_get(root, "pack"));

    json_decref(want);
    if (!same)
        return refuse(p, "pack is not what " PACKINFO_NAME " says: it is from another directory", err);
    if (!hash || strcmp(hash, "blake2b-128") != 0)
        return refuse(p, "hash is not blake2b-128", err);
    if (check_number(p, root, "rank", (uint64_t)p->rank, err) < 0 ||
        check_number(p, root, "block_bytes", PACK_BLOCK, err) < 0 || check_tensors(p, root, err) < 0 ||
        check_number(p, root, "bytes", p->map->bytes, err) < 0)
        return -1;
    return read_blocks(p, root, err) < 0 || check_size(p, err) < 0 ? -1 : 0;
}

struct pack *pack_open(const char *dir, const struct k3_config *c, const struct shard *sh, struct k3_error *err)
{
    struct pack *p = pack_create(dir, c, sh), *opened = NULL;
    char *text = NULL;
    json_t *root = NULL;
    size_t len;

    if (sodium_init() < 0) { /* its hashes are slow until it has looked at the processor */
        k3_errorf(err, "libsodium does not start");
        goto out;
    }
    if (check_info(p, dir, err) < 0)
        goto out;
    if (access(p->manifest, F_OK) < 0 && errno == ENOENT) {
        k3_errorf(err, "%s: is missing: run k3pack --layout %s --rank %d", p->manifest, p->layout, p->rank);
        goto out;
    }
    if (!(text = jsontext_load(p->manifest, MANIFEST_BYTES, &len, err)) ||
        !(root = jsontext_parse(p->manifest, text, len, MANIFEST_DEPTH, err)) || check_manifest(p, root, err) < 0)
        goto out;
    opened = p;
    p = NULL;
out:
    json_decref(root);
    free(text);
    pack_close(p);
    return opened;
}
