#include "model/config.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "common/alloc.h"
#include "kernels/kernels.h"
#include "model/jsontext.h"
#include "model/packinfo.h"

enum { CONFIG_BYTES_MAX = 4 << 20, CONFIG_DEPTH_MAX = 32 };
enum { WIDTH_MAX = 1 << 20, VOCAB_MAX = 1 << 24, EXPERTS_MAX = 1 << 14, SHARED_EXPERTS_MAX = 64 };

enum key_type { KEY_INT, KEY_REAL, KEY_BOOL, KEY_STRING };

/* What the file holds beside the config: keys that only serve checks. */
struct raw {
    struct k3_config c;
    int kv_heads, shared_experts, grouped;
};

/* One required key.  An INT or REAL lies in [min, max]; a BOOL with min 1 must be true; a STRING must be `text`. */
struct key {
    const char *name;
    enum key_type type;
    double min, max;
    const char *text;
    long offset; /* in struct raw, -1: checked only */
};

#define AT(field) ((long)offsetof(struct raw, field))
#define INT(name, min, max, field)                                                                                     \
    {                                                                                                                  \
        name, KEY_INT, min, max, NULL, AT(field)                                                                       \
    }
#define INT_FIXED(name, value)                                                                                         \
    {                                                                                                                  \
        name, KEY_INT, value, value, NULL, -1                                                                          \
    }
#define REAL(name, min, max, field)                                                                                    \
    {                                                                                                                  \
        name, KEY_REAL, min, max, NULL, AT(field)                                                                      \
    }
#define BOOL(name, field)                                                                                              \
    {                                                                                                                  \
        name, KEY_BOOL, 0, 1, NULL, AT(field)                                                                          \
    }
#define BOOL_TRUE(name)                                                                                                \
    {                                                                                                                  \
        name, KEY_BOOL, 1, 1, NULL, -1                                                                                 \
    }
#define STRING(name, text)                                                                                             \
    {                                                                                                                  \
        name, KEY_STRING, 0, 0, text, -1                                                                               \
    }

static const struct key text_keys[] = {
    INT("hidden_size", 1, WIDTH_MAX, c.hidden),
    INT("num_hidden_layers", 1, K3_MAX_LAYERS, c.layers),
    INT("vocab_size", 1, VOCAB_MAX, c.vocab),
    INT("intermediate_size", 1, WIDTH_MAX, c.intermediate),
    INT("max_position_embeddings", 1, INT_MAX, c.max_position),
    REAL("rms_norm_eps", 1e-12, 1, c.rms_eps),
    STRING("hidden_act", "situ"),
    REAL("activation_situ_beta", 1e-3, 1e3, c.situ_beta),
    REAL("activation_situ_linear_beta", 1e-3, 1e3, c.situ_linear_beta),
    INT("attn_res_block_size", 1, K3_MAX_LAYERS, c.res_block),
    INT("num_attention_heads", 1, WIDTH_MAX / K3_QK_DIM, c.mla_heads),
    INT("num_key_value_heads", 1, WIDTH_MAX / K3_QK_DIM, kv_heads),
    INT("q_lora_rank", 1, WIDTH_MAX, c.q_lora),
    INT_FIXED("kv_lora_rank", K3_LATENT_DIM),
    INT_FIXED("qk_nope_head_dim", K3_NOPE_DIM),
    INT_FIXED("qk_rope_head_dim", K3_ROPE_DIM),
    INT_FIXED("v_head_dim", K3_V_DIM),
    BOOL_TRUE("mla_use_nope"),
    BOOL_TRUE("mla_use_output_gate"),
    INT("first_k_dense_replace", 0, K3_MAX_LAYERS, c.first_dense),
    INT("moe_layer_freq", 1, K3_MAX_LAYERS, c.moe_freq),
    INT("num_experts", 1, EXPERTS_MAX, c.experts),
    INT("num_experts_per_token", 1, K3_MAX_TOPK, c.topk),
    INT("num_shared_experts", 1, SHARED_EXPERTS_MAX, shared_experts),
    INT("moe_intermediate_size", K3_MX_BLOCK, WIDTH_MAX, c.moe_intermediate),
    INT("routed_expert_hidden_size", K3_MX_BLOCK, WIDTH_MAX, c.latent),
    BOOL("latent_moe_use_norm", c.latent_norm),
    BOOL("moe_renormalize", c.renormalize),
    STRING("moe_router_activation_func", "sigmoid"),
    STRING("topk_method", "noaux_tc"),
    REAL("routed_scaling_factor", 1e-6, 1e6, c.routed_scaling),
    BOOL("use_grouped_topk", grouped),
    INT("num_expert_group", 1, EXPERTS_MAX, c.groups),
    INT("topk_group", 1, EXPERTS_MAX, c.topk_group),
};

