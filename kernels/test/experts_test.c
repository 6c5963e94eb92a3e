/* experts_test.c - routed experts: all choices, repeated ones, single rows against crowds */
#include "kernels/test/check.h"

struct mixture {
    struct k3_tensor z, w1, w3, w2;
    int32_t *id;
    float *weight;
    int topk, experts;
    int first, held;            /* [first, first + held) of the experts are here, w1 ... have only them */
    struct k3_tensor magnitude; /* [T, L]: sum_j |weight| sum_i |w2| |h|, for the bound */
    struct k3_tensor rounded; /* the same with what an inner activation moves when its factors are rounded, as a unit */
};

static struct kern_expert_matrix matrix(const struct k3_tensor *all, int experts)
{
    int64_t elements = all->rows / experts * all->stride;
    struct kern_expert_matrix m = {*all, elements * 2, 0};
    if (all->dtype == K3_MXFP4)
        m = (struct kern_expert_matrix){*all, elements / 2, elements / K3_MX_BLOCK};
    m.first.rows /= experts;
    return m;
}

static int run(void *arg, struct k3_stream *s, int64_t t0, int64_t t1, const struct k3_tensor *y, float *state)
{
    struct mixture *m = arg;
    struct k3_tensor z = tensor_rows(&m->z, t0, t1);
    struct kern_expert_matrix w1 = matrix(&m->w1, m->held), w3 = matrix(&m->w3, m->held);
    struct kern_expert_matrix w2 = matrix(&m->w2, m->held);
    (void)state;
    return kern_experts(&(struct experts_args){&z, m->id + t0 * m->topk, m->weight + t0 * m->topk, m->topk, m->experts,
                                               m->first, m->held, &w1, &w3, &w2, y, 4, 25},
                        s);
}

static double row_dot(const struct k3_tensor *w, int64_t o, const struct k3_tensor *x, int64_t t, double *magnitude)
{
    double sum = 0;
    *magnitude = 0;
    for (int64_t i = 0; i < w->cols; i++) {
        sum += ref_get(w, o, i) * ref_get(x, t, i);
        *magnitude += fabs(ref_get(w, o, i) * ref_get(x, t, i));
    }
    return sum;
}

/* The error of SiTU's arguments grows by its slope, below 25 in gate and 4 in up; then the outer dot takes over. */
static void measure(struct mixture *m)
{
    int64_t inner = m->w1.rows / m->held, width = m->z.cols;
    m->magnitude = tensor_random(m->z.rows, width, 0, 0, 0);
    m->rounded = tensor_random(m->z.rows, width, 0, 0, 0);
    for (int64_t t = 0; t < m->z.rows; t++)
        for (int j = 0; j < m->topk; j++) {
            int64_t e = m->id[t * m->topk + j] - m->first;
            double w = m->weight[t * m->topk + j];
            if (e < 0 || e >= m->held)
                continue;
            for (int64_t i = 0; i < inner; i++) {
                double a, b, gate = row_dot(&m->w1, e * inner + i, &m->z, t, &a);
                double up = row_dot(&m->w3, e * inner + i, &m->z, t, &b);
                double h = fabs(ref_situ_of(gate, up, 4, 25)), moved = h + 25 * a + 4 * b;
                h = h * bound_dot(inner, 1) + h * 24 * U + 25 * bound_dot(width, a) + 4 * bound_dot(width, b);
                for (int64_t l = 0; l < width; l++) {
                    double w2 = fabs(w * ref_get(&m->w2, e * width + l, i));
                    ref_put(&m->magnitude, t, l, ref_get(&m->magnitude, t, l) + w2 * h);
                    ref_put(&m->rounded, t, l, ref_get(&m->rounded, t, l) + w2 * moved);
                }
            }
        }
}

static double bound(void *arg, int64_t t, int64_t l, double expected)
{
    struct mixture *m = arg;
    double rounding = 0;
    if (check_rounds_to_bf16()) /* of z, then of the inner activations */
        rounding = ref_get(&m->rounded, t, l) * 0x1p-8;
    return ref_get(&m->magnitude, t, l) * (1 + 1e-3) + m->topk * U * fabs(expected) + rounding + 1e-30;
}

