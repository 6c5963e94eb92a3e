/* inventory_test.c - the real model's tensors, counted by part */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "model/inventory.h"
#include "model/test/tree.h"

/* SPEC 3.2 and 3.4: the whole and, of one layer each, the parts. */
static void the_real_model_adds_up(void **state)
{
    struct k3_config c;
    struct inventory_iter it;
    struct tensor_desc t;
    uint64_t tensors = 0, total = 0, kda = 0, mla = 0, dense = 0, moe = 0, shared = 0, experts = 0, layer = 0;
    (void)state;

    tree_config("k3.json", &c);
    for (inventory_begin(&it, &c); inventory_next(&it, &t);) {
        tensors++;
        total += t.bytes;
        if (t.layer == 0 && t.role >= T_KDA_Q && t.role <= T_KDA_O)
            kda += t.bytes;
        if (t.layer == 3 && t.role >= T_MLA_Q_A && t.role <= T_MLA_O)
            mla += t.bytes;
        if (t.role >= T_MLP_GATE && t.role <= T_MLP_DOWN)
            dense += t.bytes;
        if (t.layer == 1 && (t.role == T_ROUTER || t.role == T_ROUTER_BIAS || t.role == T_LATENT_DOWN ||
                             t.role == T_LATENT_NORM || t.role == T_LATENT_UP))
            moe += t.bytes;
        if (t.layer == 1 && t.role >= T_SHARED_GATE && t.role <= T_SHARED_DOWN)
            shared += t.bytes;
        if (t.layer == 1 && inventory_is_expert(t.role))
            experts += t.bytes;
        if (t.layer == 92 && t.role >= T_INPUT_NORM && t.role <= T_MLP_RES_PROJ)
            layer += t.bytes;
    }
    assert_int_equal(tensors, 497052);
    assert_int_equal(total, 1559965606912);
    assert_int_equal(kda, 887800832);
    assert_int_equal(mla, 464392192);
    assert_int_equal(dense, 1453326336);
    assert_int_equal(moe, 115616256);
    assert_int_equal(shared, 264241152);
    assert_int_equal(experts, 15722348544);
    assert_int_equal(layer, 86016);
}

static void tensors_come_in_the_order_of_a_checkpoint(void **state)
{
    static const char *const names[] = {
        "language_model.model.embed_tokens.weight",
        "language_model.model.layers.0.self_attn.q_proj.weight",
        "language_model.model.layers.0.self_attn.q_conv1d.weight",
    };
    struct k3_config c;
    struct inventory_iter it;
    struct tensor_desc t = {0}, last = {0};
    int n = 0, dense = 0;
    (void)state;

    tree_config("tiny-a.json", &c);
    for (inventory_begin(&it, &c); inventory_next(&it, &t); n++) {
        if (n < 3)
            assert_string_equal(t.name, names[n]);
        /* Where the place stays the same, roles go up. */
        if (n > 0 && t.layer == last.layer && t.expert == last.expert)
            assert_true(t.role > last.role);
        dense += t.role == T_MLP_DOWN;
        last = t;
    }
    assert_string_equal(last.name, "language_model.lm_head.weight");
    assert_int_equal(n, 1002);
    assert_int_equal(dense, 1);
}

static void experts_that_are_not_quantised_have_one_tensor_a_matrix(void **state)
{
    struct k3_config c;
    struct inventory_iter it;
    struct tensor_desc t;
    int n = 0;
    (void)state;

    tree_config("tiny-a.json", &c);
    c.mxfp4 = 0;
    for (inventory_begin(&it, &c); inventory_next(&it, &t);)
        if (inventory_is_expert(t.role)) {
            assert_string_equal(t.dtype, "BF16");
            n++;
        }
    assert_int_equal(n, 3 * c.experts * (c.layers - c.first_dense));
}

static void one_tensor_is_described_alone(void **state)
{
    struct k3_config c;
    struct tensor_desc t;
    (void)state;

    tree_config("k3.json", &c);
    inventory_describe(&c, T_W2_SCALE, 92, 895, &t);
    assert_string_equal(t.name, "language_model.model.layers.92.block_sparse_moe.experts.895.w2.weight_scale");
    assert_string_equal(t.dtype, "U8");
    assert_int_equal(t.dims, 2);
    assert_int_equal(t.shape[0], 3584);
    assert_int_equal(t.shape[1], 96);
    inventory_describe(&c, T_KDA_A_LOG, 0, -1, &t);
    assert_int_equal(t.dims, 1);
    assert_int_equal(t.shape[0], 128);
    inventory_describe(&c, T_KDA_V_CONV, 0, -1, &t);
    assert_int_equal(t.dims, 3);
    assert_int_equal(t.bytes, 12288 * 4 * 4);
}

static void layers_have_what_their_kind_has(void **state)
{
    struct k3_config c;
    (void)state;

    tree_config("k3.json", &c);
    assert_true(inventory_has(&c, T_KDA_G, 0));
    assert_false(inventory_has(&c, T_MLA_G, 0));
    assert_true(inventory_has(&c, T_MLA_G, 92));
    assert_true(inventory_has(&c, T_MLP_UP, 0));
    assert_false(inventory_has(&c, T_ROUTER, 0));
    assert_false(inventory_has(&c, T_W1_PACKED, 0));
    assert_true(inventory_has(&c, T_W1_PACKED, 1));
    assert_false(inventory_has(&c, T_W1, 1));
    c.mxfp4 = 0;
    assert_false(inventory_has(&c, T_W1_PACKED, 1));
    assert_true(inventory_has(&c, T_W1, 1));
    assert_false(inventory_has(&c, T_W1, 0));
    assert_true(inventory_has(&c, T_INPUT_NORM, 1));
    assert_false(inventory_has(&c, T_INPUT_NORM, -1));
    assert_true(inventory_has(&c, T_LM_HEAD, -1));
    assert_false(inventory_has(&c, T_LM_HEAD, 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_real_model_adds_up),
        cmocka_unit_test(tensors_come_in_the_order_of_a_checkpoint),
        cmocka_unit_test(experts_that_are_not_quantised_have_one_tensor_a_matrix),
        cmocka_unit_test(one_tensor_is_described_alone),
        cmocka_unit_test(layers_have_what_their_kind_has),
    };
    return cmocka_run_group_tests_name("inventory", tests, NULL, NULL);
}
