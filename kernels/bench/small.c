#include "kernels/bench/small.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HIDDEN = 7168, HEADS = 16, WIDTH = HEADS * K3_HEAD_DIM, EXPERTS = 896, TOPK = 16, RANKS = 16, VOCAB = 1000 };
enum { MOST_ROWS = 64, SLOTS = MOST_ROWS, PAGE_TOKENS = 64, TURNS = 200 };

/* What the operations work on; y takes what comes out of all of them. */
static struct bench {
    int rows;
    struct k3_tensor x, y, wide_x, wide_y, heads, logits, kv, table, norm, latent_norm, head_norm, taps, a_log, dt_bias,
        bias;
    struct kern_latents cache;
    float *conv_state, *weight;
    int32_t *row, *id, *begin, *slot, *pages;
    int64_t *pos, *columns;
    const float **part;
    struct kern_batch batch;
} b;

static void *numbers(size_t n)
{
    float *p = aligned_alloc(64, (n * sizeof *p + 63) / 64 * 64);

    if (p == NULL) {
        fprintf(stderr, "kernbench: not enough memory\n");
        exit(1);
    }
    for (size_t i = 0; i < n; i++)
        p[i] = (float)(i * 37 % 101) / 101 - 0.5f;
    return p;
}

static struct k3_tensor matrix(enum k3_dtype dtype, int64_t rows, int64_t cols)
{
    return (struct k3_tensor){
        .data = numbers((size_t)(rows * cols)), .dtype = dtype, .rows = rows, .cols = cols, .stride = cols};
}

/* --- one of each: its return is that of the operation ----------------------------------------------------------------
 */

static int run_embed(struct k3_stream *s)
{
    return kern_embed(&(struct embed_args){b.row, &b.table, 0, &b.y}, s);
}

static int run_gather(struct k3_stream *s)
{
    return kern_gather(&(struct gather_args){&b.x, b.row, &b.y}, s);
}

static int run_add(struct k3_stream *s)
{
    return kern_add(&(struct add_args){&b.x, &b.y}, s);
}

static int run_sum(struct k3_stream *s)
{
    struct k3_tensor parts = b.x, y = b.y;

    parts.rows = RANKS;
    parts.cols = parts.stride = (int64_t)b.rows * HIDDEN / RANKS;
    y.rows = 1;
    y.cols = y.stride = parts.cols;
    return kern_sum(&(struct sum_args){&parts, &y}, s);
}

static int run_columns(struct k3_stream *s)
{
    return kern_columns(&(struct columns_args){b.part, b.columns, RANKS, &b.y}, s);
}

static int run_rmsnorm(struct k3_stream *s)
{
    return kern_rmsnorm(&(struct rmsnorm_args){&b.x, &b.norm, &b.y, 1e-5f}, s);
}

static int run_situ(struct k3_stream *s)
{
    return kern_situ(&(struct situ_args){&b.x, &b.x, &b.y, 4, 25}, s);
}

static int run_conv(struct k3_stream *s)
{
    return kern_conv(&(struct conv_args){&b.wide_x, &b.taps, &b.wide_y, b.conv_state, &b.batch}, s);
}

static int run_kda_gate(struct k3_stream *s)
{
    return kern_kda_gate(&(struct kda_gate_args){&b.wide_x, &b.a_log, &b.dt_bias, &b.heads, &b.wide_y, &b.heads, -5},
                         s);
}

static int run_gated_norm(struct k3_stream *s)
{
    return kern_gated_norm(&(struct gated_norm_args){&b.wide_x, &b.wide_x, &b.head_norm, &b.wide_y, 1e-5f}, s);
}

static int run_mla_append(struct k3_stream *s)
{
    return kern_mla_append(&(struct mla_append_args){&b.kv, &b.latent_norm, &b.cache, &b.batch, 1e-6f}, s);
}

static int run_sigmoid_gate(struct k3_stream *s)
{
    return kern_sigmoid_gate(&(struct sigmoid_gate_args){&b.wide_x, &b.wide_x, &b.wide_y}, s);
}

static int run_router(struct k3_stream *s)
{
    return kern_router(&(struct router_args){&b.logits, &b.bias, b.id, b.weight, TOPK, 1, 1, 1, 2.5f}, s);
}

