#include "model/weights.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/alloc.h"
#include "common/log.h"
#include "gpu/arena.h"
#include "model/safetensors.h"
#include "model/synthetic.h"

enum { LISTED_MAX = 200 };
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

static enum k3_dtype dtype_of(enum tensor_role role)
{
    return inventory_element_bytes(role) == 4 ? K3_F32 : inventory_element_bytes(role) == 2 ? K3_BF16 : K3_U8;
}

static void place_tensor(struct arena *a, struct k3_tensor *t, const struct shard_part *p, enum tensor_role role)
{
    *t = (struct k3_tensor){.data = arena_take(a, part_bytes(p, role)),
                            .dtype = dtype_of(role),
                            .layout = K3_ROW_MAJOR,
                            .rows = length(p->row),
                            .cols = length(p->col),
                            .stride = length(p->col)};
}

/* The first expert's matrix, described as the whole form is.  Returns the bytes that it takes. */
static uint64_t place_matrix(struct arena *a, struct k3_tensor *t, const struct k3_config *c, const struct shard *sh,
                             enum tensor_role whole)
{
    enum tensor_role packed = whole + PACKED, scale = whole + SCALE;
    struct shard_part p = shard_of(c, sh, whole), codes = shard_of(c, sh, packed), scales = shard_of(c, sh, scale);

    if (!c->mxfp4) {
        place_tensor(a, t, &p, whole);
        return aligned(part_bytes(&p, whole));
    }
    place_tensor(a, t, &codes, packed);
    t->scale = arena_take(a, part_bytes(&scales, scale));
    t->dtype = K3_MXFP4;
    t->cols = t->stride = length(p.col);
    return aligned(part_bytes(&codes, packed)) + aligned(part_bytes(&scales, scale));
}

static void place_experts(struct arena *a, struct kern_expert_matrix *m, const struct k3_config *c,
                          const struct shard *sh)
{
    uint64_t step = 0;

    for (int i = 0; i < MATRICES; i++)
        step += place_matrix(a, &m[i].first, c, sh, T_W1 + FORMS * i);
    for (int i = 0; i < MATRICES; i++) {
        m[i].data_step = (int64_t)step;
        m[i].scale_step = c->mxfp4 ? (int64_t)step : 0;
    }
    arena_take(a, step * (uint64_t)(c->experts - 1));
}

/* Lay out everything in the order of the checkpoint: called once to count and once to place. */
static void lay_out(struct weights *w, const struct k3_config *c, const struct shard *sh)
{
    arena_part(w->arena, PART);
    for (int l = -1; l < c->layers; l++) {
        struct layer_weights *at = &w->at[l + 1];
        for (enum tensor_role role = 0; role < T_ROLES; role++) {
            if (!inventory_has(c, role, l))
                continue;
            if (role == T_W1 || role == T_W1_PACKED) {
                place_experts(w->arena, at->expert, c, sh);
            } else if (!inventory_is_expert(role)) {
                struct shard_part p = shard_of(c, sh, role);
                place_tensor(w->arena, &at->tensor[role], &p, role);
            }
        }
    }
}

/* Counted, not yet placed. */
static struct weights *create(const struct k3_config *c, const struct shard *sh)
{
    struct weights *w = k3_zalloc(sizeof *w);

    w->at = k3_calloc((size_t)c->layers + 1, sizeof *w->at);
    w->arena = arena_create();
    lay_out(w, c, sh);
    return w;
}

