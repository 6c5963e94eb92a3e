/* config_test.c - config.json: what is read, and every way to be refused by name */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "common/alloc.h"
#include "model/config.h"
#include "model/test/tree.h"

static int parse(const json_t *root, struct k3_config *c, struct k3_error *err)
{
    char *text = json_dumps(root, 0);
    int rc = k3_config_parse("config.json", text, strlen(text), c, err);

    free(text);
    return rc;
}

static void reads_the_real_one(void **state)
{
    struct k3_config c;
    int mla = 0;
    (void)state;

    tree_config("k3.json", &c);
    assert_int_equal(c.hidden, 7168);
    assert_int_equal(c.layers, 93);
    assert_int_equal(c.shared_width, 6144);
    assert_int_equal(c.latent, 3584);
    assert_int_equal(c.eos_id, 163586);
    assert_true(c.gate_lower_bound == -5.0f);
    assert_true(c.rms_eps == 1e-5f);
    for (int l = 0; l < c.layers; l++)
        mla += c.attention[l] == K3_MLA;
    assert_int_equal(mla, 24);
    assert_int_equal(c.attention[2], K3_KDA);
    assert_int_equal(c.attention[3], K3_MLA);
    assert_int_equal(c.attention[91], K3_MLA);
    assert_int_equal(c.attention[92], K3_MLA);
    assert_false(k3_config_is_moe(&c, 0));
    assert_true(k3_config_is_moe(&c, 1));
}

static void the_text_section_may_be_the_file(void **state)
{
    char *text = tree_model("tiny-a.json");
    json_t *root = json_loads(text, 0, NULL);
    struct k3_config nested, flat;
    (void)state;

    memset(&nested, 0, sizeof nested);
    memset(&flat, 0, sizeof flat);
    assert_int_equal(parse(root, &nested, NULL), 0);
    assert_int_equal(parse(json_object_get(root, "text_config"), &flat, NULL), 0);
    assert_memory_equal(&nested, &flat, sizeof flat);
    json_decref(root);
    free(text);
}

static void unknown_keys_are_ignored(void **state)
{
    json_t *root = json_loads(small_config, 0, NULL);
    struct k3_config c;
    (void)state;

    json_object_set_new(root, "head_dim", json_integer(192));
    assert_int_equal(parse(root, &c, NULL), 0);
    json_decref(root);
}

static void quantised_experts_are_told_from_others(void **state)
{
    json_t *flat = json_loads(small_config, 0, NULL), *nested = json_pack("{s:O}", "text_config", flat);
    struct k3_config c;
    (void)state;

    assert_int_equal(parse(flat, &c, NULL), 0);
    assert_false(c.mxfp4);
    json_object_set_new(flat, "quantization_config", json_null());
    assert_int_equal(parse(nested, &c, NULL), 0);
    assert_false(c.mxfp4);
    json_object_set_new(flat, "quantization_config", json_object());
    assert_int_equal(parse(flat, &c, NULL), 0);
    assert_true(c.mxfp4);
    assert_int_equal(parse(nested, &c, NULL), 0);
    assert_true(c.mxfp4);
    json_object_del(flat, "quantization_config");
    json_object_set_new(nested, "quantization_config", json_object());
    assert_int_equal(parse(nested, &c, NULL), 0);
    assert_true(c.mxfp4);
    json_decref(nested);
    json_decref(flat);
}

/* Take away one key after the other, of the text section and of linear_attn_config. */
static void each_missing_key_is_named(void **state)
{
    json_t *root = json_loads(small_config, 0, NULL);
    json_t *sections[] = {root, json_object_get(root, "linear_attn_config")};
    struct k3_config c;
    struct k3_error err;
    (void)state;

    for (int s = 0; s < 2; s++) {
        json_t *whole = json_copy(sections[s]), *value;
        const char *key;
        json_object_foreach(whole, key, value)
        {
            char *want = k3_asprintf("config.json: %s%s is missing", s ? "linear_attn_config." : "", key);
            json_object_del(sections[s], key);
            assert_int_equal(parse(root, &c, &err), -1);
            assert_memory_equal(err.text, want, strlen(want));
            json_object_set(sections[s], key, value);
            free(want);
        }
        json_decref(whole);
    }
    assert_int_equal(parse(root, &c, &err), 0);
    json_decref(root);
}