static void part_of(enum k3_dtype dtype, int64_t rows, int64_t width, int64_t inner, int experts, int topk, int first,
                    int held)
{
    struct mixture m = {.z = tensor_random(rows, width, 3, -1, 1),
                        .w1 = tensor_weights(dtype, held * inner, width, 0),
                        .w3 = tensor_weights(dtype, held * inner, width, 0),
                        .w2 = tensor_weights(dtype, held * width, inner, inner > 0 ? 32 : 0),
                        .id = malloc(sizeof(int32_t) * (size_t)(rows * topk + 1)),
                        .weight = malloc(sizeof(float) * (size_t)(rows * topk + 1)),
                        .topk = topk,
                        .experts = experts,
                        .first = first,
                        .held = held};
    for (int64_t p = 0; p < rows * topk; p++) {
        m.id[p] = random_below(experts);
        m.weight[p] = (float)random_uniform(0, 1);
    }
    measure(&m);
    check_operation(&(struct check){.arg = &m, .units = rows, .cols = width, .run = run, .bound = bound});
    tensor_free(&m.z);
    tensor_free(&m.w1);
    tensor_free(&m.w3);
    tensor_free(&m.w2);
    tensor_free(&m.magnitude);
    tensor_free(&m.rounded);
    free(m.id);
    free(m.weight);
}

static void mixture_of(enum k3_dtype dtype, int64_t rows, int64_t width, int64_t inner, int experts, int topk)
{
    part_of(dtype, rows, width, inner, experts, topk, 0, experts);
}

static void mixture(int64_t rows, int64_t width, int64_t inner, int experts, int topk)
{
    mixture_of(K3_MXFP4, rows, width, inner, experts, topk);
    mixture_of(K3_BF16, rows, width, inner, experts, topk);
}

static void matches_the_reference(void **state)
{
    (void)state;
    mixture(1, 32, 32, 1, 1);
    mixture(1, 128, 96, 16, 4);
    mixture(7, 64, 32, 5, 3);
    mixture(300, 32, 32, 2, 2);
    if (check_emulated()) {
        mixture(3, 416, 32, 4, 2);
        return;
    }
    mixture(40, 96, 64, 6, 4);
    mixture(150, 800, 96, 6, 4);
    mixture(3, 1056, 32, 4, 2);
}

static void takes_empty_shards(void **state)
{
    (void)state;
    mixture(3, 64, 0, 4, 2);
    mixture(0, 64, 32, 4, 2);
}

/* What a rank of several groups holds: rows with all, some and none of their experts here, single rows and crowds. */
static void adds_only_the_experts_that_it_holds(void **state)
{
    static const enum k3_dtype dtypes[] = {K3_MXFP4, K3_BF16};
    (void)state;
    for (int d = 0; d < 2; d++) {
        part_of(dtypes[d], 1, 128, 96, 16, 4, 15, 1);
        part_of(dtypes[d], 1, 64, 32, 64, 16, 8, 40);
        part_of(dtypes[d], 7, 64, 32, 6, 3, 2, 3);
        part_of(dtypes[d], 33, 96, 64, 12, 12, 1, 9);
        part_of(dtypes[d], 300, 32, 32, 5, 2, 4, 1);
        part_of(dtypes[d], 150, 800, 96, 7, 4, 3, 2);
    }
}

/* More pairs than the shared scratch holds inner activations of: several groups, the same bits. */
static void takes_more_pairs_than_scratch(void **state)
{
    (void)state;
    mixture_of(K3_MXFP4, 3, 32, 524288, 2, 1);
}

