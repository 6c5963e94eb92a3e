/* cost_test.c - what a layout costs is what the engine takes, and what SPEC 11 counts */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "model/cost.h"
#include "model/test/tree.h"

static const struct forward_limits limits = {
    .rows = 48, .outputs = 5, .slots = 3, .checkpoints = 2, .pages = 7, .page_tokens = 16, .latents = K3_BF16};

static const struct cost_options plain = {.dense = K3_BF16, .latents = K3_BF16, .value_bytes = 4};

static uint64_t weights_of(const struct cost_memory *m)
{
    uint64_t bytes = 0;

    for (int g = 0; g < COST_WEIGHTS; g++)
        bytes += m->weights[g];
    return bytes;
}

static void near(double got, double wanted, double share)
{
    if (fabs(got - wanted) > share * fabs(wanted))
        fail_msg("got %g, wanted %g within %g %%", got, wanted, 100 * share);
}

static void a_rank_holds_what_the_loader_and_the_forward_pass_take(void **state)
{
    static const char *const models[] = {"k3.json", "tiny-a.json", "tiny-b.json"};
    static const struct layout layouts[] = {{1, 1, 1},  {2, 1, 1}, {3, 1, 3}, {15, 1, 1}, {16, 1, 4},
                                            {16, 1, 1}, {1, 2, 1}, {2, 3, 2}, {4, 4, 2}};
    static const enum k3_dtype forms[] = {K3_FP8_E4M3, K3_MXFP8};
    struct k3_config c;
    (void)state;

    for (size_t m = 0; m < sizeof models / sizeof *models; m++)
        for (size_t d = 0; d < sizeof layouts / sizeof *layouts; d++)
            for (int rank = 0, ranks = layout_ranks(&layouts[d]); rank<ranks; rank += ranks> 3 ? 7 : 1) {
                struct shard sh = layout_shard(&layouts[d], rank);
                struct cost_memory got;
                tree_config(models[m], &c);
                cost_memory(&c, &layouts[d], rank, K3_BF16, &limits, &got);
                struct forward_bytes wanted = forward_bytes(&c, &sh, &limits);
                assert_int_equal(weights_of(&got), weights_bytes(&c, &sh));
                for (size_t f = 0; f < sizeof forms / sizeof *forms; f++) {
                    struct cost_memory other;
                    cost_memory(&c, &layouts[d], rank, forms[f], &limits, &other);
                    c.dense = forms[f];
                    assert_int_equal(weights_of(&other), weights_bytes(&c, &sh));
                    assert_true(weights_of(&other) < weights_of(&got));
                }
                assert_int_equal(got.forward.state, wanted.state);
                assert_int_equal(got.forward.checkpoints, wanted.checkpoints);
                assert_int_equal(got.forward.latents, wanted.latents);
                assert_int_equal(got.forward.scratch, wanted.scratch);
            }
}

/* Alignment apart, which each rank adds for itself. */
static void stages_and_groups_share_the_model_out(void **state)
{
    static const struct layout layouts[] = {{1, 16, 1}, {1, 4, 1}, {4, 1, 4}, {8, 2, 2}};
    struct k3_config c;
    (void)state;

    tree_config("k3.json", &c);
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        struct cost_memory m, whole;
        uint64_t experts = 0, head = 0, kda = 0, state_bytes = 0;
        for (int rank = 0; rank < layout_ranks(&layouts[i]); rank++) {
            cost_memory(&c, &layouts[i], rank, K3_BF16, &limits, &m);
            experts += m.weights[COST_EXPERTS];
            head += m.weights[COST_HEAD];
            kda += m.weights[COST_KDA];
            state_bytes += m.forward.state;
        }
        cost_memory(&c, &(struct layout){1, 1, 1}, 0, K3_BF16, &limits, &whole);
        assert_int_equal(experts, whole.weights[COST_EXPERTS]);
        assert_int_equal(head, whole.weights[COST_HEAD]);
        assert_int_equal(state_bytes, whole.forward.state);
        if (layouts[i].tp == 1)
            assert_int_equal(kda, whole.weights[COST_KDA]);
    }
}