static void each_impossible_value_is_named(void **state)
{
    static const struct {
        int linear_attn;
        const char *key, *value, *sentence;
    } cases[] = {
        {0, "hidden_size", "0", "hidden_size is 0, not in 1 to 1048576"},
        {0, "hidden_size", "-5", "hidden_size is -5, not in"},
        {0, "hidden_size", "9223372036854775807", "hidden_size is 9223372036854775807, not in"},
        {0, "hidden_size", "\"7168\"", "hidden_size is not an integer"},
        {0, "hidden_size", "32.0", "hidden_size is not an integer"},
        {0, "hidden_size", "null", "hidden_size is not an integer"},
        {0, "num_hidden_layers", "513", "num_hidden_layers is 513, not in 1 to 512"},
        {0, "kv_lora_rank", "256", "kv_lora_rank is 256, but this program is built for 512"},
        {0, "qk_nope_head_dim", "64", "qk_nope_head_dim is 64, but this program is built for 128"},
        {0, "qk_rope_head_dim", "0", "qk_rope_head_dim is 0, but this program is built for 64"},
        {0, "v_head_dim", "129", "v_head_dim is 129, but this program is built for 128"},
        {0, "rms_norm_eps", "0", "rms_norm_eps is 0, not in"},
        {0, "rms_norm_eps", "[]", "rms_norm_eps is not a number"},
        {0, "hidden_act", "\"silu\"", "hidden_act is not \"situ\""},
        {0, "hidden_act", "1", "hidden_act is not \"situ\""},
        {0, "moe_router_activation_func", "\"softmax\"", "moe_router_activation_func is not \"sigmoid\""},
        {0, "mla_use_nope", "false", "mla_use_nope is false"},
        {0, "mla_use_output_gate", "1", "mla_use_output_gate is not true or false"},
        {0, "tie_word_embeddings", "true", "tie_word_embeddings is true"},
        {0, "num_key_value_heads", "1", "num_key_value_heads is 1, but num_attention_heads is 3"},
        {0, "moe_intermediate_size", "48", "moe_intermediate_size is 48, not a multiple of 32"},
        {0, "routed_expert_hidden_size", "80", "routed_expert_hidden_size is 80, not a multiple of 32"},
        {0, "num_experts_per_token", "4", "num_experts_per_token is 4, more than the 3 experts"},
        {0, "num_experts_per_token", "33", "num_experts_per_token is 33, not in 1 to 32"},
        {0, "num_expert_group", "2", "num_expert_group is 2, which does not divide 3 experts"},
        {0, "num_expert_group", "3", "num_expert_group is 3, which does not divide 3 experts into groups of 2"},
        {0, "topk_group", "2", "topk_group is 2, but num_expert_group is 1"},
        {0, "first_k_dense_replace", "3", "first_k_dense_replace is 3, but num_hidden_layers is 2"},
        {0, "eos_token_id", "40", "eos_token_id is not a token id below vocab_size (40)"},
        {0, "pad_token_id", "-1", "pad_token_id is not a token id"},
        {0, "linear_attn_config", "[]", "linear_attn_config is missing or not an object"},
        {1, "head_dim", "64", "linear_attn_config.head_dim is 64, but this program is built for 128"},
        {1, "short_conv_kernel_size", "3", "linear_attn_config.short_conv_kernel_size is 3, but"},
        {1, "gate_lower_bound", "5", "linear_attn_config.gate_lower_bound is 5, not in"},
        {1, "gate_lower_bound", "-5.1", "linear_attn_config.gate_lower_bound is -5.1, not in"},
        {1, "use_full_rank_gate", "false", "linear_attn_config.use_full_rank_gate is false"},
        {1, "kda_layers", "[0]", "linear_attn_config.kda_layers: entry 1 is not a layer from 1 to 2"},
        {1, "kda_layers", "[1, 3]", "linear_attn_config.kda_layers: entry 2 is not a layer from 1 to 2"},
        {1, "kda_layers", "[1.0]", "linear_attn_config.kda_layers: entry 1 is not a layer"},
        {1, "kda_layers", "[1, 1]", "linear_attn_config.kda_layers: layer 1 is listed twice"},
        {1, "full_attn_layers", "[2, 1]", "linear_attn_config.full_attn_layers: layer 1 is listed twice"},
        {1, "kda_layers", "[]", "layer 1 is neither in linear_attn_config.kda_layers nor in"},
        {1, "kda_layers", "{}", "linear_attn_config.kda_layers is not a list"},
    };
    struct k3_config c, before;
    struct k3_error err;
    (void)state;

    memset(&c, 0x55, sizeof c);
    before = c;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        json_t *root = json_loads(small_config, 0, NULL);
        json_t *section = cases[i].linear_attn ? json_object_get(root, "linear_attn_config") : root;
        json_object_set_new(section, cases[i].key, json_loads(cases[i].value, JSON_DECODE_ANY, NULL));
        assert_int_equal(parse(root, &c, &err), -1);
        if (!strstr(err.text, cases[i].sentence))
            fail_msg("\"%s\" instead of \"%s\"", err.text, cases[i].sentence);
        json_decref(root);
    }
    assert_memory_equal(&c, &before, sizeof c);
}