static void refuses_numbers_out_of_range(void **state)
{
    static const char *const backends[] = {"ref", "cpu"};
    (void)state;
    for (int b = 0; b < 2; b++) {
        struct k3_stream *s = kern_stream_create(backends[b], 1);
        struct k3_tensor z = tensor_random(1, 32, 0, -1, 1), y = tensor_f32(1, 32, 0);
        struct k3_tensor w = tensor_weights(K3_MXFP4, 64, 32, 0);
        struct kern_expert_matrix m = matrix(&w, 2);
        const int32_t zero = 0;
        float weight = 1;
        for (int32_t id = -1; id <= 2; id++)
            assert_int_equal(
                kern_experts(&(struct experts_args){&z, &id, &weight, 1, 2, 0, 2, &m, &m, &m, &y, 4, 25}, s),
                id == 0 || id == 1 ? 0 : -1);
        /* The second of three experts is here: all three may be asked for, no fourth. */
        for (int32_t id = -1; id <= 3; id++)
            assert_int_equal(
                kern_experts(&(struct experts_args){&z, &id, &weight, 1, 3, 1, 1, &m, &m, &m, &y, 4, 25}, s),
                id >= 0 && id <= 2 ? 0 : -1);
        for (int32_t first = -1; first <= 3; first++)
            assert_int_equal(
                kern_experts(&(struct experts_args){&z, &zero, &weight, 1, 3, first, 2, &m, &m, &m, &y, 4, 25}, s),
                first == 0 || first == 1 ? 0 : -1);
        kern_stream_destroy(s);
        tensor_free(&z);
        tensor_free(&y);
        tensor_free(&w);
    }
}

/* Matrices of two dtypes, a dtype that none has, and widths that are not whole blocks. */
static void refuses_other_matrices(void **state)
{
    struct k3_stream *s = kern_stream_create("cpu", 1);
    struct k3_tensor z = tensor_random(1, 64, 0, -1, 1), y = tensor_f32(1, 64, 0);
    struct k3_tensor mx = tensor_weights(K3_MXFP4, 64, 64, 0), bf16 = tensor_weights(K3_BF16, 64, 64, 0);
    struct k3_tensor f32 = tensor_weights(K3_F32, 64, 64, 0), narrow = z, short_y = y;
    struct kern_expert_matrix m = matrix(&mx, 1), b = matrix(&bf16, 1), f = matrix(&f32, 1), in = b, out = b;
    int32_t id = 0;
    float weight = 1;
    (void)state;
    assert_int_equal(kern_experts(&(struct experts_args){&z, &id, &weight, 1, 1, 0, 1, &m, &m, &m, &y, 4, 25}, s), 0);
    assert_int_equal(kern_experts(&(struct experts_args){&z, &id, &weight, 1, 1, 0, 1, &b, &b, &b, &y, 4, 25}, s), 0);
    assert_int_equal(kern_experts(&(struct experts_args){&z, &id, &weight, 1, 1, 0, 1, &m, &b, &m, &y, 4, 25}, s), -1);
    assert_int_equal(kern_experts(&(struct experts_args){&z, &id, &weight, 1, 1, 0, 1, &b, &b, &m, &y, 4, 25}, s), -1);
    assert_int_equal(kern_experts(&(struct experts_args){&z, &id, &weight, 1, 1, 0, 1, &f, &f, &f, &y, 4, 25}, s), -1);
    in.first.cols = narrow.cols = short_y.cols = out.first.rows = 48;
    assert_int_equal(
        kern_experts(&(struct experts_args){&narrow, &id, &weight, 1, 1, 0, 1, &in, &in, &out, &short_y, 4, 25}, s),
        -1);
    kern_stream_destroy(s);
    tensor_free(&z);
    tensor_free(&y);
    tensor_free(&mx);
    tensor_free(&bf16);
    tensor_free(&f32);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matches_the_reference),
        cmocka_unit_test(takes_empty_shards),
        cmocka_unit_test(adds_only_the_experts_that_it_holds),
        cmocka_unit_test(takes_more_pairs_than_scratch),
        cmocka_unit_test(refuses_numbers_out_of_range),
        cmocka_unit_test(refuses_other_matrices),
    };
    check_seed();
    return cmocka_run_group_tests_name("experts", tests, NULL, NULL);
}
