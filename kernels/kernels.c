/* kernels.c - from a call to the backend that does it
 *
 * Every dtype and shape that kernels.h promises is checked here, once for all backends. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/backend.h"

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

struct k3_stream *kern_stream_create(const char *name, int threads)
{
    if (threads < 1) {
        errno = EINVAL;
        return NULL;
    }
    for (size_t i = 0; i < sizeof backends / sizeof *backends; i++)
        if (strcmp(name, backends[i].name) == 0)
            return backends[i].create(threads);
    errno = ENOTSUP;
    return NULL;
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
    if (t->dtype == K3_MXFP4)
        return shaped(t, rows, cols) && cols % K3_MX_BLOCK == 0 && t->stride % K3_MX_BLOCK == 0 &&
               (t->scale != NULL || rows * cols == 0);
    return (t->dtype == K3_F32 || t->dtype == K3_BF16) && shaped(t, rows, cols);
}

static int batch_of(const struct kern_batch *b, int64_t rows)
{
    if (b->rows != rows || b->seqs < 0 || (b->seqs == 0 && rows > 0))
        return 0;
    return b->seqs == 0 || (b->begin[0] == 0 && b->begin[b->seqs] == rows);
}

static int latents(const struct kern_latents *c)
{
    return c->dtype == K3_F32 && c->page_tokens > 0;
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

int kern_linear(const struct linear_args *a, struct k3_stream *s)
{
    REQUIRE(f32(a->x, a->x->rows, a->x->cols) && matrix(a->w, a->w->rows, a->x->cols));
    REQUIRE(f32(a->y, a->x->rows, a->w->rows));
    return s->backend->linear(a, s);
}

int kern_add(const struct add_args *a, struct k3_stream *s)
{
    REQUIRE(f32(a->x, a->x->rows, a->x->cols) && f32(a->y, a->x->rows, a->x->cols));
    return s->backend->add(a, s);
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
    return s->backend->attnres(a, s);
}

int kern_conv(const struct conv_args *a, struct k3_stream *s)
{
    REQUIRE(f32(a->x, a->x->rows, a->x->cols) && f32(a->y, a->x->rows, a->x->cols));
    REQUIRE(f32(a->w, a->x->cols, K3_TAPS) && batch_of(a->batch, a->x->rows));
    return s->backend->conv(a, s);
}

int kern_kda_gate(const struct kda_gate_args *a, struct k3_stream *s)
{
    int64_t rows = a->r->rows, cols = a->r->cols, heads = cols / K3_HEAD_DIM;
    REQUIRE(cols % K3_HEAD_DIM == 0 && f32(a->r, rows, cols) && f32(a->g, rows, cols));
    REQUIRE(a->a_log->cols >= heads && f32(a->a_log, 1, a->a_log->cols) && f32(a->dt_bias, 1, cols));
    REQUIRE(f32(a->b, rows, heads) && f32(a->beta, rows, heads));
    return s->backend->kda_gate(a, s);
}

int kern_kda(const struct kda_args *a, struct k3_stream *s)
{
    int64_t rows = a->q->rows, cols = (int64_t)a->heads * K3_HEAD_DIM;
    REQUIRE(a->heads >= 0 && f32(a->q, rows, cols) && f32(a->k, rows, cols) && f32(a->v, rows, cols));
    REQUIRE(f32(a->g, rows, cols) && f32(a->beta, rows, a->heads) && f32(a->o, rows, cols));
    REQUIRE(batch_of(a->batch, rows));
    return s->backend->kda(a, s);
}

int kern_gated_norm(const struct gated_norm_args *a, struct k3_stream *s)
{
    int64_t rows = a->o->rows, cols = a->o->cols;
    REQUIRE(cols % K3_HEAD_DIM == 0 && f32(a->o, rows, cols) && f32(a->gate, rows, cols) && f32(a->y, rows, cols));
    REQUIRE(f32(a->w, 1, K3_HEAD_DIM));
    return s->backend->gated_norm(a, s);
}

int kern_mla_append(const struct mla_append_args *a, struct k3_stream *s)
{
    REQUIRE(f32(a->kv, a->kv->rows, K3_CACHE_DIM) && vector(a->w, K3_LATENT_DIM));
    REQUIRE(latents(a->cache) && batch_of(a->batch, a->kv->rows));
    return s->backend->mla_append(a, s);
}

int kern_mla_attend(const struct mla_attend_args *a, struct k3_stream *s)
{
    int64_t rows = a->q->rows, heads = a->heads;
    REQUIRE(heads >= 0 && f32(a->q, rows, heads * K3_QK_DIM) && f32(a->o, rows, heads * K3_V_DIM));
    REQUIRE(a->kv_b->dtype == K3_BF16 && shaped(a->kv_b, heads * (K3_NOPE_DIM + K3_V_DIM), K3_LATENT_DIM));
    REQUIRE(latents(a->cache) && batch_of(a->batch, rows));
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
    REQUIRE(a->topk >= 1 && a->topk <= K3_MAX_TOPK && a->beta > 0 && a->linear_beta > 0);
    REQUIRE(expert_matrix(a->w1, inner, width) && expert_matrix(a->w3, inner, width));
    REQUIRE(expert_matrix(a->w2, width, inner) && width % K3_MX_BLOCK == 0 && inner % K3_MX_BLOCK == 0);
    REQUIRE(a->w3->first.dtype == a->w1->first.dtype && a->w2->first.dtype == a->w1->first.dtype);
    return s->backend->experts(a, s);
}
