#include "model/inventory.h"

#include <stdio.h>
#include <string.h>

#include "kernels/kernels.h"

enum scope { IN_MODEL, IN_KDA, IN_MLA, IN_DENSE, IN_MOE, IN_BF16_EXPERT, IN_MXFP4_EXPERT, IN_LAYER };

/* A shape's numbers, by what they mean. */
enum dim {
    NONE,
    ONE,
    HIDDEN,
    VOCAB,
    HEAD,          /* 128, a KDA head */
    KDA_HEADS,     /* one a head */
    KDA_HEADS_PAD, /* ... padded to whole 128 */
    KDA_WIDTH,
    TAPS,
    Q_LORA,
    MLA_Q,  /* heads of nope and rope parts */
    KV_A,   /* latent and the shared rope part */
    LATENT, /* of MLA */
    KV_B,   /* heads of nope and value parts */
    MLA_V,  /* heads of values */
    DENSE,
    EXPERTS,
    SHARED,
    ZED, /* latent of the experts */
    ZED_PACKED,
    ZED_SCALES,
    INNER,
    INNER_PACKED,
    INNER_SCALES
};

struct row {
    enum scope scope;
    const char *name, *dtype;
    enum tensor_kind kind;
    enum dim dim[TENSOR_DIMS_MAX];
};

#define ATTN "self_attn."
#define MOE "block_sparse_moe."

