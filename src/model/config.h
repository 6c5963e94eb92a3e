/* config.h - config.json of a Kimi K3 checkpoint (SPEC 2)
 *
 * Every key that the text model uses is required; one that is missing or impossible is refused by name, unknown keys
 * are ignored.  Head geometry is not here: the kernels are compiled for it (K3_HEAD_DIM ... in kernels.h) and a file
 * that says otherwise is refused.  quantization_config
 * tells only whether the routed experts are MXFP4 (it is there) or BF16 (it is not); all else has the dtype that the
 * inventory says. */
#ifndef K3_MODEL_CONFIG_H
#define K3_MODEL_CONFIG_H

#include <stddef.h>
#include <stdint.h>

#include "common/error.h"
#include "kernels/kernels.h"

enum { K3_MAX_LAYERS = 512 };

enum k3_attention { K3_KDA, K3_MLA };

/* Plain data: may be copied, and means the same on every rank. */
struct k3_config {
    int hidden, layers, vocab;
    int intermediate; /* dense feed-forward */
    int max_position;
    float rms_eps;
    float situ_beta, situ_linear_beta;
    int res_block; /* layers of an AttnRes block */
    int bos_id, eos_id, pad_id;

    uint8_t attention[K3_MAX_LAYERS]; /* enum k3_attention of layer 0 ... layers - 1 */
    int kda_heads, mla_heads;
    float gate_lower_bound;
    int q_lora;

    int first_dense, moe_freq; /* see k3_config_is_moe() */
    int experts, topk;
    int mxfp4; /* the routed experts are; else they are BF16 */
    enum k3_dtype
        dense; /* of inventory_dtype()'s dense matrices: BF16, as in a checkpoint, unless a pack has another */
    int groups, topk_group;
    int moe_intermediate; /* inner width of an expert */
    int shared_width;     /* inner width of the shared experts together */
    int latent;           /* width that the routed experts read and write */
    int latent_norm, renormalize;
    float routed_scaling;
};

/* Layers are counted from 0 everywhere but in the file. */
int k3_config_is_moe(const struct k3_config *c, int layer);

/* Read model_dir/config.json and, where it holds packs, what packinfo.h says of them. */
int k3_config_load(const char *model_dir, struct k3_config *c, struct k3_error *err);
/* The same from memory; `file` names it in sentences.  text_config may be nested or be the file itself. */
int k3_config_parse(const char *file, const char *json, size_t len, struct k3_config *c, struct k3_error *err);

#endif
