/* kernels.c - from a call to the backend that does it
 *
 * Every dtype and shape that kernels.h promises is checked here, once for all backends. */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/backend.h"
#include "kernels/host.h"

static const struct {
    const char *name;
    struct k3_stream *(*create)(int threads);
} backends[] = {
    {"ref", ref_stream_create},
    {"cpu", cpu_select_best},
    {"cpu-avx512", cpu_select_avx512},
    {"cpu-avx2", cpu_select_avx2},
    {"cpu-plain", cpu_plain_stream_create},
};

/* "cuda" or "cuda:N" */
static struct k3_stream *create_cuda(const char *name)
{
    int device = 0, end = 0;

    if (name[4] != '\0' && (sscanf(name + 4, ":%d%n", &device, &end) != 1 || name[4 + end] != '\0' || device < 0)) {
        errno = EINVAL;
        return NULL;
    }
#ifdef HAVE_CUDA
    return cuda_stream_create(device);
#else
    errno = ENOTSUP;
    return NULL;
#endif
}

struct k3_stream *kern_stream_create(const char *name, int threads)
{
    if (threads < 1) {
        errno = EINVAL;
        return NULL;
    }
    for (size_t i = 0; i < sizeof backends / sizeof *backends; i++)
        if (strcmp(name, backends[i].name) == 0)
            return backends[i].create(threads);
    if (strncmp(name, "cuda", 4) == 0)
        return create_cuda(name);
    errno = ENOTSUP;
    return NULL;
}

int kern_devices(const char *name)
{
    if (strncmp(name, "cuda", 4) != 0)
        return 1;
#ifdef HAVE_CUDA
    return cuda_devices();
#else
    return 0;
#endif
}

void kern_stream_destroy(struct k3_stream *s)
{
    int saved = errno;
    if (s != NULL)
        s->backend->destroy(s);
    errno = saved;
}

const char *kern_stream_name(const struct k3_stream *s)
{
    return s->backend->name;
}

int kern_sync(struct k3_stream *s)
{
    return s->backend->sync(s);
}

const char *kern_stream_error(const struct k3_stream *s)
{
    return s->backend->memory ? s->backend->memory->error(s) : strerror(errno);
}

void *kern_stream_native(const struct k3_stream *s)
{
    return s->backend->memory ? s->backend->memory->native(s) : NULL;
}

int kern_device_of(const struct k3_stream *s, struct kern_device *d)
{
    memset(d, 0, sizeof *d);
    return s->backend->memory ? s->backend->memory->device(s, d) : 0;
}

/* --- memory and graphs ------------------------------------------------------------------------------------------- */

int kern_is_host(const struct k3_stream *s)
{
    return s->backend->memory == NULL;
}

enum k3_dtype kern_latent_dtype(const struct k3_stream *s)
{
    return s->backend->memory ? s->backend->memory->latents : K3_F32;
}

void *kern_alloc(struct k3_stream *s, size_t bytes)
{
    return s->backend->memory ? s->backend->memory->alloc(s, bytes) : host_alloc(bytes);
}

void kern_free(struct k3_stream *s, void *p, size_t bytes)
{
    int saved = errno;
    if (p != NULL && s->backend->memory)
        s->backend->memory->free(s, p, bytes);
    else if (p != NULL)
        host_free(p, bytes);
    errno = saved;
}

void *kern_alloc_host(struct k3_stream *s, size_t bytes)
{
    return s->backend->memory ? s->backend->memory->alloc_host(s, bytes) : host_alloc(bytes);
}

void kern_free_host(struct k3_stream *s, void *p, size_t bytes)
{
    int saved = errno;
    if (p != NULL && s->backend->memory)
        s->backend->memory->free_host(s, p, bytes);
    else if (p != NULL)
        host_free(p, bytes);
    errno = saved;
}

int kern_copy(struct k3_stream *s, void *to, size_t to_step, const void *from, size_t from_step, size_t bytes,
              size_t rows)
{
    if (bytes == 0 || rows == 0)
        return 0;
    if (s->backend->memory)
        return s->backend->memory->copy(s, to, to_step, from, from_step, bytes, rows);
    host_copy(to, to_step, from, from_step, bytes, rows);
    return 0;
}

int kern_delay(struct k3_stream *s, double microseconds)
{
    if (s->backend->memory)
        return s->backend->memory->delay(s, microseconds);
    host_delay(microseconds);
    return 0;
}

int kern_graph_begin(struct k3_stream *s)
{
    if (s->backend->memory)
        return s->backend->memory->graph_begin(s);
    errno = ENOTSUP;
    return -1;
}

struct kern_graph *kern_graph_end(struct k3_stream *s)
{
    return s->backend->memory->graph_end(s);
}