static const struct row rows[T_ROLES] = {
    [T_EMBED] = {IN_MODEL, "model.embed_tokens.weight", "BF16", KIND_EMBED, {VOCAB, HIDDEN}},
    [T_KDA_Q] = {IN_KDA, ATTN "q_proj.weight", "BF16", KIND_LINEAR, {KDA_WIDTH, HIDDEN}},
    [T_KDA_Q_CONV] = {IN_KDA, ATTN "q_conv1d.weight", "F32", KIND_CONV, {KDA_WIDTH, ONE, TAPS}},
    [T_KDA_K] = {IN_KDA, ATTN "k_proj.weight", "BF16", KIND_LINEAR, {KDA_WIDTH, HIDDEN}},
    [T_KDA_K_CONV] = {IN_KDA, ATTN "k_conv1d.weight", "F32", KIND_CONV, {KDA_WIDTH, ONE, TAPS}},
    [T_KDA_V] = {IN_KDA, ATTN "v_proj.weight", "BF16", KIND_LINEAR, {KDA_WIDTH, HIDDEN}},
    [T_KDA_V_CONV] = {IN_KDA, ATTN "v_conv1d.weight", "F32", KIND_CONV, {KDA_WIDTH, ONE, TAPS}},
    [T_KDA_A_LOG] = {IN_KDA, ATTN "A_log", "F32", KIND_A_LOG, {KDA_HEADS_PAD}},
    [T_KDA_DT_BIAS] = {IN_KDA, ATTN "dt_bias", "F32", KIND_DT_BIAS, {KDA_WIDTH}},
    [T_KDA_F_A] = {IN_KDA, ATTN "f_a_proj.weight", "BF16", KIND_LINEAR, {HEAD, HIDDEN}},
    [T_KDA_F_B] = {IN_KDA, ATTN "f_b_proj.weight", "BF16", KIND_LINEAR, {KDA_WIDTH, HEAD}},
    [T_KDA_B] = {IN_KDA, ATTN "b_proj.weight", "BF16", KIND_LINEAR, {KDA_HEADS, HIDDEN}},
    [T_KDA_G] = {IN_KDA, ATTN "g_proj.weight", "BF16", KIND_LINEAR, {KDA_WIDTH, HIDDEN}},
    [T_KDA_O_NORM] = {IN_KDA, ATTN "o_norm.weight", "F32", KIND_NORM, {HEAD}},
    [T_KDA_O] = {IN_KDA, ATTN "o_proj.weight", "BF16", KIND_OUT, {HIDDEN, KDA_WIDTH}},
    [T_MLA_Q_A] = {IN_MLA, ATTN "q_a_proj.weight", "BF16", KIND_LINEAR, {Q_LORA, HIDDEN}},
    [T_MLA_Q_A_NORM] = {IN_MLA, ATTN "q_a_layernorm.weight", "BF16", KIND_NORM, {Q_LORA}},
    [T_MLA_Q_B] = {IN_MLA, ATTN "q_b_proj.weight", "BF16", KIND_LINEAR, {MLA_Q, Q_LORA}},
    [T_MLA_KV_A] = {IN_MLA, ATTN "kv_a_proj_with_mqa.weight", "BF16", KIND_LINEAR, {KV_A, HIDDEN}},
    [T_MLA_KV_A_NORM] = {IN_MLA, ATTN "kv_a_layernorm.weight", "BF16", KIND_NORM, {LATENT}},
    [T_MLA_KV_B] = {IN_MLA, ATTN "kv_b_proj.weight", "BF16", KIND_LINEAR, {KV_B, LATENT}},
    [T_MLA_G] = {IN_MLA, ATTN "g_proj.weight", "BF16", KIND_LINEAR, {MLA_V, HIDDEN}},
    [T_MLA_O] = {IN_MLA, ATTN "o_proj.weight", "BF16", KIND_OUT, {HIDDEN, MLA_V}},
    [T_MLP_GATE] = {IN_DENSE, "mlp.gate_proj.weight", "BF16", KIND_LINEAR, {DENSE, HIDDEN}},
    [T_MLP_UP] = {IN_DENSE, "mlp.up_proj.weight", "BF16", KIND_LINEAR, {DENSE, HIDDEN}},
    [T_MLP_DOWN] = {IN_DENSE, "mlp.down_proj.weight", "BF16", KIND_OUT, {HIDDEN, DENSE}},
    [T_ROUTER] = {IN_MOE, MOE "gate.weight", "BF16", KIND_LINEAR, {EXPERTS, HIDDEN}},
    [T_ROUTER_BIAS] = {IN_MOE, MOE "gate.e_score_correction_bias", "F32", KIND_ROUTER_BIAS, {EXPERTS}},
    [T_SHARED_GATE] = {IN_MOE, MOE "shared_experts.gate_proj.weight", "BF16", KIND_LINEAR, {SHARED, HIDDEN}},
    [T_SHARED_UP] = {IN_MOE, MOE "shared_experts.up_proj.weight", "BF16", KIND_LINEAR, {SHARED, HIDDEN}},
    [T_SHARED_DOWN] = {IN_MOE, MOE "shared_experts.down_proj.weight", "BF16", KIND_OUT, {HIDDEN, SHARED}},
    [T_LATENT_DOWN] = {IN_MOE, MOE "routed_expert_down_proj.weight", "BF16", KIND_LINEAR, {ZED, HIDDEN}},
    [T_LATENT_NORM] = {IN_MOE, MOE "routed_expert_norm.weight", "BF16", KIND_NORM, {ZED}},
    [T_LATENT_UP] = {IN_MOE, MOE "routed_expert_up_proj.weight", "BF16", KIND_OUT, {HIDDEN, ZED}},
    [T_W1] = {IN_BF16_EXPERT, "w1.weight", "BF16", KIND_LINEAR, {INNER, ZED}},
    [T_W1_PACKED] = {IN_MXFP4_EXPERT, "w1.weight_packed", "U8", KIND_PACKED, {INNER, ZED_PACKED}},
    [T_W1_SCALE] = {IN_MXFP4_EXPERT, "w1.weight_scale", "U8", KIND_SCALE, {INNER, ZED_SCALES}},
    [T_W2] = {IN_BF16_EXPERT, "w2.weight", "BF16", KIND_LINEAR, {ZED, INNER}},
    [T_W2_PACKED] = {IN_MXFP4_EXPERT, "w2.weight_packed", "U8", KIND_PACKED, {ZED, INNER_PACKED}},
    [T_W2_SCALE] = {IN_MXFP4_EXPERT, "w2.weight_scale", "U8", KIND_SCALE, {ZED, INNER_SCALES}},
    [T_W3] = {IN_BF16_EXPERT, "w3.weight", "BF16", KIND_LINEAR, {INNER, ZED}},
    [T_W3_PACKED] = {IN_MXFP4_EXPERT, "w3.weight_packed", "U8", KIND_PACKED, {INNER, ZED_PACKED}},
    [T_W3_SCALE] = {IN_MXFP4_EXPERT, "w3.weight_scale", "U8", KIND_SCALE, {INNER, ZED_SCALES}},
    [T_INPUT_NORM] = {IN_LAYER, "input_layernorm.weight", "BF16", KIND_NORM, {HIDDEN}},
    [T_POST_ATTN_NORM] = {IN_LAYER, "post_attention_layernorm.weight", "BF16", KIND_NORM, {HIDDEN}},
    [T_ATTN_RES_NORM] = {IN_LAYER, "self_attention_res_norm.weight", "BF16", KIND_NORM, {HIDDEN}},
    [T_ATTN_RES_PROJ] = {IN_LAYER, "self_attention_res_proj.weight", "BF16", KIND_MIX, {ONE, HIDDEN}},
    [T_MLP_RES_NORM] = {IN_LAYER, "mlp_res_norm.weight", "BF16", KIND_NORM, {HIDDEN}},
    [T_MLP_RES_PROJ] = {IN_LAYER, "mlp_res_proj.weight", "BF16", KIND_MIX, {ONE, HIDDEN}},
    [T_OUT_RES_NORM] = {IN_MODEL, "model.output_attn_res_norm.weight", "BF16", KIND_NORM, {HIDDEN}},
    [T_OUT_RES_PROJ] = {IN_MODEL, "model.output_attn_res_proj.weight", "BF16", KIND_MIX, {ONE, HIDDEN}},
    [T_NORM] = {IN_MODEL, "model.norm.weight", "BF16", KIND_NORM, {HIDDEN}},
    [T_LM_HEAD] = {IN_MODEL, "lm_head.weight", "BF16", KIND_LINEAR, {VOCAB, HIDDEN}},
};

