#include "model/weights.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/alloc.h"
#include "gpu/arena.h"
#include "model/checkpoint.h"
#include "model/pack.h"
#include "model/packinfo.h"
#include "model/quantize.h"
#include "model/synthetic.h"
#include "model/weights_map.h"

static const char PART[] = "weights";

/* The tensors of an expert lie together, expert after expert, so that one of them is one stretch of memory. */
enum { W1, W2, W3, MATRICES };
/* The roles of a matrix: T_W1 and, behind it, those of its MXFP4 form. */
enum { WHOLE, PACKED, SCALE, FORMS };

struct layer_weights {
    struct k3_tensor tensor[T_ROLES]; /* data is NULL where the layer has none */
    struct kern_expert_matrix expert[MATRICES];
};

struct weights {
    struct arena *arena;
    struct layer_weights *at; /* [layers + 1], the first for the embedding and the head */
    struct weights_map *map;  /* takes down what is laid out; or NULL */
};

/* --- layout --------------------------------------------------------------------------------------------------------
 */

static int64_t length(struct range r)
{
    return r.end - r.begin;
}

static uint64_t part_bytes(const struct shard_part *p, enum tensor_role role)
{
    return (uint64_t)(length(p->row) * length(p->col) * inventory_element_bytes(role));
}

static uint64_t aligned(uint64_t bytes)
{
    return (bytes + ARENA_ALIGN - 1) / ARENA_ALIGN * ARENA_ALIGN;
}

static void note(struct weights_map *m, struct weights_place place)
{
    if ((m->count & (m->count - 1)) == 0) /* full: it grows by doubling */
        m->place = k3_reallocarray(m->place, m->count ? 2 * m->count : 1, sizeof *m->place);
    m->place[m->count++] = place;
}

/* Room for what is described, whose offset is the next. */
static void *take(struct weights *w, struct weights_place place)
{
    place.offset = arena_used(w->arena);
    if (w->map)
        note(w->map, place);
    return arena_take(w->arena, place.bytes);
}

static int is_scaled(enum k3_dtype dtype)
{
    return dtype == K3_FP8_E4M3 || dtype == K3_MXFP8;
}

static void place_tensor(struct weights *w, struct k3_tensor *t, const struct shard_part *p, struct tensor_id id,
                         enum k3_dtype dtype)
{
    int64_t rows = length(p->row), cols = length(p->col);
    uint64_t bytes = is_scaled(dtype) ? (uint64_t)(rows * cols) : part_bytes(p, id.role);
    uint64_t scales = (uint64_t)(dtype == K3_FP8_E4M3 ? rows * (int64_t)sizeof(float) : rows * cols / K3_MX_BLOCK);

    *t = (struct k3_tensor){.data = take(w, (struct weights_place){id, dtype, 0, 0, bytes}),
                            .dtype = dtype,
                            .layout = K3_ROW_MAJOR,
                            .rows = rows,
                            .cols = cols,
                            .stride = cols};
    if (is_scaled(dtype))
        t->scale = take(w, (struct weights_place){id, dtype, 1, 0, scales});
}

/* The first expert's matrix, described as the whole form is.  Returns the bytes that it takes. */
static uint64_t place_matrix(struct weights *w, struct k3_tensor *t, const struct k3_config *c, const struct shard *sh,
                             enum tensor_role whole, int layer)
{
    enum tensor_role packed = whole + PACKED, scale = whole + SCALE;
    struct tensor_id id = {(int16_t)whole, (int16_t)layer, (int32_t)shard_range(c, sh, SHARD_EXPERTS).begin};
    struct shard_part p = shard_of(c, sh, whole), codes = shard_of(c, sh, packed), scales = shard_of(c, sh, scale);

    if (!c->mxfp4) {
        place_tensor(w, t, &p, id, K3_BF16);
        return aligned(part_bytes(&p, whole));
    }
    id.role = (int16_t)packed;
    place_tensor(w, t, &codes, id, K3_U8);
    id.role = (int16_t)scale;
    t->scale = take(w, (struct weights_place){id, K3_U8, 0, 0, part_bytes(&scales, scale)});
    t->dtype = K3_MXFP4;
    t->cols = t->stride = length(p.col);
    return aligned(part_bytes(&codes, packed)) + aligned(part_bytes(&scales, scale));
}

