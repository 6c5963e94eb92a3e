#include "model/cost.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/arena.h"
#include "model/forward_private.h"
#include "model/inventory.h"

/* Operations a state element and token in the delta rule: one token at a time, and in chunks (SPEC 11.3). */
enum { RECURRENT_OPS = 7, CHUNKED_OPS = 10 };
enum { STREAM_BYTES = 4 }; /* a number of the residual stream */

/* --- places ---------------------------------------------------------------------------------------------------------
 */

/* What a rank has to do with. */
struct place {
    struct shard shard;
    struct range layers; /* of its stage */
};

static struct place place_of(const struct k3_config *c, const struct layout *l, int rank)
{
    struct shard sh = layout_shard(l, rank);

    return (struct place){sh, shard_range(c, &sh, SHARD_LAYERS)};
}

static int64_t length(struct range r)
{
    return r.end - r.begin;
}

/* --- weights --------------------------------------------------------------------------------------------------------
 */

static const char *const group_names[COST_GROUPS] = {
    [COST_EMBED] = "embedding", [COST_KDA] = "kda",       [COST_MLA] = "mla",         [COST_DENSE] = "dense",
    [COST_ROUTER] = "router",   [COST_LATENT] = "latent", [COST_SHARED] = "shared",   [COST_EXPERTS] = "experts",
    [COST_NORMS] = "norms",     [COST_HEAD] = "head",     [COST_STATE] = "kda state", [COST_LATENTS] = "mla cache",
    [COST_STREAM] = "stream",
};

const char *cost_group_name(enum cost_group group)
{
    return group_names[group];
}

static enum cost_group group_of(enum tensor_role role)
{
    if (role == T_EMBED)
        return COST_EMBED;
    if (role <= T_KDA_O)
        return COST_KDA;
    if (role <= T_MLA_O)
        return COST_MLA;
    if (role <= T_MLP_DOWN)
        return COST_DENSE;
    if (role <= T_ROUTER_BIAS)
        return COST_ROUTER;
    if (role <= T_SHARED_DOWN)
        return COST_SHARED;
    if (role <= T_LATENT_UP)
        return COST_LATENT;
    if (inventory_is_expert(role))
        return COST_EXPERTS;
    return role == T_LM_HEAD ? COST_HEAD : COST_NORMS;
}

static uint64_t aligned(uint64_t bytes)
{
    return (bytes + ARENA_ALIGN - 1) / ARENA_ALIGN * ARENA_ALIGN;
}

/* Data and scales of a rank's part, as they lie in the arena. */
struct stored {
    uint64_t data, scale;
};

static struct stored stored(const struct k3_config *c, const struct shard *sh, enum tensor_role role,
                            enum k3_dtype dense)
{
    struct shard_part p = shard_of(c, sh, role);
    uint64_t rows = (uint64_t)length(p.row), cols = (uint64_t)length(p.col);
    uint64_t blocks = rows * cols / K3_MX_BLOCK;

    switch (inventory_dtype(c, role, dense)) {
    case K3_FP8_E4M3:
        return (struct stored){rows * cols, rows * sizeof(float)};
    case K3_MXFP8:
        return (struct stored){rows * cols, blocks};
    case K3_MXFP4:
        return (struct stored){rows * cols / 2, blocks};
    default:
        return (struct stored){rows * cols * (uint64_t)inventory_element_bytes(role), 0};
    }
}

static uint64_t resident(const struct k3_config *c, const struct place *p, enum tensor_role role, enum k3_dtype dense)
{
    struct stored s = stored(c, &p->shard, role, dense);
    int64_t times = inventory_is_expert(role) ? shard_count(c, &p->shard, SHARD_EXPERTS) : 1;

    return (aligned(s.data) + aligned(s.scale)) * (uint64_t)times;
}

/* --- memory ---------------------------------------------------------------------------------------------------------
 */

void cost_memory(const struct k3_config *c, const struct layout *l, int rank, enum k3_dtype dense,
                 const struct forward_limits *limits, struct cost_memory *m)
{
    struct place p = place_of(c, l, rank);

    *m = (struct cost_memory){.forward = forward_bytes(c, &p.shard, limits)};
    for (enum tensor_role role = 0; role < T_ROLES; role++) {
        uint64_t bytes = resident(c, &p, role, dense);
        if (shard_has(c, &p.shard, role, -1))
            m->weights[group_of(role)] += bytes;
        for (int64_t layer = p.layers.begin; layer < p.layers.end; layer++)
            if (shard_has(c, &p.shard, role, (int)layer))
                m->weights[group_of(role)] += bytes;
    }
}

/* --- routing --------------------------------------------------------------------------------------------------------
 */