int kern_graph_run(struct kern_graph *g, struct k3_stream *s)
{
    return s->backend->memory->graph_run(g, s);
}

int kern_graph_operations(const struct kern_graph *g)
{
    return g->memory->graph_operations(g);
}

void kern_graph_destroy(struct kern_graph *g)
{
    int saved = errno;
    if (g != NULL)
        g->memory->graph_destroy(g);
    errno = saved;
}

/* --- checks ------------------------------------------------------------------------------------------------------ */

static int shaped(const struct k3_tensor *t, int64_t rows, int64_t cols)
{
    return t->layout == K3_ROW_MAJOR && t->rows == rows && t->cols == cols && rows >= 0 && cols >= 0 &&
           (t->stride >= cols || rows <= 1);
}

static int f32(const struct k3_tensor *t, int64_t rows, int64_t cols)
{
    return t->dtype == K3_F32 && shaped(t, rows, cols);
}

/* One row of weights, of which `cols` are read. */
static int vector(const struct k3_tensor *t, int64_t cols)
{
    return (t->dtype == K3_F32 || t->dtype == K3_BF16) && shaped(t, 1, cols);
}

static int matrix(const struct k3_tensor *t, int64_t rows, int64_t cols)
{
    int in_blocks = t->dtype == K3_MXFP4 || t->dtype == K3_MXFP8;

    if (!shaped(t, rows, cols))
        return 0;
    if (in_blocks && (cols % K3_MX_BLOCK != 0 || t->stride % K3_MX_BLOCK != 0))
        return 0;
    if (in_blocks || t->dtype == K3_FP8_E4M3)
        return t->scale != NULL || rows * cols == 0;
    return t->dtype == K3_F32 || t->dtype == K3_BF16;
}

static int batch_of(const struct kern_batch *b, int64_t rows)
{
    return b->rows == rows && b->seqs >= 0 && (b->seqs > 0 || rows == 0);
}

static int latents(const struct kern_latents *c, const struct k3_stream *s)
{
    return c->dtype == kern_latent_dtype(s) && c->page_tokens > 0;
}

#define REQUIRE(cond)                                                                                                  \
    do {                                                                                                               \
        if (!(cond)) {                                                                                                 \
            errno = EINVAL;                                                                                            \
            return -1;                                                                                                 \
        }                                                                                                              \
    } while (0)

/* --- operations -------------------------------------------------------------------------------------------------- */

int kern_embed(const struct embed_args *a, struct k3_stream *s)
{
    REQUIRE(a->table->dtype == K3_BF16 && shaped(a->table, a->table->rows, a->y->cols) && a->first >= 0);
    REQUIRE(f32(a->y, a->y->rows, a->y->cols));
    return s->backend->embed(a, s);
}

int kern_gather(const struct gather_args *a, struct k3_stream *s)
{
    REQUIRE(f32(a->x, a->x->rows, a->x->cols) && f32(a->y, a->y->rows, a->x->cols));
    return s->backend->gather(a, s);
}

static int product(const struct linear_args *a)
{
    return f32(a->x, a->x->rows, a->x->cols) && matrix(a->w, a->w->rows, a->x->cols) &&
           f32(a->y, a->x->rows, a->w->rows);
}

int kern_linear(const struct linear_args *a, struct k3_stream *s)
{
    REQUIRE(product(a));
    return s->backend->linear(a, s);
}

int kern_linears(const struct linears_args *a, struct k3_stream *s)
{
    REQUIRE(a->count >= 0 && a->count <= K3_MAX_LINEARS);
    for (int i = 0; i < a->count; i++)
        REQUIRE(product(&a->product[i]));
    if (s->backend->linears)
        return s->backend->linears(a, s);
    for (int i = 0; i < a->count; i++)
        if (s->backend->linear(&a->product[i], s) < 0)
            return -1;
    return 0;
}

int kern_add(const struct add_args *a, struct k3_stream *s)
{
    REQUIRE(f32(a->x, a->x->rows, a->x->cols) && f32(a->y, a->x->rows, a->x->cols));
    return s->backend->add(a, s);
}

int kern_sum(const struct sum_args *a, struct k3_stream *s)
{
    REQUIRE(a->x->rows >= 1 && f32(a->x, a->x->rows, a->x->cols) && f32(a->y, 1, a->x->cols));
    return s->backend->sum(a, s);
}

static int columns_are_sound(const struct columns_args *a)
{
    if (a->parts < 1 || a->parts > K3_MAX_PARTS || a->begin[0] != 0 || a->begin[a->parts] != a->y->cols)
        return 0;
    for (int32_t p = 0; p < a->parts; p++)
        if (a->begin[p + 1] < a->begin[p])
            return 0;
    return 1;
}