/* The others lie as the first one does. */
static void note_experts(struct weights_map *m, size_t first, uint64_t step, int64_t experts)
{
    size_t tensors = m->count - first;

    for (int64_t e = 1; e < experts; e++)
        for (size_t i = first; i < first + tensors; i++) {
            struct weights_place place = m->place[i];
            place.id.expert += (int32_t)e;
            place.offset += step * (uint64_t)e;
            note(m, place);
        }
}

static void place_experts(struct weights *w, struct kern_expert_matrix *m, const struct k3_config *c,
                          const struct shard *sh, int layer)
{
    int64_t experts = shard_count(c, sh, SHARD_EXPERTS);
    uint64_t step = 0;
    size_t first = w->map ? w->map->count : 0;

    for (int i = 0; i < MATRICES; i++)
        step += place_matrix(w, &m[i].first, c, sh, T_W1 + FORMS * i, layer);
    for (int i = 0; i < MATRICES; i++) {
        m[i].data_step = (int64_t)step;
        m[i].scale_step = c->mxfp4 ? (int64_t)step : 0;
    }
    arena_take(w->arena, step * (uint64_t)(experts - 1));
    if (w->map)
        note_experts(w->map, first, step, experts);
}

/* Lay out everything in the order of the checkpoint: called once to count and once to place. */
static void lay_out(struct weights *w, const struct k3_config *c, const struct shard *sh)
{
    arena_part(w->arena, PART);
    for (int l = -1; l < c->layers; l++) {
        struct layer_weights *at = &w->at[l + 1];
        for (enum tensor_role role = 0; role < T_ROLES; role++) {
            if (!shard_has(c, sh, role, l))
                continue;
            if (role == T_W1 || role == T_W1_PACKED) {
                place_experts(w, at->expert, c, sh, l);
            } else if (!inventory_is_expert(role)) {
                struct shard_part p = shard_of(c, sh, role);
                place_tensor(w, &at->tensor[role], &p, (struct tensor_id){(int16_t)role, (int16_t)l, -1},
                             inventory_dtype(c, role, c->dense));
            }
        }
    }
}

/* Counted, not yet placed. */
static struct weights *create(const struct k3_config *c, const struct shard *sh, struct weights_map *map)
{
    struct weights *w = k3_zalloc(sizeof *w);

    w->map = map;
    w->at = k3_calloc((size_t)c->layers + 1, sizeof *w->at);
    w->arena = arena_create();
    lay_out(w, c, sh);
    return w;
}

uint64_t weights_bytes(const struct k3_config *c, const struct shard *sh)
{
    struct weights *w = create(c, sh, NULL);
    uint64_t bytes = arena_bytes(w->arena, PART);

    weights_destroy(w);
    return bytes;
}

struct weights_map *weights_map_create(const struct k3_config *c, const struct shard *sh)
{
    struct weights_map *m = k3_zalloc(sizeof *m);
    struct weights *w = create(c, sh, m);

    m->bytes = arena_bytes(w->arena, PART);
    weights_destroy(w);
    return m;
}

void weights_map_destroy(struct weights_map *m)
{
    if (m)
        free(m->place);
    free(m);
}