static int64_t length(const struct k3_config *c, enum dim dim)
{
    switch (dim) {
    case NONE:
        return 0;
    case ONE:
        return 1;
    case HIDDEN:
        return c->hidden;
    case VOCAB:
        return c->vocab;
    case HEAD:
        return K3_HEAD_DIM;
    case KDA_HEADS:
        return c->kda_heads;
    case KDA_HEADS_PAD:
        return (c->kda_heads + 127) / 128 * 128;
    case KDA_WIDTH:
        return (int64_t)c->kda_heads * K3_HEAD_DIM;
    case TAPS:
        return K3_TAPS;
    case Q_LORA:
        return c->q_lora;
    case MLA_Q:
        return (int64_t)c->mla_heads * K3_QK_DIM;
    case KV_A:
        return K3_CACHE_DIM;
    case LATENT:
        return K3_LATENT_DIM;
    case KV_B:
        return (int64_t)c->mla_heads * (K3_NOPE_DIM + K3_V_DIM);
    case MLA_V:
        return (int64_t)c->mla_heads * K3_V_DIM;
    case DENSE:
        return c->intermediate;
    case EXPERTS:
        return c->experts;
    case SHARED:
        return c->shared_width;
    case ZED:
        return c->latent;
    case ZED_PACKED:
        return c->latent / 2;
    case ZED_SCALES:
        return c->latent / K3_MX_BLOCK;
    case INNER:
        return c->moe_intermediate;
    case INNER_PACKED:
        return c->moe_intermediate / 2;
    case INNER_SCALES:
        return c->moe_intermediate / K3_MX_BLOCK;
    }
    return 0;
}

int inventory_has(const struct k3_config *c, enum tensor_role role, int layer)
{
    enum scope scope = rows[role].scope;

    if (layer < 0 || scope == IN_MODEL)
        return layer < 0 && scope == IN_MODEL;
    switch (scope) {
    case IN_KDA:
        return c->attention[layer] == K3_KDA;
    case IN_MLA:
        return c->attention[layer] == K3_MLA;
    case IN_DENSE:
        return !k3_config_is_moe(c, layer);
    case IN_MOE:
        return k3_config_is_moe(c, layer);
    case IN_BF16_EXPERT:
        return k3_config_is_moe(c, layer) && !c->mxfp4;
    case IN_MXFP4_EXPERT:
        return k3_config_is_moe(c, layer) && c->mxfp4;
    default:
        return 1;
    }
}

int inventory_is_expert(enum tensor_role role)
{
    return rows[role].scope == IN_BF16_EXPERT || rows[role].scope == IN_MXFP4_EXPERT;
}

int inventory_shape(const struct k3_config *c, enum tensor_role role, int64_t shape[TENSOR_DIMS_MAX])
{
    int dims = 0;

    while (dims < TENSOR_DIMS_MAX && rows[role].dim[dims] != NONE) {
        shape[dims] = length(c, rows[role].dim[dims]);
        dims++;
    }
    return dims;
}

const char *inventory_name(enum tensor_role role)
{
    return rows[role].name;
}