int kern_columns(const struct columns_args *a, struct k3_stream *s)
{
    REQUIRE(f32(a->y, a->y->rows, a->y->cols) && columns_are_sound(a));
    return s->backend->columns(a, s);
}

int kern_rmsnorm(const struct rmsnorm_args *a, struct k3_stream *s)
{
    REQUIRE(f32(a->x, a->x->rows, a->x->cols) && vector(a->w, a->x->cols) && f32(a->y, a->x->rows, a->x->cols));
    return s->backend->rmsnorm(a, s);
}

int kern_situ(const struct situ_args *a, struct k3_stream *s)
{
    REQUIRE(f32(a->gate, a->gate->rows, a->gate->cols) && f32(a->up, a->gate->rows, a->gate->cols));
    REQUIRE(f32(a->y, a->gate->rows, a->gate->cols) && a->beta > 0 && a->linear_beta > 0);
    return s->backend->situ(a, s);
}

int kern_attnres(const struct attnres_args *a, struct k3_stream *s)
{
    int64_t rows = a->p->rows, cols = a->p->cols;
    REQUIRE(a->snapshots >= 0 && a->snapshots <= K3_MAX_SNAPSHOTS && f32(a->p, rows, cols) && f32(a->y, rows, cols));
    for (int i = 0; i < a->snapshots; i++)
        REQUIRE(f32(&a->snapshot[i], rows, cols));
    REQUIRE(a->snapshots == 0 || (vector(a->norm, cols) && vector(a->proj, cols)));
    REQUIRE(a->out == NULL || vector(a->out, cols));
    REQUIRE(a->branch == NULL || f32(a->branch, rows, cols));
    return s->backend->attnres(a, s);
}

static int check_conv(const struct conv_args *a)
{
    REQUIRE(f32(a->x, a->x->rows, a->x->cols) && f32(a->y, a->x->rows, a->x->cols));
    REQUIRE(f32(a->w, a->x->cols, K3_TAPS) && batch_of(a->batch, a->x->rows));
    return 0;
}

int kern_conv(const struct conv_args *a, struct k3_stream *s)
{
    return check_conv(a) < 0 ? -1 : s->backend->conv(a, s);
}

static int check_kda_gate(const struct kda_gate_args *a)
{
    int64_t rows = a->r->rows, cols = a->r->cols, heads = cols / K3_HEAD_DIM;
    REQUIRE(cols % K3_HEAD_DIM == 0 && f32(a->r, rows, cols) && f32(a->g, rows, cols));
    REQUIRE(a->a_log->cols >= heads && f32(a->a_log, 1, a->a_log->cols) && f32(a->dt_bias, 1, cols));
    REQUIRE(f32(a->b, rows, heads) && f32(a->beta, rows, heads));
    return 0;
}

int kern_kda_gate(const struct kda_gate_args *a, struct k3_stream *s)
{
    return check_kda_gate(a) < 0 ? -1 : s->backend->kda_gate(a, s);
}

static int check_kda(const struct kda_args *a)
{
    int64_t rows = a->q->rows, cols = (int64_t)a->heads * K3_HEAD_DIM;
    REQUIRE(a->heads >= 0 && f32(a->q, rows, cols) && f32(a->k, rows, cols) && f32(a->v, rows, cols));
    REQUIRE(f32(a->g, rows, cols) && f32(a->beta, rows, a->heads) && f32(a->o, rows, cols));
    REQUIRE(batch_of(a->batch, rows));
    return 0;
}

int kern_kda(const struct kda_args *a, struct k3_stream *s)
{
    return check_kda(a) < 0 ? -1 : s->backend->kda(a, s);
}

static int check_gated_norm(const struct gated_norm_args *a)
{
    int64_t rows = a->o->rows, cols = a->o->cols;
    REQUIRE(cols % K3_HEAD_DIM == 0 && f32(a->o, rows, cols) && f32(a->gate, rows, cols) && f32(a->y, rows, cols));
    REQUIRE(f32(a->w, 1, K3_HEAD_DIM));
    return 0;
}

int kern_gated_norm(const struct gated_norm_args *a, struct k3_stream *s)
{
    return check_gated_norm(a) < 0 ? -1 : s->backend->gated_norm(a, s);
}

int kern_kda_block(const struct kda_block_args *a, struct k3_stream *s)
{
    const struct kern_backend *b = s->backend;

    REQUIRE(product(&a->decay));
    if (check_conv(&a->q) < 0 || check_conv(&a->k) < 0 || check_conv(&a->v) < 0 || check_kda_gate(&a->gate) < 0 ||
        check_kda(&a->delta) < 0 || check_gated_norm(&a->norm) < 0)
        return -1;
    if (b->kda_block)
        return b->kda_block(a, s);
    if (b->linear(&a->decay, s) < 0 || b->conv(&a->q, s) < 0 || b->conv(&a->k, s) < 0 || b->conv(&a->v, s) < 0 ||
        b->kda_gate(&a->gate, s) < 0)
        return -1;
    return b->kda(&a->delta, s) < 0 ? -1 : b->gated_norm(&a->norm, s);
}

