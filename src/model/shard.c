#include "model/shard.h"

#include "kernels/kernels.h"

int64_t shard_total(const struct k3_config *c, enum shard_axis axis)
{
    switch (axis) {
    case SHARD_WHOLE:
        return 1;
    case SHARD_KDA_HEADS:
        return c->kda_heads;
    case SHARD_MLA_HEADS:
        return c->mla_heads;
    case SHARD_DENSE:
        return c->intermediate;
    case SHARD_SHARED:
        return c->shared_width;
    case SHARD_INNER:
        return c->moe_intermediate;
    case SHARD_LATENT:
        return c->latent;
    case SHARD_VOCAB:
        return c->vocab;
    case SHARD_LAYERS:
        return c->layers;
    case SHARD_ROUTER:
    case SHARD_EXPERTS:
        return c->experts;
    }
    return 0;
}

/* Widths are cut at scale blocks even where the weights are BF16: rows stay aligned, and MX forms may replace them. */
static int64_t unit(enum shard_axis axis)
{
    switch (axis) {
    case SHARD_DENSE:
    case SHARD_SHARED:
    case SHARD_INNER:
    case SHARD_LATENT:
        return K3_MX_BLOCK;
    default:
        return 1;
    }
}

static int64_t min(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Among whom an axis is shared out, and which of them the rank is. */
struct among {
    int count, index;
};

static struct among among(const struct shard *sh, enum shard_axis axis)
{
    int groups = sh->ep > 0 ? sh->ep : 1, group = sh->tp / groups;

    switch (axis) {
    case SHARD_LAYERS:
        return (struct among){sh->pp > 0 ? sh->pp : 1, sh->stage};
    case SHARD_EXPERTS:
        return (struct among){groups, sh->rank / group};
    case SHARD_INNER:
        return (struct among){group, sh->rank % group};
    default:
        return (struct among){sh->tp, sh->rank};
    }
}

struct range shard_range(const struct k3_config *c, const struct shard *sh, enum shard_axis axis)
{
    int64_t total = shard_total(c, axis), step = unit(axis);
    int64_t units = (total + step - 1) / step;
    struct among a = among(sh, axis);
    int64_t each = units / a.count, extra = units % a.count;

    if (axis == SHARD_WHOLE)
        return (struct range){0, 1};
    int64_t begin = a.index * each + min(a.index, extra); /* the first `extra` have one unit more */
    int64_t end = begin + each + (a.index < extra);
    return (struct range){min(begin * step, total), min(end * step, total)};
}

int64_t shard_count(const struct k3_config *c, const struct shard *sh, enum shard_axis axis)
{
    struct range r = shard_range(c, sh, axis);

    return r.end - r.begin;
}

int shard_is_last(const struct shard *sh)
{
    return sh->stage + 1 >= sh->pp;
}

int shard_has(const struct k3_config *c, const struct shard *sh, enum tensor_role role, int layer)
{
    struct range own = shard_range(c, sh, SHARD_LAYERS);

    if (!inventory_has(c, role, layer))
        return 0;
    if (layer < 0)
        return role == T_EMBED ? sh->stage == 0 : shard_is_last(sh);
    return layer >= own.begin && layer < own.end;
}

/* How tensors are cut: along rows or columns, of which the axis' measure takes mul / div each.  The others are whole.
 */
static const struct cut {
    enum shard_axis axis;
    enum { WHOLE, ROWS, COLS } along;
    int mul, div;
} cuts[T_ROLES] = {
    [T_EMBED] = {SHARD_VOCAB, ROWS, 1, 1},
    [T_KDA_Q] = {SHARD_KDA_HEADS, ROWS, K3_HEAD_DIM, 1},
    [T_KDA_Q_CONV] = {SHARD_KDA_HEADS, ROWS, K3_HEAD_DIM, 1},
    [T_KDA_K] = {SHARD_KDA_HEADS, ROWS, K3_HEAD_DIM, 1},
    [T_KDA_K_CONV] = {SHARD_KDA_HEADS, ROWS, K3_HEAD_DIM, 1},
    [T_KDA_V] = {SHARD_KDA_HEADS, ROWS, K3_HEAD_DIM, 1},
    [T_KDA_V_CONV] = {SHARD_KDA_HEADS, ROWS, K3_HEAD_DIM, 1},
    [T_KDA_A_LOG] = {SHARD_KDA_HEADS, COLS, 1, 1},
    [T_KDA_DT_BIAS] = {SHARD_KDA_HEADS, COLS, K3_HEAD_DIM, 1},
    [T_KDA_F_B] = {SHARD_KDA_HEADS, ROWS, K3_HEAD_DIM, 1},
    [T_KDA_B] = {SHARD_KDA_HEADS, ROWS, 1, 1},
    [T_KDA_G] = {SHARD_KDA_HEADS, ROWS, K3_HEAD_DIM, 1},
    [T_KDA_O] = {SHARD_KDA_HEADS, COLS, K3_HEAD_DIM, 1},
    [T_MLA_Q_B] = {SHARD_MLA_HEADS, ROWS, K3_QK_DIM, 1},
    [T_MLA_KV_B] = {SHARD_MLA_HEADS, ROWS, K3_NOPE_DIM + K3_V_DIM, 1},
    [T_MLA_G] = {SHARD_MLA_HEADS, ROWS, K3_V_DIM, 1},
    [T_MLA_O] = {SHARD_MLA_HEADS, COLS, K3_V_DIM, 1},
    [T_MLP_GATE] = {SHARD_DENSE, ROWS, 1, 1},
    [T_MLP_UP] = {SHARD_DENSE, ROWS, 1, 1},
    [T_MLP_DOWN] = {SHARD_DENSE, COLS, 1, 1},
    [T_ROUTER] = {SHARD_ROUTER, ROWS, 1, 1},
    [T_SHARED_GATE] = {SHARD_SHARED, ROWS, 1, 1},
    [T_SHARED_UP] = {SHARD_SHARED, ROWS, 1, 1},
    [T_SHARED_DOWN] = {SHARD_SHARED, COLS, 1, 1},
    [T_LATENT_DOWN] = {SHARD_LATENT, ROWS, 1, 1},
    [T_LATENT_UP] = {SHARD_LATENT, COLS, 1, 1},
    [T_W1] = {SHARD_INNER, ROWS, 1, 1},
    [T_W1_PACKED] = {SHARD_INNER, ROWS, 1, 1},
    [T_W1_SCALE] = {SHARD_INNER, ROWS, 1, 1},
    [T_W2] = {SHARD_INNER, COLS, 1, 1},
    [T_W2_PACKED] = {SHARD_INNER, COLS, 1, 2},
    [T_W2_SCALE] = {SHARD_INNER, COLS, 1, K3_MX_BLOCK},
    [T_W3] = {SHARD_INNER, ROWS, 1, 1},
    [T_W3_PACKED] = {SHARD_INNER, ROWS, 1, 1},
    [T_W3_SCALE] = {SHARD_INNER, ROWS, 1, 1},
    [T_LM_HEAD] = {SHARD_VOCAB, ROWS, 1, 1},
};

struct shard_part shard_of(const struct k3_config *c, const struct shard *sh, enum tensor_role role)
{
    const struct cut *cut = &cuts[role];
    int64_t shape[TENSOR_DIMS_MAX];
    int dims = inventory_shape(c, role, shape);
    struct shard_part p = {.rows = dims > 1 ? shape[0] : 1, .cols = dims > 1 ? 1 : shape[0]};

    for (int d = 1; d < dims; d++)
        p.cols *= shape[d];
    p.row = (struct range){0, p.rows};
    p.col = (struct range){0, p.cols};
    if (cut->along != WHOLE) {
        struct range r = shard_range(c, sh, cut->axis);
        *(cut->along == ROWS ? &p.row : &p.col) =
            (struct range){r.begin * cut->mul / cut->div, r.end * cut->mul / cut->div};
    }
    return p;
}