/* Chance that an expert is among those that `rows` tokens choose. */
static double chance(const struct k3_config *c, int rows)
{
    return 1 - pow(1 - (double)c->topk / c->experts, rows);
}

double cost_distinct_experts(const struct k3_config *c, int rows)
{
    return c->experts * chance(c, rows);
}

/* Chance that k of n experts are chosen, each with chance p. */
static double binomial(int64_t k, int64_t n, double p)
{
    return exp(lgamma((double)n + 1) - lgamma((double)k + 1) - lgamma((double)(n - k) + 1) + (double)k * log(p) +
               (double)(n - k) * log1p(-p));
}

/* Groups are taken as independent: exact for one, and near enough for many, since each holds few of the experts. */
double cost_busiest_experts(const struct k3_config *c, int ep, int rows)
{
    int64_t n = shard_count(c, &(struct shard){.tp = ep, .ep = ep}, SHARD_EXPERTS);
    double p = chance(c, rows), until = 0, expected = 0;

    if (ep == 1 || p >= 1)
        return (double)n * p;
    for (int64_t k = 0; k < n; k++) {
        until += binomial(k, n, p); /* a group has at most k */
        expected += 1 - pow(fmin(until, 1), ep);
    }
    return expected;
}

/* How much more than its share the busiest group has to do. */
static double crowding(const struct k3_config *c, int ep, int rows)
{
    return cost_busiest_experts(c, ep, rows) / (cost_distinct_experts(c, rows) / ep);
}

/* --- work -----------------------------------------------------------------------------------------------------------
 */

/* Weights of one role in one layer: read once, whatever the rows. */
static void add_weights(const struct k3_config *c, const struct place *p, const struct cost_options *o,
                        const struct cost_step *step, enum tensor_role role, struct cost_work *w)
{
    struct shard_part part = shard_of(c, &p->shard, role);
    struct stored s = stored(c, &p->shard, role, o->dense);
    int rows = role == T_LM_HEAD ? step->outputs : step->rows;
    enum cost_group group = group_of(role);

    if (role == T_EMBED) { /* only the tokens' own rows */
        w->bytes[group] += (double)rows * c->hidden * inventory_element_bytes(role);
        return;
    }
    if (rows == 0)
        return;
    w->bytes[group] += (double)(s.data + s.scale);
    if (part.rows > 1)
        w->flops[group] += 2.0 * rows * (double)(length(part.row) * length(part.col));
}

/* One layer's experts: those of the rank's group that the tokens chose, as many as in the busiest group. */
static void add_experts(const struct k3_config *c, const struct place *p, int layer, int ep,
                        const struct cost_step *step, struct cost_work *w)
{
    double distinct = cost_busiest_experts(c, ep, step->rows), bytes = 0;
    double chosen = (double)step->rows * c->topk / ep * crowding(c, ep, step->rows);

    for (enum tensor_role role = 0; role < T_ROLES; role++)
        if (inventory_is_expert(role) && inventory_has(c, role, layer))
            bytes += (double)stored(c, &p->shard, role, K3_BF16).data;
    w->bytes[COST_EXPERTS] += distinct * bytes;
    w->flops[COST_EXPERTS] += chosen * 2 * 3 * (double)shard_count(c, &p->shard, SHARD_INNER) * c->latent;
}

static void add_kda(const struct k3_config *c, const struct place *p, const struct cost_step *step, struct cost_work *w)
{
    int ops = step->rows > step->seqs ? CHUNKED_OPS : RECURRENT_OPS;
    double elements = (double)shard_count(c, &p->shard, SHARD_KDA_HEADS) * K3_HEAD_DIM * K3_HEAD_DIM;

    w->flops[COST_STATE] += (double)step->rows * ops * elements;
}

/* Absorbed, or with keys and values unfolded first: whichever is less work. */
static void add_mla(const struct k3_config *c, const struct place *p, const struct cost_step *step, struct cost_work *w)
{
    double heads = (double)shard_count(c, &p->shard, SHARD_MLA_HEADS);
    double before = (double)step->context, own = (double)step->rows / step->seqs;
    double pairs = step->rows * (before + (own + 1) / 2);
    double absorbed = 2 * pairs * (K3_CACHE_DIM + K3_LATENT_DIM);
    double unfolded =
        2 * pairs * (K3_QK_DIM + K3_V_DIM) + 2 * step->seqs * (before + own) * K3_LATENT_DIM * (K3_NOPE_DIM + K3_V_DIM);

    w->flops[COST_LATENTS] += heads * fmin(absorbed, unfolded);
}