int kern_mla_append(const struct mla_append_args *a, struct k3_stream *s)
{
    REQUIRE(f32(a->kv, a->kv->rows, K3_CACHE_DIM) && vector(a->w, K3_LATENT_DIM));
    REQUIRE(latents(a->cache, s) && batch_of(a->batch, a->kv->rows));
    return s->backend->mla_append(a, s);
}

int kern_mla_attend(const struct mla_attend_args *a, struct k3_stream *s)
{
    int64_t rows = a->q->rows, heads = a->heads;
    REQUIRE(heads >= 0 && f32(a->q, rows, heads * K3_QK_DIM) && f32(a->o, rows, heads * K3_V_DIM));
    REQUIRE(a->kv_b->dtype == K3_BF16 && shaped(a->kv_b, heads * (K3_NOPE_DIM + K3_V_DIM), K3_LATENT_DIM));
    REQUIRE(latents(a->cache, s) && batch_of(a->batch, rows));
    return s->backend->mla_attend(a, s);
}

int kern_sigmoid_gate(const struct sigmoid_gate_args *a, struct k3_stream *s)
{
    REQUIRE(f32(a->o, a->o->rows, a->o->cols) && f32(a->gate, a->o->rows, a->o->cols));
    REQUIRE(f32(a->y, a->o->rows, a->o->cols));
    return s->backend->sigmoid_gate(a, s);
}

int kern_router(const struct router_args *a, struct k3_stream *s)
{
    int64_t experts = a->logits->cols;
    REQUIRE(f32(a->logits, a->logits->rows, experts) && f32(a->bias, 1, experts));
    REQUIRE(a->topk >= 1 && a->topk <= K3_MAX_TOPK && a->groups >= 1 && experts % a->groups == 0);
    REQUIRE(a->topk_group >= 1 && a->topk_group <= a->groups);
    REQUIRE(a->topk <= experts / a->groups * (a->groups > 1 ? a->topk_group : 1));
    return s->backend->router(a, s);
}

static int expert_matrix(const struct kern_expert_matrix *m, int64_t out, int64_t in)
{
    return (m->first.dtype == K3_MXFP4 || m->first.dtype == K3_BF16) && matrix(&m->first, out, in) &&
           m->data_step >= 0 && m->scale_step >= 0;
}

int kern_experts(const struct experts_args *a, struct k3_stream *s)
{
    int64_t width = a->z->cols, inner = a->w1->first.rows;
    REQUIRE(f32(a->z, a->z->rows, width) && f32(a->y, a->z->rows, width) && a->experts >= 1);
    REQUIRE(a->first >= 0 && a->held >= 1 && a->held <= a->experts - a->first);
    REQUIRE(a->topk >= 1 && a->topk <= K3_MAX_TOPK && a->beta > 0 && a->linear_beta > 0);
    REQUIRE(expert_matrix(a->w1, inner, width) && expert_matrix(a->w3, inner, width));
    REQUIRE(expert_matrix(a->w2, width, inner) && width % K3_MX_BLOCK == 0 && inner % K3_MX_BLOCK == 0);
    REQUIRE(a->w3->first.dtype == a->w1->first.dtype && a->w2->first.dtype == a->w1->first.dtype);
    return s->backend->experts(a, s);
}

int kern_latent_tail(const struct latent_tail_args *a, struct k3_stream *s)
{
    const struct kern_backend *b = s->backend;

    REQUIRE(a->norm.w == NULL || (f32(a->norm.x, a->norm.x->rows, a->norm.x->cols) && a->norm.y == a->norm.x &&
                                  vector(a->norm.w, a->norm.x->cols)));
    REQUIRE(product(&a->up) && product(&a->down) && a->down.accumulate && a->down.y == a->up.y);
    REQUIRE(f32(a->situ.gate, a->up.x->rows, a->down.x->cols) && f32(a->situ.up, a->up.x->rows, a->down.x->cols));
    REQUIRE(a->situ.y == a->down.x && a->situ.beta > 0 && a->situ.linear_beta > 0);
    if (b->latent_tail)
        return b->latent_tail(a, s);
    if ((a->norm.w != NULL && b->rmsnorm(&a->norm, s) < 0) || b->linear(&a->up, s) < 0)
        return -1;
    return b->situ(&a->situ, s) < 0 ? -1 : b->linear(&a->down, s);
}