static const struct key linear_attn_keys[] = {
    INT("num_heads", 1, WIDTH_MAX / K3_HEAD_DIM, c.kda_heads),
    INT_FIXED("head_dim", K3_HEAD_DIM),
    INT_FIXED("short_conv_kernel_size", K3_TAPS),
    BOOL_TRUE("use_full_rank_gate"),
    REAL("gate_lower_bound", -5, -1e-3, c.gate_lower_bound), /* below, the chunks of KDA could overflow (SPEC 5.3) */
};

/* Where a sentence's key is: the file and what precedes the key's name ("text_config."). */
struct place {
    const char *file, *prefix;
};

static int read_int(const struct place *at, const struct key *k, const json_t *v, struct raw *raw, struct k3_error *err)
{
    if (!json_is_integer(v))
        return k3_errorf(err, "%s: %s%s is not an integer", at->file, at->prefix, k->name);
    long long n = json_integer_value(v);
    if ((n < k->min || n > k->max) && k->min == k->max)
        return k3_errorf(err, "%s: %s%s is %lld, but this program is built for %.0f", at->file, at->prefix, k->name, n,
                         k->min);
    if (n < k->min || n > k->max)
        return k3_errorf(err, "%s: %s%s is %lld, not in %.0f to %.0f", at->file, at->prefix, k->name, n, k->min,
                         k->max);
    if (k->offset >= 0)
        *(int *)((char *)raw + k->offset) = (int)n;
    return 0;
}

static int read_real(const struct place *at, const struct key *k, const json_t *v, struct raw *raw,
                     struct k3_error *err)
{
    if (!json_is_number(v))
        return k3_errorf(err, "%s: %s%s is not a number", at->file, at->prefix, k->name);
    double x = json_number_value(v);
    if (!(x >= k->min && x <= k->max))
        return k3_errorf(err, "%s: %s%s is %g, not in %g to %g", at->file, at->prefix, k->name, x, k->min, k->max);
    *(float *)((char *)raw + k->offset) = (float)x;
    return 0;
}

static int read_key(const struct place *at, const struct key *k, const json_t *section, struct raw *raw,
                    struct k3_error *err)
{
    const json_t *v = json_object_get(section, k->name);

    if (!v)
        return k3_errorf(err, "%s: %s%s is missing", at->file, at->prefix, k->name);
    switch (k->type) {
    case KEY_INT:
        return read_int(at, k, v, raw, err);
    case KEY_REAL:
        return read_real(at, k, v, raw, err);
    case KEY_BOOL:
        if (!json_is_boolean(v))
            return k3_errorf(err, "%s: %s%s is not true or false", at->file, at->prefix, k->name);
        if (k->min == 1 && !json_is_true(v))
            return k3_errorf(err, "%s: %s%s is false, but only true is supported", at->file, at->prefix, k->name);
        if (k->offset >= 0)
            *(int *)((char *)raw + k->offset) = json_is_true(v);
        return 0;
    case KEY_STRING:
        if (!json_is_string(v) || strcmp(json_string_value(v), k->text) != 0)
            return k3_errorf(err, "%s: %s%s is not \"%s\", the only one supported", at->file, at->prefix, k->name,
                             k->text);
        return 0;
    }
    return -1;
}

