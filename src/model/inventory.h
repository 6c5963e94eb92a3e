/* inventory.h - every text tensor of a checkpoint: name, dtype, shape (SPEC 3.2)
 *
 * One table describes them all.  The rest of the program talks in roles, layers and experts and never takes a name
 * apart. */
#ifndef K3_MODEL_INVENTORY_H
#define K3_MODEL_INVENTORY_H

#include "kernels/kernels.h"
#include "model/config.h"

/* In the order of a checkpoint: the embedding, then layer by layer, then the head. */
enum tensor_role {
    T_EMBED,
    /* KDA attention */
    T_KDA_Q,
    T_KDA_Q_CONV,
    T_KDA_K,
    T_KDA_K_CONV,
    T_KDA_V,
    T_KDA_V_CONV,
    T_KDA_A_LOG,
    T_KDA_DT_BIAS,
    T_KDA_F_A,
    T_KDA_F_B,
    T_KDA_B,
    T_KDA_G,
    T_KDA_O_NORM,
    T_KDA_O,
    /* MLA attention */
    T_MLA_Q_A,
    T_MLA_Q_A_NORM,
    T_MLA_Q_B,
    T_MLA_KV_A,
    T_MLA_KV_A_NORM,
    T_MLA_KV_B,
    T_MLA_G,
    T_MLA_O,
    /* dense feed-forward */
    T_MLP_GATE,
    T_MLP_UP,
    T_MLP_DOWN,
    /* latent mixture of experts */
    T_ROUTER,
    T_ROUTER_BIAS,
    T_SHARED_GATE,
    T_SHARED_UP,
    T_SHARED_DOWN,
    T_LATENT_DOWN, /* routed_expert_down_proj: hidden to latent */
    T_LATENT_NORM,
    T_LATENT_UP, /* routed_expert_up_proj: latent to hidden */
    T_W1,        /* BF16; or, of MXFP4, codes and scales */
    T_W1_PACKED,
    T_W1_SCALE,
    T_W2,
    T_W2_PACKED,
    T_W2_SCALE,
    T_W3,
    T_W3_PACKED,
    T_W3_SCALE,
    /* every layer */
    T_INPUT_NORM,
    T_POST_ATTN_NORM,
    T_ATTN_RES_NORM,
    T_ATTN_RES_PROJ,
    T_MLP_RES_NORM,
    T_MLP_RES_PROJ,
    /* head */
    T_OUT_RES_NORM,
    T_OUT_RES_PROJ,
    T_NORM,
    T_LM_HEAD,
    T_ROLES
};

enum { TENSOR_NAME_MAX = 128, TENSOR_DIMS_MAX = 3 };

/* What a tensor is for, as far as synthetic weights care. */
enum tensor_kind {
    KIND_LINEAR,
    KIND_OUT, /* linear that ends a branch */
    KIND_EMBED,
    KIND_NORM,
    KIND_CONV,
    KIND_A_LOG,
    KIND_DT_BIAS,
    KIND_ROUTER_BIAS,
    KIND_MIX, /* residual-mixing projection */
    KIND_PACKED,
    KIND_SCALE
};

/* Which tensor: layer and expert as in tensor_desc. */
struct tensor_id {
    int16_t role, layer;
    int32_t expert;
};

struct tensor_desc {
    enum tensor_role role;
    int layer;  /* -1 for the embedding and the head */
    int expert; /* -1 unless a routed expert's */
    enum tensor_kind kind;
    const char *dtype; /* as safetensors spells it: "BF16", "F32" or "U8"; static */
    int dims;
    int64_t shape[TENSOR_DIMS_MAX];
    uint64_t bytes;
    char name[TENSOR_NAME_MAX];
};

/* Whether layer (-1: embedding and head) has a tensor of this role. */
int inventory_has(const struct k3_config *c, enum tensor_role role, int layer);
int inventory_is_expert(enum tensor_role role);
/* Fill in the shape and return its dimensions: the same in every layer that has the role. */
int inventory_shape(const struct k3_config *c, enum tensor_role role, int64_t shape[TENSOR_DIMS_MAX]);
/* What its tensors are called behind the layer, the expert: "self_attn.q_proj.weight". */
const char *inventory_name(enum tensor_role role);
int inventory_element_bytes(enum tensor_role role);
/* What a rank holds a tensor in: the dtype of the checkpoint (of expert's MXFP4 forms, K3_U8) or, of a matrix that only
 * linear products take, the dense form that is asked for (K3_BF16: none).  Embedding and router are none of them, nor
 * kv_b, which attention unfolds; in MXFP8 a row must have whole blocks. */
enum k3_dtype inventory_dtype(const struct k3_config *c, enum tensor_role role, enum k3_dtype dense);
/* "bf16", "fp8", "mxfp8", "mxfp4"; 0 when it is none of them. */
enum k3_dtype inventory_dense_parse(const char *name);
const char *inventory_dense_name(enum k3_dtype dense);
/* Describe one tensor, which the layer must have; expert is -1 unless inventory_is_expert(role). */
void inventory_describe(const struct k3_config *c, enum tensor_role role, int layer, int expert, struct tensor_desc *t);

/* for (inventory_begin(&it, c); inventory_next(&it, &t);) visits all of them in the order of a checkpoint. */
struct inventory_iter {
    const struct k3_config *config;
    int layer, expert, role;
};
void inventory_begin(struct inventory_iter *it, const struct k3_config *c);
int inventory_next(struct inventory_iter *it, struct tensor_desc *t);

#endif