size_t weights_map_find(const struct weights_map *m, uint64_t offset)
{
    size_t low = 0, high = m->count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (m->place[middle].offset + m->place[middle].bytes > offset)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* In memory of the stream's backend. */
static struct weights *place(const struct k3_config *c, const struct shard *sh, struct k3_stream *s,
                             struct k3_error *err)
{
    struct weights *w = create(c, sh, NULL);

    if (arena_commit(w->arena, s, err) < 0) {
        k3_error_prefix(err, "this rank's weights: ");
        weights_destroy(w);
        return NULL;
    }
    lay_out(w, c, sh);
    return w;
}

void weights_destroy(struct weights *w)
{
    if (!w)
        return;
    arena_destroy(w->arena);
    free(w->at);
    free(w);
}

const struct k3_tensor *weights_get(const struct weights *w, enum tensor_role role, int layer)
{
    const struct k3_tensor *t = &w->at[layer + 1].tensor[role];

    return t->data ? t : NULL;
}

const struct kern_expert_matrix *weights_experts(const struct weights *w, enum tensor_role role, int layer)
{
    const struct kern_expert_matrix *m = &w->at[layer + 1].expert[(role - T_W1) / FORMS];

    return m->first.data ? m : NULL;
}

/* --- copying -------------------------------------------------------------------------------------------------------
 */

struct loader {
    const struct k3_config *config;
    const struct shard *shard;
    const struct checkpoint *checkpoint;
    struct k3_stream *stream;
    int drop; /* pages behind us leave the cache */
    const struct weights_loading *how;
};

/* Whether a tensor of the files is one of which this rank has a part. */
static int is_ours(const struct loader *ld, const struct tensor_id *f)
{
    struct range own = shard_range(ld->config, ld->shard, SHARD_EXPERTS);

    return f && shard_has(ld->config, ld->shard, f->role, f->layer) &&
           (!inventory_is_expert(f->role) || (f->expert >= own.begin && f->expert < own.end));
}

/* Where a tensor's part goes; `expert` counts from the first of this rank's. */
static uint8_t *destination(struct weights *w, const struct tensor_id *f, int64_t expert)
{
    struct layer_weights *at = &w->at[f->layer + 1];

    if (!inventory_is_expert(f->role))
        return at->tensor[f->role].data;
    struct kern_expert_matrix *m = &at->expert[(f->role - T_W1) / FORMS];
    if ((f->role - T_W1) % FORMS == SCALE)
        return (uint8_t *)m->first.scale + expert * m->scale_step;
    return (uint8_t *)m->first.data + expert * m->data_step;
}

/* The stretch of a tensor's data from its part's first to its last byte. */
static const uint8_t *stretch(const struct safetensors_tensor *t, const struct shard_part *p, int element,
                              uint64_t *bytes)
{
    int64_t first = (p->row.begin * p->cols + p->col.begin) * element;
    int64_t last = ((p->row.end - 1) * p->cols + p->col.end) * element;

    *bytes = length(p->row) && length(p->col) ? (uint64_t)(last - first) : 0;
    return (const uint8_t *)t->data + first;
}

static int copy_part(const struct loader *ld, uint8_t *to, const struct safetensors_tensor *t,
                     const struct shard_part *p, int element)
{
    uint64_t bytes;
    const uint8_t *from = stretch(t, p, element, &bytes);
    size_t row = (size_t)(length(p->col) * element), whole = (size_t)(p->cols * element);

    if (!bytes)
        return 0;
    if (row == whole)
        return kern_copy(ld->stream, to, bytes, from, bytes, bytes, 1);
    return kern_copy(ld->stream, to, row, from, whole, row, (size_t)length(p->row));
}

/* Ask for the part of tensor i, if it is one of ours, while the one before it is copied. */
static void ask_for(const struct loader *ld, size_t i)
{
    const struct safetensors *st = checkpoint_files(ld->checkpoint);
    const struct tensor_id *f = i < safetensors_count(st) ? checkpoint_at(ld->checkpoint, i) : NULL;
    uint64_t bytes;

    if (!is_ours(ld, f))
        return;
    struct shard_part p = shard_of(ld->config, ld->shard, f->role);
    const uint8_t *data = stretch(safetensors_at(st, i), &p, inventory_element_bytes(f->role), &bytes);
    safetensors_will_read(data, bytes);
}

/* In the order of the files, so that disks read forward. */
static int copy_all(struct weights *w, const struct loader *ld, struct k3_error *err)
{
    const struct safetensors *st = checkpoint_files(ld->checkpoint);
    const struct weights_loading *how = ld->how;
    uint64_t done = 0, total = arena_bytes(w->arena, PART);
    int64_t first = shard_range(ld->config, ld->shard, SHARD_EXPERTS).begin;

    for (size_t i = 0; i < safetensors_count(st); i++) {
        const struct safetensors_tensor *t = safetensors_at(st, i);
        const struct tensor_id *f = checkpoint_at(ld->checkpoint, i);
        ask_for(ld, i + 1);
        if (!is_ours(ld, f))
            continue;
        struct shard_part p = shard_of(ld->config, ld->shard, f->role);
        if (copy_part(ld, destination(w, f, f->expert - first), t, &p, inventory_element_bytes(f->role)) < 0)
            return k3_errorf(err, "tensor %s cannot be copied to the memory of backend %s: %s", t->name,
                             kern_stream_name(ld->stream), kern_stream_error(ld->stream));
        if (ld->drop)
            safetensors_drop(st, t);
        done += part_bytes(&p, f->role);
        if (how->progress)
            how->progress(done, total, how->arg);
    }
    if (kern_sync(ld->stream) < 0)
        return k3_errorf(err, "this rank's weights: backend %s: %s", kern_stream_name(ld->stream),
                         kern_stream_error(ld->stream));
    if (how->progress)
        how->progress(total, total, how->arg);
    return 0;
}

/* Files that are small beside the memory stay cached for the next start; others would push out what the node needs. */
static int is_large(const struct safetensors *st)
{
    uint64_t bytes = 0, memory = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);

    for (size_t i = 0; i < safetensors_count(st); i++)
        bytes += safetensors_at(st, i)->bytes;
    return bytes > memory / 4;
}

