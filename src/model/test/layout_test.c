/* layout_test.c - layouts are read, checked and named; their ranks share out the model */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "model/layout.h"
#include "model/test/tree.h"

static void layouts_are_read_and_checked(void **state)
{
    static const char *const wrong[] = {"", "tp", "tp=", "tp=0", "tp=4,", "tp=4 pp=2", "cp=2", "tp=99999", "tp=4x"};
    struct k3_config c;
    struct layout l;
    struct k3_error err;
    (void)state;

    assert_int_equal(layout_parse("pp=2,tp=8", &l, &err), 0);
    assert_true(l.tp == 8 && l.pp == 2 && l.ep == 1);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_int_equal(layout_parse(wrong[i], &l, &err), -1);
    tree_config("k3.json", &c);
    assert_int_equal(layout_check(&c, &(struct layout){15, 1, 5}, &err), 0);
    assert_int_equal(layout_check(&c, &(struct layout){15, 1, 2}, &err), -1);
    assert_int_equal(layout_check(&c, &(struct layout){1, 94, 1}, &err), -1);
    assert_int_equal(layout_check(&c, &(struct layout){897, 1, 897}, &err), -1);
}

static void a_job_has_the_ranks_of_its_layout(void **state)
{
    char name[LAYOUT_NAME];
    struct k3_config c;
    struct layout l;
    struct k3_error err;
    (void)state;

    tree_config("k3.json", &c);
    assert_int_equal(layout_of_job("", 15, &c, &l, &err), 0);
    assert_string_equal(layout_name(&l, name), "tp=15");
    assert_int_equal(layout_of_job("ep=4,tp=8,pp=2", 16, &c, &l, &err), 0);
    assert_string_equal(layout_name(&l, name), "tp=8,pp=2,ep=4");
    assert_int_equal(layout_of_job("tp=8,pp=2", 15, &c, &l, &err), -1);
    assert_string_equal(err.text, "layout tp=8,pp=2 is one of 16 ranks, but the job has 15");
    assert_int_equal(layout_of_job("tp=1", 2, &c, &l, &err), -1);
    assert_string_equal(err.text, "layout tp=1 is one of 1 rank, but the job has 2");
    assert_int_equal(layout_of_job("tp=15,ep=2", 15, &c, &l, &err), -1);
    assert_int_equal(layout_of_job("tp=two", 2, &c, &l, &err), -1);
}

/* Each element of every tensor that is divided lies on one rank; of the others, on every rank of its stage. */
static void ranks_share_out_every_tensor(void **state)
{
    static const struct layout layouts[] = {{1, 1, 1}, {4, 1, 2}, {6, 1, 3}, {3, 2, 3},
                                            {2, 4, 2}, {6, 3, 2}, {1, 9, 1}};
    struct k3_config c;
    (void)state;

    tree_config("tiny-a.json", &c);
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++)
        for (int layer = -1; layer < c.layers; layer++)
            for (enum tensor_role role = 0; role < T_ROLES; role++) {
                int64_t cells = 0, held = 0, whole = 0;
                if (!inventory_has(&c, role, layer) || role == T_KDA_A_LOG) /* which is padded */
                    continue;
                for (int rank = 0; rank < layout_ranks(&layouts[i]); rank++) {
                    struct shard sh = layout_shard(&layouts[i], rank);
                    struct shard_part p = shard_of(&c, &sh, role);
                    int64_t experts = inventory_is_expert(role) ? shard_count(&c, &sh, SHARD_EXPERTS) : 1;
                    whole = p.rows * p.cols * (inventory_is_expert(role) ? c.experts : 1);
                    if (!shard_has(&c, &sh, role, layer))
                        continue;
                    held++;
                    cells += (p.row.end - p.row.begin) * (p.col.end - p.col.begin) * experts;
                }
                assert_int_equal(held, layouts[i].tp);
                assert_true(cells == whole || (!inventory_is_expert(role) && cells == whole * layouts[i].tp));
            }
}

static void groups_have_consecutive_experts_and_share_their_width(void **state)
{
    struct k3_config c;
    struct layout l = {16, 2, 4};
    (void)state;

    tree_config("k3.json", &c);
    struct shard sh = layout_shard(&l, 16 + 6); /* stage 1, group 1, its third */
    struct range layers = shard_range(&c, &sh, SHARD_LAYERS), experts = shard_range(&c, &sh, SHARD_EXPERTS);
    struct range inner = shard_range(&c, &sh, SHARD_INNER);
    assert_true(layers.begin == 47 && layers.end == 93);
    assert_true(experts.begin == 224 && experts.end == 448);
    assert_true(inner.begin == 1536 && inner.end == 2304);
    assert_true(shard_is_last(&sh) && shard_has(&c, &sh, T_LM_HEAD, -1) && !shard_has(&c, &sh, T_EMBED, -1));
    sh = layout_shard(&l, 3);
    assert_true(!shard_is_last(&sh) && !shard_has(&c, &sh, T_NORM, -1) && shard_has(&c, &sh, T_EMBED, -1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layouts_are_read_and_checked),
        cmocka_unit_test(a_job_has_the_ranks_of_its_layout),
        cmocka_unit_test(ranks_share_out_every_tensor),
        cmocka_unit_test(groups_have_consecutive_experts_and_share_their_width),
    };
    return cmocka_run_group_tests_name("layout", tests, NULL, NULL);
}