static int read_keys(const struct place *at, const struct key *keys, size_t count, const json_t *section,
                     struct raw *raw, struct k3_error *err)
{
    for (size_t i = 0; i < count; i++)
        if (read_key(at, &keys[i], section, raw, err) < 0)
            return -1;
    return 0;
}

/* Enter the layers (1-based in the file) of one list; seen[] tells which ones the other list or this one had. */
static int read_layers(const struct place *at, const char *name, enum k3_attention kind, const json_t *section,
                       struct k3_config *c, uint8_t *seen, struct k3_error *err)
{
    const json_t *list = json_object_get(section, name), *item;
    size_t i;

    if (!list)
        return k3_errorf(err, "%s: %s%s is missing", at->file, at->prefix, name);
    if (!json_is_array(list))
        return k3_errorf(err, "%s: %s%s is not a list", at->file, at->prefix, name);
    json_array_foreach(list, i, item)
    {
        json_int_t layer = json_is_integer(item) ? json_integer_value(item) : 0;
        if (layer < 1 || layer > c->layers)
            return k3_errorf(err, "%s: %s%s: entry %zu is not a layer from 1 to %d", at->file, at->prefix, name, i + 1,
                             c->layers);
        if (seen[layer - 1])
            return k3_errorf(err, "%s: %s%s: layer %d is listed twice", at->file, at->prefix, name, (int)layer);
        seen[layer - 1] = 1;
        c->attention[layer - 1] = (uint8_t)kind;
    }
    return 0;
}

static int read_linear_attn(const struct place *text, const json_t *section, struct raw *raw, struct k3_error *err)
{
    const json_t *la = json_object_get(section, "linear_attn_config");
    uint8_t seen[K3_MAX_LAYERS] = {0};
    struct place at = {text->file, *text->prefix ? "text_config.linear_attn_config." : "linear_attn_config."};

    if (!json_is_object(la))
        return k3_errorf(err, "%s: %slinear_attn_config is missing or not an object", text->file, text->prefix);
    if (read_keys(&at, linear_attn_keys, sizeof linear_attn_keys / sizeof *linear_attn_keys, la, raw, err) < 0 ||
        read_layers(&at, "kda_layers", K3_KDA, la, &raw->c, seen, err) < 0 ||
        read_layers(&at, "full_attn_layers", K3_MLA, la, &raw->c, seen, err) < 0)
        return -1;
    for (int l = 0; l < raw->c.layers; l++)
        if (!seen[l])
            return k3_errorf(err, "%s: layer %d is neither in %skda_layers nor in %sfull_attn_layers", at.file, l + 1,
                             at.prefix, at.prefix);
    return 0;
}

/* Token ids stand in the text section, at the top, or in both. */
static int read_token(const struct place *at, const char *name, const json_t *root, const json_t *section, int vocab,
                      int *id, struct k3_error *err)
{
    const json_t *v = json_object_get(section, name);

    if (!v)
        v = json_object_get(root, name);
    if (!v)
        return k3_errorf(err, "%s: %s%s is missing", at->file, at->prefix, name);
    if (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) >= vocab)
        return k3_errorf(err, "%s: %s%s is not a token id below vocab_size (%d)", at->file, at->prefix, name, vocab);
    *id = (int)json_integer_value(v);
    return 0;
}

/* As token ids, it stands in the text section, at the top, or in both. */
static int has_quantisation(const json_t *root, const json_t *section)
{
    const json_t *v = json_object_get(section, "quantization_config");

    if (!v)
        v = json_object_get(root, "quantization_config");
    return v && !json_is_null(v);
}