static struct weights *load_checkpoint(const char *dir, const struct k3_config *c, const struct shard *sh,
                                       struct k3_stream *s, const struct weights_loading *how, struct k3_error *err)
{
    struct checkpoint *cp = checkpoint_open(dir, c, sh->rank == 0 && sh->stage == 0, err);
    struct weights *w = cp ? place(c, sh, s, err) : NULL;
    struct loader ld = {c, sh, cp, s, cp && is_large(checkpoint_files(cp)), how};

    if (w && copy_all(w, &ld, err) < 0) {
        weights_destroy(w);
        w = NULL;
    }
    checkpoint_close(cp);
    return w;
}

static struct weights *load_pack(const char *dir, const struct k3_config *c, const struct shard *sh,
                                 struct k3_stream *s, const struct weights_loading *how, struct k3_error *err)
{
    struct pack *p = pack_open(dir, c, sh, err);
    struct weights *w = p ? place(c, sh, s, err) : NULL;

    if (w && pack_read(p, arena_base(w->arena), s, how, err) < 0) {
        weights_destroy(w);
        w = NULL;
    }
    pack_close(p);
    return w;
}

struct weights *weights_load(const char *model_dir, const struct k3_config *c, const struct shard *sh,
                             struct k3_stream *s, const struct weights_loading *how, struct k3_error *err)
{
    static const struct weights_loading plain;

    return (packinfo_is_in(model_dir) ? load_pack : load_checkpoint)(model_dir, c, sh, s, how ? how : &plain, err);
}

int weights_look(const char *model_dir, const struct k3_config *c, const struct shard *sh, struct k3_error *err)
{
    if (packinfo_is_in(model_dir)) {
        struct pack *p = pack_open(model_dir, c, sh, err);
        pack_close(p);
        return p ? 0 : -1;
    }
    struct safetensors *st = safetensors_open_dir(model_dir, err);
    safetensors_close(st);
    return st ? 0 : -1;
}

/* --- synthetic weights ---------------------------------------------------------------------------------------------
 */

/* What lies at the start of a stretch, again and again until its end. */
static int repeat(struct k3_stream *s, char *to, uint64_t filled, uint64_t bytes)
{
    for (uint64_t n; filled < bytes; filled += n) {
        n = filled < bytes - filled ? filled : bytes - filled;
        if (kern_copy(s, to + filled, n, to, n, n, 1) < 0)
            return -1;
    }
    return 0;
}

