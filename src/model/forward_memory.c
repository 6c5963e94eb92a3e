/* forward_memory.c - where a rank's state and activations lie: counted for the budget, then placed (see gpu/arena.h).
 * Needs neither communicator nor kernels, so that what a layout would take can be asked anywhere. */
#include <stdlib.h>

#include "common/alloc.h"
#include "model/forward_private.h"

static struct k3_tensor matrix(struct arena *a, int64_t rows, int64_t cols)
{
    return (struct k3_tensor){
        .data = arena_take(a, (uint64_t)rows * (uint64_t)cols * sizeof(float)),
        .dtype = K3_F32,
        .layout = K3_ROW_MAJOR,
        .rows = rows,
        .cols = cols,
        .stride = cols,
    };
}

size_t forward_latent_bytes(enum k3_dtype dtype)
{
    return dtype == K3_BF16 ? sizeof(uint16_t) : sizeof(float);
}

static void *floats(struct arena *a, uint64_t x, uint64_t y, uint64_t z)
{
    return arena_take(a, x * y * z * sizeof(float));
}

/* Every rank's columns side by side; a rank alone has them in `mine`. */
static struct k3_tensor gathered(struct arena *a, const struct shard *sh, const struct k3_tensor *mine, int64_t cols)
{
    return sh->tp > 1 ? matrix(a, mine->rows, cols) : *mine;
}

/* A KDA layer's state of so many slots, or checkpoints. */
static void lay_out_kda(struct arena *a, struct layer_state *st, uint64_t places, uint64_t heads)
{
    st->q_conv = floats(a, places, K3_TAPS - 1, heads * K3_HEAD_DIM);
    st->k_conv = floats(a, places, K3_TAPS - 1, heads * K3_HEAD_DIM);
    st->v_conv = floats(a, places, K3_TAPS - 1, heads * K3_HEAD_DIM);
    st->kda = floats(a, places, heads, K3_HEAD_DIM * K3_HEAD_DIM);
}

static void lay_out_state(struct forward *f, struct arena *a)
{
    uint64_t heads = (uint64_t)f->kda_heads, tokens;

    tokens = (uint64_t)f->limits.pages * (uint64_t)f->limits.page_tokens;
    for (int64_t l = f->layers.begin; l < f->layers.end; l++) {
        struct layer_state *st = &f->state[l];
        if (f->c->attention[l] == K3_KDA) {
            arena_part(a, "state");
            lay_out_kda(a, st, (uint64_t)f->limits.slots, heads);
            arena_part(a, "checkpoints");
            lay_out_kda(a, &f->kept[l], (uint64_t)f->limits.checkpoints, heads);
        } else {
            arena_part(a, "latents");
            st->latents = (struct kern_latents){
                .data = arena_take(a, tokens * K3_CACHE_DIM * forward_latent_bytes(f->limits.latents)),
                .dtype = f->limits.latents,
                .page_tokens = f->limits.page_tokens};
        }
    }
}

int forward_snapshots(const struct k3_config *c, int64_t l)
{
    return (int)((l + c->res_block - 1) / c->res_block);
}

int forward_has_logits(const struct forward *f)
{
    return shard_is_last(f->sh) || (f->sh->stage == 0 && f->sh->rank == 0);
}