uint64_t weights_bytes(const struct k3_config *c, const struct shard *sh)
{
    struct weights *w = create(c, sh);
    uint64_t bytes = arena_bytes(w->arena, PART);

    weights_destroy(w);
    return bytes;
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

/* --- the checkpoint against the inventory ------------------------------------------------------------------------- */

/* What one tensor of the files is. */
struct found {
    int16_t role; /* -1: not a text tensor */
    int16_t layer;
    int32_t expert;
};

static void print_shape(char *text, size_t room, int dims, const int64_t *shape)
{
    size_t n = (size_t)snprintf(text, room, "[");

    for (int d = 0; d < dims && n < room; d++)
        n += (size_t)snprintf(text + n, room - n, "%s%lld", d ? "," : "", (long long)shape[d]);
    if (n < room)
        snprintf(text + n, room - n, "]");
}

static int check_tensor(const struct safetensors *st, const struct safetensors_tensor *t,
                        const struct tensor_desc *want, struct k3_error *err)
{
    char is[128], should[128];

    if (strcmp(t->dtype, want->dtype) != 0)
        return k3_errorf(err, "%s: tensor %s has dtype %s, not %s", safetensors_file(st, t->file), t->name, t->dtype,
                         want->dtype);
    if (t->dims != want->dims || memcmp(t->shape, want->shape, (size_t)t->dims * sizeof *t->shape) != 0) {
        print_shape(is, sizeof is, t->dims, t->shape);
        print_shape(should, sizeof should, want->dims, want->shape);
        return k3_errorf(err, "%s: tensor %s has shape %s, not %s as config.json says", safetensors_file(st, t->file),
                         t->name, is, should);
    }
    return 0;
}

static int begins_with(const char *s, const char *start)
{
    return strncmp(s, start, strlen(start)) == 0;
}

static int is_passed_over(const char *name)
{
    static const char shape[] = ".weight_shape";
    size_t len = strlen(name);

    return begins_with(name, "vision_tower.") || begins_with(name, "mm_projector.") ||
           (len >= sizeof shape && strcmp(name + len - (sizeof shape - 1), shape) == 0);
}

/* What is in the files beside the text model; one rank lists it for all. */
static int check_others(const struct safetensors *st, const struct found *found, int list, struct k3_error *err)
{
    size_t passed = 0;

    for (size_t i = 0; i < safetensors_count(st); i++) {
        const struct safetensors_tensor *t = safetensors_at(st, i);
        if (found[i].role >= 0)
            continue;
        if (!is_passed_over(t->name))
            return k3_errorf(err, "%s: tensor %s is no part of the model that config.json describes",
                             safetensors_file(st, t->file), t->name);
        if (list && passed < LISTED_MAX)
            log_info("passed over: tensor %s", t->name);
        passed++;
    }
    if (list && passed)
        log_info("passed over %zu tensors of %zu that the text model does not use%s", passed, safetensors_count(st),
                 passed > LISTED_MAX ? ", the first of them listed above" : "");
    return 0;
}

static int check_inventory(const struct safetensors *st, const char *dir, const struct k3_config *c,
                           struct found *found, struct k3_error *err)
{
    struct inventory_iter it;
    struct tensor_desc want;

    for (size_t i = 0; i < safetensors_count(st); i++)
        found[i].role = -1;
    for (inventory_begin(&it, c); inventory_next(&it, &want);) {
        const struct safetensors_tensor *t = safetensors_find(st, want.name);
        if (!t)
            return k3_errorf(err, "%s: tensor %s is missing", dir, want.name);
        if (check_tensor(st, t, &want, err) < 0)
            return -1;
        found[safetensors_index(st, t)] = (struct found){(int16_t)want.role, (int16_t)want.layer, want.expert};
    }
    return 0;
}

/* --- copying -------------------------------------------------------------------------------------------------------
 */

struct loader {
    const struct k3_config *config;
    const struct shard *shard;
    const struct safetensors *st;
    const struct found *found;
    struct k3_stream *stream;
    int drop; /* pages behind us leave the cache */
};

/* Where a tensor's part goes. */
static uint8_t *destination(struct weights *w, const struct found *f)
{
    struct layer_weights *at = &w->at[f->layer + 1];

    if (!inventory_is_expert(f->role))
        return at->tensor[f->role].data;
    struct kern_expert_matrix *m = &at->expert[(f->role - T_W1) / FORMS];
    if ((f->role - T_W1) % FORMS == SCALE)
        return (uint8_t *)m->first.scale + f->expert * m->scale_step;
    return (uint8_t *)m->first.data + f->expert * m->data_step;
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
    uint64_t bytes;

    if (i >= safetensors_count(ld->st) || ld->found[i].role < 0)
        return;
    struct shard_part p = shard_of(ld->config, ld->shard, ld->found[i].role);
    const uint8_t *data = stretch(safetensors_at(ld->st, i), &p, inventory_element_bytes(ld->found[i].role), &bytes);
    safetensors_will_read(data, bytes);
}

/* In the order of the files, so that disks read forward. */
static int copy_all(struct weights *w, const struct loader *ld, weights_progress_f *progress, void *arg,
                    struct k3_error *err)
{
    uint64_t done = 0, total = arena_bytes(w->arena, PART);

    for (size_t i = 0; i < safetensors_count(ld->st); i++) {
        const struct safetensors_tensor *t = safetensors_at(ld->st, i);
        const struct found *f = &ld->found[i];
        ask_for(ld, i + 1);
        if (f->role < 0)
            continue;
        struct shard_part p = shard_of(ld->config, ld->shard, f->role);
        if (copy_part(ld, destination(w, f), t, &p, inventory_element_bytes(f->role)) < 0)
            return k3_errorf(err, "tensor %s cannot be copied to the memory of backend %s: %s", t->name,
                             kern_stream_name(ld->stream), kern_stream_error(ld->stream));
        if (ld->drop)
            safetensors_drop(ld->st, t);
        done += part_bytes(&p, f->role);
        if (progress)
            progress(done, total, arg);
    }
    if (kern_sync(ld->stream) < 0)
        return k3_errorf(err, "this rank's weights: backend %s: %s", kern_stream_name(ld->stream),
                         kern_stream_error(ld->stream));
    if (progress)
        progress(total, total, arg);
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

struct weights *weights_load(const char *model_dir, const struct k3_config *c, const struct shard *sh,
                             struct k3_stream *s, weights_progress_f *progress, void *arg, struct k3_error *err)
{
    struct weights *w = NULL, *loaded = NULL;
    struct found *found = NULL;
    struct safetensors *st = safetensors_open_dir(model_dir, err);

    if (!st)
        goto out;
    if (!(found = k3_try_alloc(safetensors_count(st), sizeof *found))) {
        k3_errorf(err, "%s: no memory for a table of %zu tensors", model_dir, safetensors_count(st));
        goto out;
    }
    if (check_inventory(st, model_dir, c, found, err) < 0 || check_others(st, found, sh->rank == 0, err) < 0 ||
        safetensors_check_gaps(st, err) < 0)
        goto out;
    w = create(c, sh);
    if (arena_commit(w->arena, s, err) < 0) {
        k3_error_prefix(err, "this rank's weights: ");
        goto out;
    }
    lay_out(w, c, sh);
    if (copy_all(w, &(struct loader){c, sh, st, found, s, is_large(st)}, progress, arg, err) < 0)
        goto out;
    loaded = w;
    w = NULL;
out:
    weights_destroy(w);
    free(found);
    safetensors_close(st);
    return loaded;
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

static int fill_tensor(struct weights *w, const struct k3_config *c, const struct shard *sh, enum tensor_role role,
                       int layer, struct k3_stream *s, void *room)
{
    struct tensor_desc t;
    struct shard_part p = shard_of(c, sh, role);
    struct found f = {.role = (int16_t)role, .layer = (int16_t)layer};
    uint64_t bytes = part_bytes(&p, role), first = SYNTHETIC_PERIOD * (uint64_t)inventory_element_bytes(role);

    inventory_describe(c, role, layer, inventory_is_expert(role) ? 0 : -1, &t);
    first = first < bytes ? first : bytes;
    synthetic_fill(c, &t, 0, first / (uint64_t)inventory_element_bytes(role), room);
    char *to = (char *)destination(w, &f);
    if (kern_copy(s, to, first, room, first, first, 1) < 0 || kern_sync(s) < 0)
        return -1;
    return repeat(s, to, first, bytes);
}

static int fill_layer(struct weights *w, const struct k3_config *c, const struct shard *sh, int layer,
                      struct k3_stream *s, void *room)
{
    const struct kern_expert_matrix *m = w->at[layer + 1].expert;

    for (enum tensor_role role = 0; role < T_ROLES; role++)
        if (inventory_has(c, role, layer) && fill_tensor(w, c, sh, role, layer, s, room) < 0)
            return -1;
    if (!m->first.data)
        return 0;
    uint64_t step = (uint64_t)m->data_step;
    return repeat(s, m->first.data, step, step * (uint64_t)c->experts);
}

struct weights *weights_synthetic(const struct k3_config *c, const struct shard *sh, struct k3_stream *s,
                                  struct k3_error *err)
{
    struct weights *w = create(c, sh);
    void *room = k3_calloc(SYNTHETIC_PERIOD, sizeof(float));
    int rc = arena_commit(w->arena, s, err);

    if (rc == 0)
        lay_out(w, c, sh);
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
