/* exchanges_test.c - a step makes the exchanges that cost_exchanges() counts */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "comm/backend.h"
#include "common/alloc.h"
#include "model/cost.h"
#include "model/synthetic.h"
#include "model/test/tree.h"

enum { ROWS = 5, OUTPUTS = 2, RANKS = 3 };

/* A communicator whose other ranks have nothing to say. */
struct counting {
    struct comm comm;
    int sums, gathers;
    size_t summed, gathered; /* numbers */
};

static int count_sum(struct comm *comm, struct k3_stream *s, float *x, size_t count, struct k3_error *err)
{
    struct counting *c = (struct counting *)comm;
    (void)s, (void)x, (void)err;

    c->sums++;
    c->summed += count;
    return 0;
}

static int count_gather(struct comm *comm, struct k3_stream *s, const struct comm_columns *matrix, int matrices,
                        int64_t rows, struct k3_error *err)
{
    struct counting *c = (struct counting *)comm;
    (void)s, (void)err;

    c->gathers++;
    for (int i = 0; i < matrices; i++) {
        c->gathered += (size_t)(rows * matrix[i].begin[RANKS]);
        memset(matrix[i].all, 0, (size_t)(rows * matrix[i].begin[RANKS]) * sizeof(float));
    }
    return 0;
}

static const struct comm_ops counting_ops = {.allreduce = count_sum, .allgather_columns = count_gather};

static void run_step(const struct k3_config *c, const char *dir, struct counting *count)
{
    static const int32_t begin[] = {0, ROWS}, slot[] = {0}, pages[] = {0}, token[ROWS] = {1, 2, 3, 4, 5};
    static const int64_t pos[] = {0};
    static const int32_t output[OUTPUTS] = {0, ROWS - 1};
    struct shard sh = {.tp = RANKS, .rank = 0};
    struct k3_error err = {""};
    const float *logits;

    struct k3_stream *s = kern_stream_create("ref", 1);
    struct weights *w = weights_load(dir, c, &sh, s, NULL, &err);
    struct forward_limits limits = {.rows = ROWS,
                                    .outputs = OUTPUTS,
                                    .slots = 1,
                                    .pages = 1,
                                    .page_tokens = 16,
                                    .slot_pages = 1,
                                    .latents = kern_latent_dtype(s)};
    struct forward *f = w ? forward_create(c, &sh, w, &count->comm, s, &limits, &err) : NULL;
    struct forward_step step = {
        .batch = {.rows = ROWS, .seqs = 1, .begin = begin, .slot = slot, .pos = pos, .pages = pages, .page_stride = 1},
        .token = token,
        .output = output,
        .outputs = OUTPUTS};
    if (!f || forward_step(f, &step, &logits, &err) < 0)
        fail_msg("%s", err.text);
    forward_destroy(f);
    weights_destroy(w);
    kern_stream_destroy(s);
}

static void a_step_exchanges_what_is_counted(void **state)
{
    struct counting made = {.comm = {.ops = &counting_ops, .rank = 0, .size = RANKS}};
    struct cost_exchange list[COST_EXCHANGES_MAX];
    struct cost_options options = {.dense = K3_BF16, .latents = K3_F32, .value_bytes = sizeof(float)};
    struct cost_step step = {.rows = ROWS, .seqs = 1, .outputs = OUTPUTS};
    char *dir = tree_create(), *path = k3_asprintf("%s/model.safetensors", dir);
    struct k3_config c;
    struct k3_error err = {""};
    int sums = 0, gathers = 0;
    double summed = 0, gathered = 0;
    (void)state;

    if (k3_config_parse("small", small_config, strlen(small_config), &c, &err) < 0 ||
        synthetic_write(&c, path, &err) < 0)
        fail_msg("%s", err.text);
    run_step(&c, dir, &made);
    int n = cost_exchanges(&c, &(struct layout){RANKS, 1, 1}, 0, &options, &step, list);
    for (int i = 0; i < n; i++) {
        int sum = list[i].kind == COST_ALL_REDUCE;
        *(sum ? &sums : &gathers) += list[i].count;
        *(sum ? &summed : &gathered) += list[i].count * list[i].bytes;
    }
    assert_int_equal(made.sums, sums);
    assert_int_equal(made.gathers, gathers);
    assert_int_equal(made.summed * sizeof(float), summed);
    assert_int_equal(made.gathered * sizeof(float), gathered);
    free(path);
    tree_remove(dir);
    free(dir);
}

/* SPEC 11.5: attention; input, sum and output of the experts. */
static void the_real_model_on_16_nodes(void **state)
{
    struct cost_exchange list[COST_EXCHANGES_MAX];
    struct cost_step step = {.rows = 1, .seqs = 1, .outputs = 1};
    struct k3_config c;
    (void)state;

    tree_config("k3.json", &c);
    for (int pp = 1; pp <= 2; pp++) {
        struct layout l = {16 / pp, pp, 1};
        int count = 0, sends = 0;
        for (int stage = 0; stage < pp; stage++) {
            int n =
                cost_exchanges(&c, &l, stage, &(struct cost_options){.dense = K3_BF16, .value_bytes = 4}, &step, list);
            for (int i = 0; i < n; i++)
                *(list[i].kind == COST_SEND ? &sends : &count) += list[i].count;
        }
        assert_int_equal(count, 1 + 2 + 92 * 4 + 1);
        assert_int_equal(sends, pp > 1 ? pp : 0); /* the residual stream onwards, the logits back */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_exchanges_what_is_counted),
        cmocka_unit_test(the_real_model_on_16_nodes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