static void lay_out_scratch(struct forward *f, struct arena *a)
{
    const struct k3_config *c = f->c;
    struct activations *t = &f->act;
    int64_t rows = f->limits.rows, outputs = f->limits.outputs, kda = f->kda_heads, mla = f->mla_heads;
    int64_t dense = shard_count(c, f->sh, SHARD_DENSE), shared = shard_count(c, f->sh, SHARD_SHARED);

    arena_part(a, "scratch");
    for (int i = 0; i <= forward_snapshots(c, f->layers.end); i++)
        f->stream[i] = matrix(a, rows, c->hidden);
    t->x = matrix(a, rows, c->hidden);
    t->branch = matrix(a, rows, c->hidden);
    t->q_in = matrix(a, rows, kda * K3_HEAD_DIM);
    t->k_in = matrix(a, rows, kda * K3_HEAD_DIM);
    t->v_in = matrix(a, rows, kda * K3_HEAD_DIM);
    t->q = matrix(a, rows, kda * K3_HEAD_DIM);
    t->k = matrix(a, rows, kda * K3_HEAD_DIM);
    t->v = matrix(a, rows, kda * K3_HEAD_DIM);
    t->low = matrix(a, rows, K3_HEAD_DIM);
    t->decay = matrix(a, rows, kda * K3_HEAD_DIM);
    t->beta = matrix(a, rows, kda);
    t->q_low = matrix(a, rows, c->q_lora);
    t->mla_q = matrix(a, rows, mla * K3_QK_DIM);
    t->kv = matrix(a, rows, K3_CACHE_DIM);
    t->o_kda = matrix(a, rows, kda * K3_HEAD_DIM);
    t->gate_kda = matrix(a, rows, kda * K3_HEAD_DIM);
    t->o_mla = matrix(a, rows, mla * K3_V_DIM);
    t->gate_mla = matrix(a, rows, mla * K3_V_DIM);
    t->dense_gate = matrix(a, rows, dense);
    t->dense_up = matrix(a, rows, dense);
    t->shared_gate = matrix(a, rows, shared);
    t->shared_up = matrix(a, rows, shared);
    t->router_mine = matrix(a, rows, shard_count(c, f->sh, SHARD_ROUTER));
    t->router = gathered(a, f->sh, &t->router_mine, c->experts);
    t->z_mine = matrix(a, rows, shard_count(c, f->sh, SHARD_LATENT));
    t->z = gathered(a, f->sh, &t->z_mine, c->latent);
    t->sum = matrix(a, rows, c->latent);
    f->expert = arena_take(a, (uint64_t)rows * (uint64_t)c->topk * sizeof *f->expert);
    f->expert_weight = floats(a, (uint64_t)rows, (uint64_t)c->topk, 1);
    if (shard_is_last(f->sh)) {
        f->head_in = matrix(a, outputs, c->hidden);
        f->head_out = matrix(a, outputs, shard_count(c, f->sh, SHARD_VOCAB));
        f->logits = gathered(a, f->sh, &f->head_out, c->vocab);
    } else if (forward_has_logits(f)) {
        f->logits = matrix(a, outputs, c->vocab);
    }
    f->sent_block = arena_take(a, f->lists_bytes);
}

/* --- a step's lists -------------------------------------------------------------------------------------------------
 */

size_t forward_place_lists(struct step_lists *l, void *block, const struct forward_limits *limit)
{
    size_t slots = (size_t)limit->slots, rows = (size_t)limit->rows;

    l->pos = block;
    l->begin = (int32_t *)(l->pos + slots);
    l->slot = l->begin + slots + 1;
    l->prefill = l->slot + slots;
    l->token = l->prefill + slots;
    l->output = l->token + rows;
    l->pages = l->output + limit->outputs;
    return (size_t)((char *)(l->pages + slots * (size_t)limit->slot_pages) - (char *)block);
}

void forward_lay_out(struct forward *f)
{
    lay_out_state(f, f->arena);
    lay_out_scratch(f, f->arena);
}

void forward_describe(struct forward *f, const struct k3_config *c, const struct shard *sh,
                      const struct forward_limits *l)
{
    f->c = c;
    f->sh = sh;
    f->limits = *l;
    f->layers = shard_range(c, sh, SHARD_LAYERS);
    f->experts = shard_range(c, sh, SHARD_EXPERTS);
    f->kda_heads = (int32_t)shard_count(c, sh, SHARD_KDA_HEADS);
    f->mla_heads = (int32_t)shard_count(c, sh, SHARD_MLA_HEADS);
    f->inner = (int32_t)shard_count(c, sh, SHARD_INNER);
    f->state = k3_calloc((size_t)c->layers, sizeof *f->state);
    f->kept = k3_calloc((size_t)c->layers, sizeof *f->kept);
    f->lists_bytes = forward_place_lists(&f->lists, NULL, l);
    f->arena = arena_create();
    forward_lay_out(f);
}

void forward_undescribe(struct forward *f)
{
    arena_destroy(f->arena);
    free(f->state);
    free(f->kept);
}

struct forward_bytes forward_bytes(const struct k3_config *c, const struct shard *sh, const struct forward_limits *l)
{
    struct forward f = {0};

    forward_describe(&f, c, sh, l);
    struct forward_bytes bytes = {
        .state = arena_bytes(f.arena, "state"),
        .checkpoints = arena_bytes(f.arena, "checkpoints"),
        .latents = arena_bytes(f.arena, "latents"),
        .scratch = arena_bytes(f.arena, "scratch"),
    };
    forward_undescribe(&f);
    return bytes;
}

void forward_set_rows(struct forward *f, int64_t rows, int64_t outputs)
{
    struct k3_tensor *t = (struct k3_tensor *)&f->act;

    for (int i = 0; i < ACTIVATIONS; i++)
        t[i].rows = rows;
    for (int i = 0; i <= forward_snapshots(f->c, f->layers.end); i++)
        f->stream[i].rows = rows;
    f->head_in.rows = f->head_out.rows = f->logits.rows = outputs;
}
