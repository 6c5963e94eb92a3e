#include "model/test/tree.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/alloc.h"
#include "model/jsontext.h"

const char small_config[] =
    "{\"hidden_size\":32,\"num_hidden_layers\":2,\"vocab_size\":40,\"intermediate_size\":96,"
    "\"max_position_embeddings\":4096,\"rms_norm_eps\":1e-5,\"hidden_act\":\"situ\",\"activation_situ_beta\":4,"
    "\"activation_situ_linear_beta\":25,\"attn_res_block_size\":1,\"num_attention_heads\":3,\"num_key_value_heads\":3,"
    "\"q_lora_rank\":32,\"kv_lora_rank\":512,\"qk_nope_head_dim\":128,\"qk_rope_head_dim\":64,\"v_head_dim\":128,"
    "\"mla_use_nope\":true,\"mla_use_output_gate\":true,\"first_k_dense_replace\":1,\"moe_layer_freq\":1,"
    "\"num_experts\":3,\"num_experts_per_token\":2,\"num_shared_experts\":2,\"moe_intermediate_size\":96,"
    "\"routed_expert_hidden_size\":64,\"latent_moe_use_norm\":true,\"moe_renormalize\":true,"
    "\"moe_router_activation_func\":\"sigmoid\",\"topk_method\":\"noaux_tc\",\"routed_scaling_factor\":2.5,"
    "\"use_grouped_topk\":true,\"num_expert_group\":1,\"topk_group\":1,"
    "\"bos_token_id\":1,\"eos_token_id\":2,\"pad_token_id\":3,"
    "\"linear_attn_config\":{\"num_heads\":3,\"head_dim\":128,\"short_conv_kernel_size\":4,"
    "\"use_full_rank_gate\":true,\"gate_lower_bound\":-5,\"kda_layers\":[1],\"full_attn_layers\":[2]}}";

static void must(int fine, const char *what)
{
    if (!fine) {
        perror(what);
        exit(1);
    }
}

char *tree_create(void)
{
    const char *tmp = getenv("TMPDIR");
    char *dir = k3_asprintf("%s/k3model.XXXXXX", tmp ? tmp : "/tmp");

    must(mkdtemp(dir) != NULL, dir);
    return dir;
}

void tree_remove(char *dir)
{
    DIR *d = opendir(dir);
    struct dirent *entry;

    must(d != NULL, dir);
    while ((entry = readdir(d))) {
        char *path = k3_asprintf("%s/%s", dir, entry->d_name);
        unlink(path);
        free(path);
    }
    closedir(d);
    must(rmdir(dir) == 0, dir);
}

void tree_write(const char *dir, const char *name, const void *data, size_t len)
{
    char *path = k3_asprintf("%s/%s", dir, name);
    FILE *f = fopen(path, "w");

    must(f && fwrite(data, 1, len, f) == len && fclose(f) == 0, path);
    free(path);
}

char *tree_model(const char *name)
{
    char *path = k3_asprintf("%s/%s", K3_TEST_MODELS, name);
    struct k3_error err = {""};
    size_t len;
    char *text = jsontext_load(path, 1 << 20, &len, &err);

    must(text != NULL, path);
    free(path);
    return text;
}

void tree_config(const char *name, struct k3_config *c)
{
    char *text = tree_model(name);
    struct k3_error err = {""};

    must(k3_config_parse(name, text, strlen(text), c, &err) == 0, err.text);
    free(text);
}