/* What no key can tell alone. */
static int check_together(const struct place *at, struct raw *raw, const json_t *section, struct k3_error *err)
{
    struct k3_config *c = &raw->c;
    const char *file = at->file, *prefix = at->prefix;
    int snapshots = (c->layers + c->res_block - 1) / c->res_block;

    if (raw->kv_heads != c->mla_heads)
        return k3_errorf(err, "%s: %snum_key_value_heads is %d, but num_attention_heads is %d", file, prefix,
                         raw->kv_heads, c->mla_heads);
    if (json_is_true(json_object_get(section, "tie_word_embeddings")))
        return k3_errorf(err, "%s: %stie_word_embeddings is true, but only false is supported", file, prefix);
    if (c->moe_intermediate % K3_MX_BLOCK)
        return k3_errorf(err, "%s: %smoe_intermediate_size is %d, not a multiple of %d", file, prefix,
                         c->moe_intermediate, K3_MX_BLOCK);
    if (c->latent % K3_MX_BLOCK)
        return k3_errorf(err, "%s: %srouted_expert_hidden_size is %d, not a multiple of %d", file, prefix, c->latent,
                         K3_MX_BLOCK);
    if (snapshots > K3_MAX_SNAPSHOTS)
        return k3_errorf(err, "%s: %sattn_res_block_size %d makes %d blocks of %d layers, more than %d", file, prefix,
                         c->res_block, snapshots, c->layers, K3_MAX_SNAPSHOTS);
    if (c->first_dense > c->layers)
        return k3_errorf(err, "%s: %sfirst_k_dense_replace is %d, but num_hidden_layers is %d", file, prefix,
                         c->first_dense, c->layers);
    if (!raw->grouped)
        c->groups = c->topk_group = 1;
    /* A group's score is the sum of its two best experts, so groups have at least two. */
    if (c->experts % c->groups || (c->groups > 1 && c->experts / c->groups < 2))
        return k3_errorf(err, "%s: %snum_expert_group is %d, which does not divide %d experts into groups of 2 or more",
                         file, prefix, c->groups, c->experts);
    if (c->topk_group > c->groups)
        return k3_errorf(err, "%s: %stopk_group is %d, but num_expert_group is %d", file, prefix, c->topk_group,
                         c->groups);
    if (c->topk > c->experts / c->groups * c->topk_group)
        return k3_errorf(err, "%s: %snum_experts_per_token is %d, more than the %d experts to choose from", file,
                         prefix, c->topk, c->experts / c->groups * c->topk_group);
    c->shared_width = raw->shared_experts * c->moe_intermediate;
    return 0;
}

int k3_config_parse(const char *file, const char *json, size_t len, struct k3_config *c, struct k3_error *err)
{
    struct raw raw = {0};
    int rc = -1;
    json_t *root = jsontext_parse(file, json, len, CONFIG_DEPTH_MAX, err);

    if (!root)
        return -1;
    const json_t *section = json_object_get(root, "text_config");
    struct place at = {file, section ? "text_config." : ""};
    if (!section)
        section = root;
    if (!json_is_object(section)) {
        k3_errorf(err, "%s: text_config is not an object", file);
        goto out;
    }
    if (read_keys(&at, text_keys, sizeof text_keys / sizeof *text_keys, section, &raw, err) < 0 ||
        read_linear_attn(&at, section, &raw, err) < 0 ||
        read_token(&at, "bos_token_id", root, section, raw.c.vocab, &raw.c.bos_id, err) < 0 ||
        read_token(&at, "eos_token_id", root, section, raw.c.vocab, &raw.c.eos_id, err) < 0 ||
        read_token(&at, "pad_token_id", root, section, raw.c.vocab, &raw.c.pad_id, err) < 0 ||
        check_together(&at, &raw, section, err) < 0)
        goto out;
    raw.c.mxfp4 = has_quantisation(root, section);
    raw.c.dense = K3_BF16;
    *c = raw.c;
    rc = 0;
out:
    json_decref(root);
    return rc;
}

int k3_config_load(const char *model_dir, struct k3_config *c, struct k3_error *err)
{
    char *path = k3_asprintf("%s/config.json", model_dir);
    size_t len;
    char *text = jsontext_load(path, CONFIG_BYTES_MAX, &len, err);
    int rc = text ? k3_config_parse(path, text, len, c, err) : -1;
    struct packinfo info;

    if (rc == 0 && packinfo_is_in(model_dir) && (rc = packinfo_read(model_dir, &info, err)) == 0)
        c->dense = info.dense;
    free(text);
    free(path);
    return rc;
}

int k3_config_is_moe(const struct k3_config *c, int layer)
{
    return layer >= c->first_dense && layer % c->moe_freq == 0;
}