int inventory_element_bytes(enum tensor_role role)
{
    const char *dtype = rows[role].dtype;

    return strcmp(dtype, "F32") == 0 ? 4 : strcmp(dtype, "BF16") == 0 ? 2 : 1;
}

static int is_dense_matrix(enum tensor_role role)
{
    const struct row *r = &rows[role];

    return (r->kind == KIND_LINEAR || r->kind == KIND_OUT) && !inventory_is_expert(role) && role != T_ROUTER &&
           role != T_MLA_KV_B;
}

enum k3_dtype inventory_dtype(const struct k3_config *c, enum tensor_role role, enum k3_dtype dense)
{
    int bytes = inventory_element_bytes(role);
    int blocks = dense == K3_MXFP8 || dense == K3_MXFP4;

    if (is_dense_matrix(role) && !(blocks && length(c, rows[role].dim[1]) % K3_MX_BLOCK))
        return dense;
    return bytes == 4 ? K3_F32 : bytes == 2 ? K3_BF16 : K3_U8;
}

static const struct {
    const char *name;
    enum k3_dtype dense;
} dense_forms[] = {{"bf16", K3_BF16}, {"fp8", K3_FP8_E4M3}, {"mxfp8", K3_MXFP8}, {"mxfp4", K3_MXFP4}};

enum { DENSE_FORMS = sizeof dense_forms / sizeof *dense_forms };

enum k3_dtype inventory_dense_parse(const char *name)
{
    for (int i = 0; i < DENSE_FORMS; i++)
        if (strcmp(name, dense_forms[i].name) == 0)
            return dense_forms[i].dense;
    return 0;
}

const char *inventory_dense_name(enum k3_dtype dense)
{
    for (int i = 0; i < DENSE_FORMS; i++)
        if (dense_forms[i].dense == dense)
            return dense_forms[i].name;
    return NULL;
}

void inventory_describe(const struct k3_config *c, enum tensor_role role, int layer, int expert, struct tensor_desc *t)
{
    const struct row *r = &rows[role];

    t->role = role;
    t->layer = layer;
    t->expert = expert;
    t->kind = r->kind;
    t->dtype = r->dtype;
    t->dims = inventory_shape(c, role, t->shape);
    t->bytes = (uint64_t)inventory_element_bytes(role);
    for (int d = 0; d < t->dims; d++)
        t->bytes *= (uint64_t)t->shape[d];
    if (r->scope == IN_MODEL)
        snprintf(t->name, sizeof t->name, "language_model.%s", r->name);
    else if (inventory_is_expert(role))
        snprintf(t->name, sizeof t->name, "language_model.model.layers.%d." MOE "experts.%d.%s", layer, expert,
                 r->name);
    else
        snprintf(t->name, sizeof t->name, "language_model.model.layers.%d.%s", layer, r->name);
}

void inventory_begin(struct inventory_iter *it, const struct k3_config *c)
{
    *it = (struct inventory_iter){.config = c, .layer = -1, .expert = -1, .role = T_EMBED};
}

/* Move to the next role of this place, or to the next place: -1 (embedding), 0 ... layers - 1, layers (head). */
static void step(struct inventory_iter *it)
{
    if (it->expert >= 0 && it->role == T_W3_SCALE && it->expert + 1 < it->config->experts) {
        it->expert++;
        it->role = T_W1;
    } else if (it->role == T_EMBED || it->role == T_MLP_RES_PROJ) {
        it->layer++;
        it->role = it->layer < it->config->layers ? T_KDA_Q : T_OUT_RES_NORM;
    } else {
        it->role++;
    }
    if (it->role < T_ROLES && inventory_is_expert(it->role))
        it->expert = it->expert < 0 ? 0 : it->expert;
    else
        it->expert = -1;
}

int inventory_next(struct inventory_iter *it, struct tensor_desc *t)
{
    while (it->role < T_ROLES) {
        int layer = it->layer < it->config->layers ? it->layer : -1, role = it->role, expert = it->expert;
        int here = inventory_has(it->config, role, layer);
        if (!here && role == T_W1 && !inventory_has(it->config, T_W1_PACKED, layer)) {
            it->role = T_W3_SCALE; /* a dense layer: pass over all experts at once */
            it->expert = it->config->experts - 1;
        }
        step(it);
        if (here) {
            inventory_describe(it->config, role, layer, expert, t);
            return 1;
        }
    }
    return 0;
}