/* SPEC 11.1, 11.2: GB of weights a step, for one rank that holds everything. */
/* Weights of router and kv_b, which SPEC 11.2 counts in the dense form, and we keep in BF16. */
static double kept_numbers(const struct k3_config *c)
{
    double n = 0;

    for (int layer = 0; layer < c->layers; layer++) {
        n += k3_config_is_moe(c, layer) ? (double)c->experts * c->hidden : 0;
        n += c->attention[layer] == K3_MLA ? (double)c->mla_heads * (K3_NOPE_DIM + K3_V_DIM) * K3_LATENT_DIM : 0;
    }
    return n;
}

static void a_step_reads_what_the_specification_counts(void **state)
{
    static const struct {
        int batch;
        double distinct, gb;
    } table[] = {{1, 16, 137.0}, {8, 120.3, 305.3}, {32, 392.6, 745.0}, {256, 887.1, 1543.3}};
    static const struct {
        enum k3_dtype dense;
        double gb, number; /* bytes of one */
    } forms[] = {{K3_BF16, 136.99, 2}, {K3_FP8_E4M3, 81.4, 1}, {K3_MXFP8, 83.1, 33. / 32}, {K3_MXFP4, 55.4, 17. / 32}};
    struct k3_config c;
    struct cost_work w;
    (void)state;

    tree_config("k3.json", &c);
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        int b = table[i].batch;
        double bytes = 0;
        cost_work(&c, &(struct layout){1, 1, 1}, 0, &plain, &(struct cost_step){b, b, 0, b}, &w);
        for (int g = 0; g < COST_WEIGHTS; g++)
            bytes += w.bytes[g];
        near(cost_distinct_experts(&c, b), table[i].distinct, 5e-4);
        near(bytes / 1e9, table[i].gb, 5e-4);
        near(w.bytes[COST_STATE] / 1e9, 2 * (0.434 + 0.0305) * b, 1e-3); /* SPEC 5.4, convolutions in fp32 */
    }
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        double bytes = 0;
        cost_work(&c, &(struct layout){1, 1, 1}, 0,
                  &(struct cost_options){.dense = forms[i].dense, .latents = K3_BF16, .value_bytes = 4},
                  &(struct cost_step){1, 1, 0, 1}, &w);
        for (int g = 0; g < COST_WEIGHTS; g++)
            bytes += w.bytes[g];
        near(bytes / 1e9, forms[i].gb + kept_numbers(&c) * (2 - forms[i].number) / 1e9, 1e-3);
    }
}

/* SPEC 11.3 */
static void a_token_takes_the_operations_that_the_specification_counts(void **state)
{
    struct k3_config c;
    struct cost_work w;
    double matrices = 0;
    (void)state;

    tree_config("k3.json", &c);
    cost_work(&c, &(struct layout){1, 1, 1}, 0, &plain, &(struct cost_step){1, 1, 131072, 1}, &w);
    for (int g = 0; g < COST_WEIGHTS; g++)
        matrices += w.flops[g];
    near(matrices, 208.4e9, 1e-3);
    near(w.flops[COST_STATE], 0.76e9, 0.05);
    near(w.flops[COST_LATENTS], 0.66e12, 0.01);
}

/* SPEC 11.5: how much more the busiest of 16 ranks reads. */
static void whole_experts_crowd_one_rank(void **state)
{
    static const struct {
        int batch;
        double crowding;
    } table[] = {{1, 3.05}, {4, 1.94}, {8, 1.63}, {16, 1.42}, {32, 1.27}, {64, 1.16}};
    struct k3_config c;
    (void)state;

    tree_config("k3.json", &c);
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        near(cost_busiest_experts(&c, 16, table[i].batch) / (cost_distinct_experts(&c, table[i].batch) / 16),
             table[i].crowding, 0.02);
    near(cost_busiest_experts(&c, 1, 8), cost_distinct_experts(&c, 8), 1e-12);
    near(cost_busiest_experts(&c, 2, 1 << 20), 448, 1e-9);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_holds_what_the_loader_and_the_forward_pass_take),
        cmocka_unit_test(stages_and_groups_share_the_model_out),
        cmocka_unit_test(a_step_reads_what_the_specification_counts),
        cmocka_unit_test(a_token_takes_the_operations_that_the_specification_counts),
        cmocka_unit_test(whole_experts_crowd_one_rank),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