/* What the forward pass itself keeps for a slot, and for a token. */
static void add_state(const struct k3_config *c, const struct place *p, const struct cost_options *o,
                      const struct cost_step *step, struct cost_work *w)
{
    enum { TOKENS = 1024 };
    struct forward_limits one = {.rows = 1, .slots = 1, .pages = 1, .page_tokens = TOKENS, .latents = o->latents};
    struct forward_bytes bytes = forward_bytes(c, &p->shard, &one);

    w->bytes[COST_STATE] = 2.0 * step->seqs * (double)bytes.state;
    w->bytes[COST_LATENTS] = ((double)step->seqs * (double)step->context + step->rows) * (double)bytes.latents / TOKENS;
}

/* Every sublayer reads p and all snapshots, and writes p (SPEC 4.3). */
static void add_stream(const struct k3_config *c, const struct place *p, const struct cost_step *step,
                       struct cost_work *w)
{
    double vector = (double)step->rows * c->hidden * STREAM_BYTES;
    int64_t snapshots = 0;

    for (int64_t layer = p->layers.begin; layer < p->layers.end; layer++) {
        snapshots = layer / c->res_block + 1;
        w->bytes[COST_STREAM] += vector * 2 * (double)(snapshots + 2);
    }
    w->stream_bytes = vector * (double)(snapshots + 1);
}

static void work_of(const struct k3_config *c, const struct layout *l, int rank, const struct cost_options *o,
                    const struct cost_step *step, struct cost_work *w)
{
    struct place p = place_of(c, l, rank);

    *w = (struct cost_work){.bytes = {0}};
    for (enum tensor_role role = 0; role < T_ROLES; role++)
        if (shard_has(c, &p.shard, role, -1))
            add_weights(c, &p, o, step, role, w);
    for (int layer = (int)p.layers.begin; layer < p.layers.end; layer++) {
        for (enum tensor_role role = 0; role < T_ROLES; role++)
            if (inventory_has(c, role, layer) && !inventory_is_expert(role))
                add_weights(c, &p, o, step, role, w);
        if (k3_config_is_moe(c, layer))
            add_experts(c, &p, layer, l->ep, step, w);
        if (c->attention[layer] == K3_KDA)
            add_kda(c, &p, step, w);
        else
            add_mla(c, &p, step, w);
    }
    add_state(c, &p, o, step, w);
    add_stream(c, &p, step, w);
}

void cost_work(const struct k3_config *c, const struct layout *l, int rank, const struct cost_options *o,
               const struct cost_step *step, struct cost_work *w)
{
    if (!o->even) {
        work_of(c, l, rank, o, step, w);
        return;
    }
    work_of(c, &(struct layout){.tp = 1, .pp = l->pp, .ep = 1}, rank / l->tp, o, step, w);
    for (int g = 0; g < COST_GROUPS; g++) {
        double share = (g == COST_EXPERTS ? crowding(c, l->ep, step->rows) : 1) / l->tp;
        w->bytes[g] *= share;
        w->flops[g] *= share;
    }
    w->stream_bytes /= l->tp;
}

/* --- exchanges ------------------------------------------------------------------------------------------------------
 */

struct exchanges {
    struct cost_exchange *list;
    int n;
};

static void exchange(struct exchanges *e, enum cost_exchange_kind kind, int ranks, int count, double bytes)
{
    if (count > 0 && bytes > 0 && ranks > 1)
        e->list[e->n++] = (struct cost_exchange){kind, ranks, count, bytes};
}

int cost_exchanges(const struct k3_config *c, const struct layout *l, int stage, const struct cost_options *o,
                   const struct cost_step *step, struct cost_exchange list[COST_EXCHANGES_MAX])
{
    struct place p = place_of(c, l, stage * l->tp);
    struct exchanges e = {list, 0};
    int layers = (int)length(p.layers), moe = 0;
    double row = (double)step->rows * o->value_bytes, hidden = row * c->hidden, latent = row * c->latent;
    double logits = (double)step->outputs * o->value_bytes * c->vocab;

    for (int layer = (int)p.layers.begin; layer < p.layers.end; layer++)
        moe += k3_config_is_moe(c, layer);
    /* the embedding, attention and the feed-forward's output */
    exchange(&e, COST_ALL_REDUCE, l->tp, (stage == 0) + 2 * layers, hidden);
    /* the experts' input and their sum */
    exchange(&e, COST_ALL_GATHER, l->tp, moe, latent + row * c->experts);
    exchange(&e, o->scatter_latent ? COST_REDUCE_SCATTER : COST_ALL_REDUCE, l->tp, moe, latent);
    if (shard_is_last(&p.shard)) {
        exchange(&e, COST_ALL_GATHER, l->tp, 1, logits);
        exchange(&e, COST_SEND, 2, l->pp > 1, logits); /* to the first rank of all */
    } else {
        exchange(&e, COST_SEND, 2, 1, hidden * (double)(forward_snapshots(c, p.layers.end) + 1));
    }
    return e.n;
}