/* What is in this process' memory, again and again. */
static int lay(struct k3_stream *s, char *to, const void *from, uint64_t filled, uint64_t bytes)
{
    if (kern_copy(s, to, filled, from, filled, filled, 1) < 0 || kern_sync(s) < 0)
        return -1;
    return repeat(s, to, filled, bytes);
}

/* The first elements, which lie in room as BF16, as a dense format keeps them when they are one row. */
static int fill_quantised(const struct k3_tensor *t, struct k3_stream *s, uint16_t *room)
{
    uint64_t elements = (uint64_t)(t->rows * t->cols),
             first = elements < SYNTHETIC_PERIOD ? elements : SYNTHETIC_PERIOD;
    uint8_t *code = (uint8_t *)(room + SYNTHETIC_PERIOD);
    union {
        float row;
        uint8_t block[SYNTHETIC_PERIOD / K3_MX_BLOCK];
    } scale;

    if (t->dtype == K3_MXFP8)
        first -= first % K3_MX_BLOCK;
    if (first == 0)
        return 0;
    if (quantize_row(t->dtype, room, (int64_t)first, 0, (int64_t)first, code, &scale) < 0)
        return -1;
    if (lay(s, t->data, code, first, elements) < 0)
        return -1;
    if (t->dtype == K3_MXFP8)
        return lay(s, t->scale, scale.block, first / K3_MX_BLOCK, elements / K3_MX_BLOCK);
    return lay(s, t->scale, &scale.row, sizeof scale.row, (uint64_t)t->rows * sizeof scale.row);
}

static int fill_tensor(struct weights *w, const struct k3_config *c, const struct shard *sh, enum tensor_role role,
                       int layer, struct k3_stream *s, void *room)
{
    struct tensor_desc t;
    struct shard_part p = shard_of(c, sh, role);
    struct tensor_id f = {.role = (int16_t)role, .layer = (int16_t)layer};
    uint64_t bytes = part_bytes(&p, role), first = SYNTHETIC_PERIOD * (uint64_t)inventory_element_bytes(role);

    inventory_describe(c, role, layer, inventory_is_expert(role) ? 0 : -1, &t);
    first = first < bytes ? first : bytes;
    synthetic_fill(c, &t, 0, first / (uint64_t)inventory_element_bytes(role), room);
    if (is_scaled(w->at[layer + 1].tensor[role].dtype))
        return fill_quantised(&w->at[layer + 1].tensor[role], s, room);
    return lay(s, (char *)destination(w, &f, 0), room, first, bytes);
}

static int fill_layer(struct weights *w, const struct k3_config *c, const struct shard *sh, int layer,
                      struct k3_stream *s, void *room)
{
    const struct kern_expert_matrix *m = w->at[layer + 1].expert;

    for (enum tensor_role role = 0; role < T_ROLES; role++)
        if (shard_has(c, sh, role, layer) && fill_tensor(w, c, sh, role, layer, s, room) < 0)
            return -1;
    if (!m->first.data)
        return 0;
    uint64_t step = (uint64_t)m->data_step;
    return repeat(s, m->first.data, step, step * (uint64_t)shard_count(c, sh, SHARD_EXPERTS));
}

struct weights *weights_synthetic(const struct k3_config *c, const struct shard *sh, struct k3_stream *s,
                                  struct k3_error *err)
{
    struct weights *w = place(c, sh, s, err);
    void *room = k3_calloc(SYNTHETIC_PERIOD, sizeof(float));
    int rc = w ? 0 : -1;

    for (int layer = -1; rc == 0 && layer < c->layers; layer++)
        if ((rc = fill_layer(w, c, sh, layer, s, room)) < 0)
            k3_errorf(err, "layer %d: %s", layer, kern_stream_error(s));
    if (rc == 0 && (rc = kern_sync(s)) < 0)
        k3_errorf(err, "backend %s: %s", kern_stream_name(s), kern_stream_error(s));
    free(room);
    if (rc == 0)
        return w;
    weights_destroy(w);
    return NULL;
}