static void too_many_snapshots_are_refused(void **state)
{
    char *text = tree_model("k3.json");
    json_t *root = json_loads(text, 0, NULL);
    struct k3_config c;
    struct k3_error err;
    (void)state;

    json_object_set_new(json_object_get(root, "text_config"), "attn_res_block_size", json_integer(5));
    assert_int_equal(parse(root, &c, &err), -1);
    assert_non_null(strstr(err.text, "text_config.attn_res_block_size 5 makes 19 blocks"));
    json_decref(root);
    free(text);
}

static void text_that_is_no_config_is_refused(void **state)
{
    static const char *const texts[] = {"",       "{",        "[]", "null", "{\"text_config\":7}", "{\"a\":1,\"a\":2}",
                                        "{}\xff", "\xff\xfe{"};
    struct k3_config c;
    struct k3_error err;
    char deep[101];
    (void)state;

    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        assert_int_equal(k3_config_parse("config.json", texts[i], strlen(texts[i]), &c, &err), -1);
    memset(deep, '[', sizeof deep - 1);
    deep[sizeof deep - 1] = '\0';
    assert_int_equal(k3_config_parse("config.json", deep, strlen(deep), &c, &err), -1);
    assert_string_equal(err.text, "config.json: JSON nests more than 32 deep");
}

static void a_missing_file_is_named(void **state)
{
    struct k3_config c;
    struct k3_error err;
    (void)state;

    assert_int_equal(k3_config_load("/nowhere", &c, &err), -1);
    assert_string_equal(err.text, "/nowhere/config.json: No such file or directory");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_the_real_one),
        cmocka_unit_test(the_text_section_may_be_the_file),
        cmocka_unit_test(unknown_keys_are_ignored),
        cmocka_unit_test(quantised_experts_are_told_from_others),
        cmocka_unit_test(each_missing_key_is_named),
        cmocka_unit_test(each_impossible_value_is_named),
        cmocka_unit_test(too_many_snapshots_are_refused),
        cmocka_unit_test(text_that_is_no_config_is_refused),
        cmocka_unit_test(a_missing_file_is_named),
    };
    return cmocka_run_group_tests_name("config", tests, NULL, NULL);
}
