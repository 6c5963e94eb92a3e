/* shard_test.c - whatever tp is, the shares tile every axis and every tensor, and cut nowhere that hurts */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kernels/kernels.h"
#include "model/shard.h"
#include "model/test/tree.h"

static const char *const models[] = {"k3.json", "tiny-a.json"};
static const int degrees[] = {1, 2, 3, 4, 5, 7, 8, 15, 16, 64, 200};

static void shares_tile_every_axis(void **state)
{
    struct k3_config c;
    (void)state;

    for (int m = 0; m < 2; m++)
        for (size_t d = 0; d < sizeof degrees / sizeof *degrees; d++)
            for (enum shard_axis axis = SHARD_KDA_HEADS; axis <= SHARD_EXPERTS; axis++) {
                int64_t end = 0, most = 0, least = INT64_MAX;
                int64_t unit = axis >= SHARD_DENSE && axis <= SHARD_LATENT ? K3_MX_BLOCK : 1;
                tree_config(models[m], &c);
                for (int rank = 0; rank < degrees[d]; rank++) {
                    struct shard sh = {.tp = degrees[d], .rank = rank};
                    if (axis == SHARD_LAYERS)
                        sh = (struct shard){.tp = 1, .pp = degrees[d], .stage = rank};
                    if (axis == SHARD_EXPERTS)
                        sh.ep = degrees[d];
                    struct range r = shard_range(&c, &sh, axis);
                    int64_t count = shard_count(&c, &sh, axis);
                    assert_int_equal(r.begin, end);
                    assert_true(count >= 0);
                    assert_int_equal(r.begin % unit, 0);
                    assert_true(rank == 0 || count <= least); /* more comes first */
                    most = count > most ? count : most;
                    least = count < least ? count : least;
                    end = r.end;
                }
                assert_int_equal(end, shard_total(&c, axis));
                assert_true(most - least <= unit);
            }
}

/* Shares of a tensor cut along one of its sides follow each other there; the other side is whole. */
static void shares_tile_every_tensor(void **state)
{
    struct k3_config c;
    (void)state;

    tree_config("k3.json", &c);
    for (size_t d = 0; d < sizeof degrees / sizeof *degrees; d++)
        for (enum tensor_role role = 0; role < T_ROLES; role++) {
            struct shard_part p = shard_of(&c, &(struct shard){.tp = 1, .rank = 0}, role);
            int64_t cells = 0, row = 0, col = 0;
            int whole = 1;
            for (int rank = 0; rank < degrees[d]; rank++) {
                p = shard_of(&c, &(struct shard){.tp = degrees[d], .rank = rank}, role);
                int by_rows = p.row.begin != 0 || p.row.end != p.rows;
                int by_cols = p.col.begin != 0 || p.col.end != p.cols;
                assert_false(by_rows && by_cols);
                whole &= !by_rows && !by_cols;
                if (by_rows)
                    assert_int_equal(p.row.begin, row);
                if (by_cols)
                    assert_int_equal(p.col.begin, col);
                row = p.row.end;
                col = p.col.end;
                cells += (p.row.end - p.row.begin) * (p.col.end - p.col.begin);
            }
            if (whole)
                assert_int_equal(cells, degrees[d] * p.rows * p.cols);
            else if (role == T_KDA_A_LOG)
                assert_int_equal(cells, c.kda_heads); /* without the padding */
            else
                assert_int_equal(cells, p.rows * p.cols);
        }
}

static void the_real_model_on_16_nodes(void **state)
{
    struct k3_config c;
    struct shard sh = {.tp = 16, .rank = 15};
    (void)state;

    tree_config("k3.json", &c);
    assert_int_equal(shard_count(&c, &sh, SHARD_KDA_HEADS), 6);
    assert_int_equal(shard_count(&c, &sh, SHARD_DENSE), 2112);
    assert_int_equal(shard_count(&c, &sh, SHARD_INNER), 192);
    assert_int_equal(shard_count(&c, &sh, SHARD_LATENT), 224);
    assert_int_equal(shard_count(&c, &sh, SHARD_VOCAB), 10240);

    struct shard_part packed = shard_of(&c, &sh, T_W2_PACKED), scale = shard_of(&c, &sh, T_W2_SCALE);
    assert_int_equal(packed.col.begin, 15 * 96);
    assert_int_equal(packed.col.end, 16 * 96);
    assert_int_equal(scale.col.begin, 15 * 6);
    assert_int_equal(scale.col.end, 16 * 6);
    assert_int_equal(packed.row.end - packed.row.begin, 3584);

    struct shard_part q_b = shard_of(&c, &sh, T_MLA_Q_B), o = shard_of(&c, &sh, T_KDA_O);
    assert_int_equal(q_b.row.begin, 90 * 192);
    assert_int_equal(o.col.begin, 90 * 128);
    assert_int_equal(o.row.end, 7168);
}

static void uneven_shares_give_the_first_ranks_one_more(void **state)
{
    struct k3_config c;
    (void)state;

    tree_config("k3.json", &c); /* 96 heads over 15: six of 7, nine of 6 */
    assert_int_equal(shard_count(&c, &(struct shard){.tp = 15, .rank = 5}, SHARD_MLA_HEADS), 7);
    assert_int_equal(shard_count(&c, &(struct shard){.tp = 15, .rank = 6}, SHARD_MLA_HEADS), 6);
    tree_config("tiny-a.json", &c); /* 64 latents are two blocks */
    assert_int_equal(shard_count(&c, &(struct shard){.tp = 4, .rank = 1}, SHARD_LATENT), 32);
    assert_int_equal(shard_count(&c, &(struct shard){.tp = 4, .rank = 2}, SHARD_LATENT), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shares_tile_every_axis),
        cmocka_unit_test(shares_tile_every_tensor),
        cmocka_unit_test(the_real_model_on_16_nodes),
        cmocka_unit_test(uneven_shares_give_the_first_ranks_one_more),
    };
    return cmocka_run_group_tests_name("shard", tests, NULL, NULL);
}