static const struct small {
    const char *name;
    int (*run)(struct k3_stream *s);
    double bytes, fmas; /* a row */
} operations[] = {
    {"embed", run_embed, HIDDEN * 6., 0},
    {"gather", run_gather, HIDDEN * 8., 0},
    {"add", run_add, HIDDEN * 12., 0},
    {"sum of 16", run_sum, HIDDEN *(4. + 4. / RANKS), 0},
    {"columns of 16", run_columns, HIDDEN * 8., 0},
    {"rmsnorm", run_rmsnorm, HIDDEN * 8., HIDDEN},
    {"situ", run_situ, HIDDEN * 12., 0},
    {"conv", run_conv, WIDTH *(8. + 2 * 4 * (K3_TAPS - 1)), WIDTH *(double)K3_TAPS},
    {"kda_gate", run_kda_gate, WIDTH * 8., WIDTH},
    {"gated_norm", run_gated_norm, WIDTH * 12., WIDTH},
    {"mla_append", run_mla_append, K3_CACHE_DIM * 8., K3_LATENT_DIM},
    {"sigmoid_gate", run_sigmoid_gate, WIDTH * 12., 0},
    {"router", run_router, EXPERTS * 4., 0},
};

static void prepare(int rows)
{
    b.rows = rows;
    b.x = matrix(K3_F32, rows > RANKS ? rows : RANKS, HIDDEN);
    b.x.rows = rows;
    b.y = matrix(K3_F32, rows, HIDDEN);
    b.wide_x = matrix(K3_F32, rows, WIDTH);
    b.wide_y = matrix(K3_F32, rows, WIDTH);
    b.heads = matrix(K3_F32, rows, HEADS);
    b.logits = matrix(K3_F32, rows, EXPERTS);
    b.kv = matrix(K3_F32, rows, K3_CACHE_DIM);
    b.table = matrix(K3_BF16, VOCAB, HIDDEN);
    b.norm = matrix(K3_BF16, 1, HIDDEN);
    b.latent_norm = matrix(K3_BF16, 1, K3_LATENT_DIM);
    b.head_norm = matrix(K3_F32, 1, K3_HEAD_DIM);
    b.taps = matrix(K3_F32, WIDTH, K3_TAPS);
    b.a_log = matrix(K3_F32, 1, HEADS);
    b.dt_bias = matrix(K3_F32, 1, WIDTH);
    b.bias = matrix(K3_F32, 1, EXPERTS);
    b.cache = (struct kern_latents){numbers((size_t)rows * PAGE_TOKENS * K3_CACHE_DIM), K3_F32, PAGE_TOKENS};
    b.conv_state = numbers((size_t)SLOTS * (K3_TAPS - 1) * WIDTH);
    b.weight = numbers((size_t)rows * TOPK);
    b.row = numbers((size_t)rows);
    b.id = numbers((size_t)rows * TOPK);
    b.begin = numbers((size_t)rows + 1);
    b.slot = numbers((size_t)rows);
    b.pages = numbers((size_t)rows);
    b.pos = numbers(2 * (size_t)rows);
    b.columns = numbers(2 * (RANKS + 1));
    b.part = numbers(2 * RANKS);
    for (int i = 0; i <= rows; i++)
        b.begin[i] = i;
    for (int i = 0; i < rows; i++) {
        b.row[i] = rows - 1 - i;
        b.slot[i] = b.pages[i] = i;
        b.pos[i] = 1;
    }
    for (int r = 0; r <= RANKS; r++)
        b.columns[r] = (int64_t)r * (HIDDEN / RANKS);
    for (int r = 0; r < RANKS; r++)
        b.part[r] = (const float *)b.x.data + (size_t)r * (size_t)rows * (HIDDEN / RANKS);
    b.batch = (struct kern_batch){
        .rows = rows, .seqs = rows, .begin = b.begin, .slot = b.slot, .pos = b.pos, .pages = b.pages, .page_stride = 1};
}

static void finish(void)
{
    void *all[] = {b.x.data,
                   b.y.data,
                   b.wide_x.data,
                   b.wide_y.data,
                   b.heads.data,
                   b.logits.data,
                   b.kv.data,
                   b.table.data,
                   b.norm.data,
                   b.taps.data,
                   b.latent_norm.data,
                   b.head_norm.data,
                   b.a_log.data,
                   b.bias.data,
                   b.dt_bias.data,
                   b.cache.data,
                   b.conv_state,
                   b.weight,
                   b.row,
                   b.id,
                   b.begin,
                   b.slot,
                   b.pages,
                   b.pos,
                   b.columns,
                   b.part};

    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
}

void small_bench(struct k3_stream *s, int rows, double (*now)(void),
                 void (*report)(const char *what, double seconds, double bytes, double fmas))
{
    prepare(rows);
    for (size_t i = 0; i < sizeof operations / sizeof *operations; i++) {
        const struct small *o = &operations[i];
        double best = 1e9;
        char what[80];
        for (int turn = 0; turn < TURNS; turn++) {
            double t = now();
            if (o->run(s) < 0 || kern_sync(s) < 0) {
                fprintf(stderr, "kernbench: %s: %s\n", o->name, kern_stream_error(s));
                exit(1);
            }
            t = now() - t;
            best = t < best ? t : best;
        }
        snprintf(what, sizeof what, "%s x %d rows", o->name, rows);
        report(what, best, rows * o->bytes, rows * o->fmas);
    }
    finish();
}
