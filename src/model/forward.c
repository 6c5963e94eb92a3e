#include "model/forward_private.h"

#include <errno.h>
#include <math.h>

/* The norms of the two low-rank inputs of MLA keep the default of the class that the published code builds them from,
 * not rms_norm_eps (SPEC 4.1). */
static const float low_rank_eps = 1e-6f;

void forward_trace(struct forward *f, forward_trace_f *trace, void *arg)
{
    if (trace && !kern_is_host(f->s) && !f->trace_host)
        f->trace_host = kern_alloc_host(f->s, forward_trace_bytes(f));
    f->trace = trace;
    f->trace_arg = arg;
}

/* --- one operation each, with its sentence when it fails -----------------------------------------------------------
 */

/* rc of a kernel: 0, or -1 with the sentence of what the backend could not do. */
static int did(struct forward *f, const char *operation, int rc)
{
    if (rc < 0)
        k3_errorf(f->err, "backend %s: %s: %s", kern_stream_name(f->s), operation, kern_stream_error(f->s));
    return rc;
}

/* This rank's share of a weight of layer l (-1: of none). */
static const struct k3_tensor *weight(const struct forward *f, enum tensor_role role, int l)
{
    return weights_get(f->w, role, l);
}

/* y = W x */
static int linear(struct forward *f, enum tensor_role role, int l, const struct k3_tensor *x, const struct k3_tensor *y)
{
    struct linear_args a = {.x = x, .w = weight(f, role, l), .y = y};
    return did(f, "linear", kern_linear(&a, f->s));
}

/* y = W x of several weights */
struct product {
    enum tensor_role role;
    const struct k3_tensor *x, *y;
};
static int linears(struct forward *f, int l, const struct product *product, int count)
{
    struct linear_args a[K3_MAX_LINEARS];

    for (int i = 0; i < count; i++)
        a[i] = (struct linear_args){.x = product[i].x, .w = weight(f, product[i].role, l), .y = product[i].y};
    return did(f, "linears", kern_linears(&(struct linears_args){a, count}, f->s));
}

/* y = 0: the sum over no columns at all. */
static int zero(struct forward *f, const struct k3_tensor *y)
{
    struct k3_tensor x = {.dtype = K3_F32, .rows = y->rows}, w = {.dtype = K3_BF16, .rows = y->cols};
    struct linear_args a = {.x = &x, .w = &w, .y = y};
    return did(f, "linear", kern_linear(&a, f->s));
}

/* x = RMS(x; w) */
static int rmsnorm(struct forward *f, enum tensor_role role, int l, const struct k3_tensor *x, float eps)
{
    struct rmsnorm_args a = {.x = x, .w = weight(f, role, l), .y = x, .eps = eps};
    return did(f, "rmsnorm", kern_rmsnorm(&a, f->s));
}

/* gate = SiTU(gate, up) */
static int situ(struct forward *f, const struct k3_tensor *gate, const struct k3_tensor *up)
{
    struct situ_args a = {
        .gate = gate, .up = up, .y = gate, .beta = f->c->situ_beta, .linear_beta = f->c->situ_linear_beta};
    return did(f, "situ", kern_situ(&a, f->s));
}

/* x = the sum of all ranks' x */
static int all_reduce(struct forward *f, const struct k3_tensor *x)
{
    if (comm_size(f->comm) == 1)
        return 0;
    return comm_allreduce(f->comm, f->s, x->data, (size_t)(x->rows * x->cols), f->err);
}

/* Every rank's columns side by side, of matrices of so many rows. */
static int all_gather(struct forward *f, const struct comm_columns *matrix, int matrices, int64_t rows)
{
    if (comm_size(f->comm) == 1)
        return 0;
    return comm_allgather_columns(f->comm, f->s, matrix, matrices, rows, f->err);
}

/* --- the model (SPEC 4) --------------------------------------------------------------------------------------------
 */

/* The running residual. */
static const struct k3_tensor *running(const struct forward *f)
{
    return &f->stream[f->snapshots];
}

/* x = RMS(mix(p, R; res_norm, res_proj); norm) */
static int mix_residuals(struct forward *f, enum tensor_role res_norm, enum tensor_role res_proj, enum tensor_role norm,
                         int l)
{
    struct attnres_args a = {
        .p = running(f),
        .snapshot = f->stream,
        .snapshots = f->snapshots,
        .norm = weight(f, res_norm, l),
        .proj = weight(f, res_proj, l),
        .y = &f->act.x,
        .eps = f->c->rms_eps,
        .out = weight(f, norm, l),
        .branch = f->branch_waits ? &f->act.branch : NULL,
    };

    f->branch_waits = 0;
    return did(f, "attnres", kern_attnres(&a, f->s));
}

/* p = p + branch, which else the next mix does. */
static int add_branch(struct forward *f)
{
    struct add_args a = {.x = &f->act.branch, .y = running(f)};

    if (!f->branch_waits)
        return 0;
    f->branch_waits = 0;
    return did(f, "add", kern_add(&a, f->s));
}

static struct conv_args conv(const struct forward *f, enum tensor_role role, int l, const struct k3_tensor *x,
                             const struct k3_tensor *y, void *state)
{
    return (struct conv_args){.x = x, .w = weight(f, role, l), .y = y, .state = state, .batch = f->batch};
}

/* Short convolutions, gates, delta rule and norm: o_kda. */
static int kda_block(struct forward *f, int l)
{
    struct activations *t = &f->act;
    struct layer_state *st = &f->state[l];
    struct kda_block_args a = {
        .decay = {.x = &t->low, .w = weight(f, T_KDA_F_B, l), .y = &t->decay},
        .q = conv(f, T_KDA_Q_CONV, l, &t->q_in, &t->q, st->q_conv),
        .k = conv(f, T_KDA_K_CONV, l, &t->k_in, &t->k, st->k_conv),
        .v = conv(f, T_KDA_V_CONV, l, &t->v_in, &t->v, st->v_conv),
        .gate = {.r = &t->decay,
                 .a_log = weight(f, T_KDA_A_LOG, l),
                 .dt_bias = weight(f, T_KDA_DT_BIAS, l),
                 .b = &t->beta,
                 .g = &t->decay,
                 .beta = &t->beta,
                 .lower_bound = f->c->gate_lower_bound},
        .delta = {.q = &t->q,
                  .k = &t->k,
                  .v = &t->v,
                  .g = &t->decay,
                  .beta = &t->beta,
                  .o = &t->o_kda,
                  .state = st->kda,
                  .heads = f->kda_heads,
                  .batch = f->batch},
        .norm = {.o = &t->o_kda,
                 .gate = &t->gate_kda,
                 .w = weight(f, T_KDA_O_NORM, l),
                 .y = &t->o_kda,
                 .eps = f->c->rms_eps},
    };

    return did(f, "kda_block", kern_kda_block(&a, f->s));
}

/* SPEC 4.4, on this rank's heads */
static int kda_heads(struct forward *f, int l)
{
    struct activations *t = &f->act;
    const struct product product[] = {
        {T_KDA_Q, &t->x, &t->q_in},  {T_KDA_K, &t->x, &t->k_in}, {T_KDA_V, &t->x, &t->v_in},
        {T_KDA_F_A, &t->x, &t->low}, {T_KDA_B, &t->x, &t->beta}, {T_KDA_G, &t->x, &t->gate_kda},
    };

    return linears(f, l, product, sizeof product / sizeof *product) < 0 ? -1 : kda_block(f, l);
}

static int latent_append(struct forward *f, int l)
{
    struct mla_append_args a = {.kv = &f->act.kv,
                                .w = weight(f, T_MLA_KV_A_NORM, l),
                                .cache = &f->state[l].latents,
                                .batch = f->batch,
                                .eps = low_rank_eps};

    return did(f, "mla_append", kern_mla_append(&a, f->s));
}

static int latent_attend(struct forward *f, int l)
{
    struct mla_attend_args a = {
        .q = &f->act.mla_q,
        .kv_b = weight(f, T_MLA_KV_B, l),
        .o = &f->act.o_mla,
        .cache = &f->state[l].latents,
        .batch = f->batch,
        .heads = f->mla_heads,
        .scale = 1.0f / sqrtf(K3_QK_DIM),
    };

    return did(f, "mla_attend", kern_mla_attend(&a, f->s));
}

static int sigmoid_gate(struct forward *f)
{
    struct activations *t = &f->act;
    struct sigmoid_gate_args a = {.o = &t->o_mla, .gate = &t->gate_mla, .y = &t->o_mla};

    return did(f, "sigmoid_gate", kern_sigmoid_gate(&a, f->s));
}

/* SPEC 4.5, on this rank's heads */
static int mla_heads(struct forward *f, int l)
{
    struct activations *t = &f->act;
    const struct product product[] = {
        {T_MLA_Q_A, &t->x, &t->q_low}, {T_MLA_KV_A, &t->x, &t->kv}, {T_MLA_G, &t->x, &t->gate_mla}};

    if (linears(f, l, product, sizeof product / sizeof *product) < 0 ||
        rmsnorm(f, T_MLA_Q_A_NORM, l, &t->q_low, low_rank_eps) < 0 || linear(f, T_MLA_Q_B, l, &t->q_low, &t->mla_q) < 0)
        return -1;
    if (latent_append(f, l) < 0 || latent_attend(f, l) < 0)
        return -1;
    return sigmoid_gate(f);
}

/* y = Attn_l(x): the heads of all ranks.  A rank without heads adds nothing. */
static int attend(struct forward *f, int l, const struct k3_tensor *y)
{
    struct activations *t = &f->act;

    if (f->c->attention[l] == K3_KDA) {
        if ((f->kda_heads > 0 && kda_heads(f, l) < 0) || linear(f, T_KDA_O, l, &t->o_kda, y) < 0)
            return -1;
    } else {
        if ((f->mla_heads > 0 && mla_heads(f, l) < 0) || linear(f, T_MLA_O, l, &t->o_mla, y) < 0)
            return -1;
    }
    return all_reduce(f, y);
}

static int route(struct forward *f, int l)
{
    const struct k3_config *c = f->c;
    struct router_args a = {
        .logits = &f->act.router,
        .bias = weight(f, T_ROUTER_BIAS, l),
        .id = f->expert,
        .weight = f->expert_weight,
        .topk = c->topk,
        .groups = c->groups,
        .topk_group = c->topk_group,
        .renormalize = c->renormalize,
        .scaling = c->routed_scaling,
    };

    return did(f, "router", kern_router(&a, f->s));
}

static int sum_experts(struct forward *f, int l)
{
    struct experts_args a = {
        .z = &f->act.z,
        .id = f->expert,
        .weight = f->expert_weight,
        .topk = f->c->topk,
        .experts = f->c->experts,
        .first = (int32_t)f->experts.begin,
        .held = (int32_t)(f->experts.end - f->experts.begin),
        .w1 = weights_experts(f->w, T_W1, l),
        .w3 = weights_experts(f->w, T_W3, l),
        .w2 = weights_experts(f->w, T_W2, l),
        .y = &f->act.sum,
        .beta = f->c->situ_beta,
        .linear_beta = f->c->situ_linear_beta,
    };

    return f->inner > 0 ? did(f, "experts", kern_experts(&a, f->s)) : zero(f, &f->act.sum);
}

/* This rank's columns of the latent sum S. */
static struct k3_tensor my_latent(const struct forward *f)
{
    struct k3_tensor mine = f->act.sum;

    mine.data = (float *)mine.data + f->latent_begin[f->sh->rank];
    mine.cols = f->act.z_mine.cols;
    return mine;
}

/* y = MLP(x), layers before first_k_dense_replace */
static int run_dense(struct forward *f, int l, const struct k3_tensor *y)
{
    struct activations *t = &f->act;
    const struct product product[] = {{T_MLP_GATE, &t->x, &t->dense_gate}, {T_MLP_UP, &t->x, &t->dense_up}};

    if (linears(f, l, product, 2) < 0 || situ(f, &t->dense_gate, &t->dense_up) < 0 ||
        linear(f, T_MLP_DOWN, l, &t->dense_gate, y) < 0)
        return -1;
    return all_reduce(f, y);
}

static int latent_tail(struct forward *f, int l, const struct k3_tensor *y)
{
    struct activations *t = &f->act;
    struct k3_tensor mine = my_latent(f);
    struct latent_tail_args a = {
        .norm = {.x = &t->sum,
                 .w = f->c->latent_norm ? weight(f, T_LATENT_NORM, l) : NULL,
                 .y = &t->sum,
                 .eps = f->c->rms_eps},
        .up = {.x = &mine, .w = weight(f, T_LATENT_UP, l), .y = y},
        .situ = {.gate = &t->shared_gate,
                 .up = &t->shared_up,
                 .y = &t->shared_gate,
                 .beta = f->c->situ_beta,
                 .linear_beta = f->c->situ_linear_beta},
        .down = {.x = &t->shared_gate, .w = weight(f, T_SHARED_DOWN, l), .y = y, .accumulate = 1},
    };

    return did(f, "latent_tail", kern_latent_tail(&a, f->s));
}

/* y = Wup RMS(sum of the chosen experts, which live in the latent) + MLP_shared(x) (SPEC 4.6) */
static int run_experts(struct forward *f, int l, const struct k3_tensor *y)
{
    struct activations *t = &f->act;
    const struct product product[] = {{T_ROUTER, &t->x, &t->router_mine},
                                      {T_LATENT_DOWN, &t->x, &t->z_mine},
                                      {T_SHARED_GATE, &t->x, &t->shared_gate},
                                      {T_SHARED_UP, &t->x, &t->shared_up}};
    const struct comm_columns columns[] = {{t->router_mine.data, t->router.data, f->router_begin},
                                           {t->z_mine.data, t->z.data, f->latent_begin}};

    if (linears(f, l, product, sizeof product / sizeof *product) < 0 || all_gather(f, columns, 2, t->x.rows) < 0)
        return -1;
    if (route(f, l) < 0 || sum_experts(f, l) < 0 || all_reduce(f, &t->sum) < 0 || latent_tail(f, l, y) < 0)
        return -1;
    return all_reduce(f, y);
}

/* At the start of a block p joins the snapshots, and the attention's output starts the new p. */
static int attention_sublayer(struct forward *f, int l)
{
    if (mix_residuals(f, T_ATTN_RES_NORM, T_ATTN_RES_PROJ, T_INPUT_NORM, l) < 0)
        return -1;
    if (l % f->c->res_block == 0) {
        f->snapshots++;
        return attend(f, l, running(f));
    }
    f->branch_waits = 1;
    return attend(f, l, &f->act.branch);
}

static int ffn_sublayer(struct forward *f, int l)
{
    if (mix_residuals(f, T_MLP_RES_NORM, T_MLP_RES_PROJ, T_POST_ATTN_NORM, l) < 0)
        return -1;
    f->branch_waits = 1;
    return k3_config_is_moe(f->c, l) ? run_experts(f, l, &f->act.branch) : run_dense(f, l, &f->act.branch);
}

/* p = E[token] (SPEC 4.2): each rank knows a part of the vocabulary and has zeros for the rest. */
static int embed(struct forward *f)
{
    struct embed_args a = {
        .token = f->token,
        .table = weight(f, T_EMBED, -1),
        .first = (int32_t)f->vocab_begin[f->sh->rank],
        .y = running(f),
    };

    return did(f, "embed", kern_embed(&a, f->s)) < 0 ? -1 : all_reduce(f, running(f));
}

/* logits = Wlm RMS(mix(p, R); norm) of the rows that are asked for (SPEC 4.7) */
static int head(struct forward *f)
{
    struct gather_args a = {.x = &f->act.x, .row = f->output, .y = &f->head_in};
    const struct comm_columns columns = {f->head_out.data, f->logits.data, f->vocab_begin};

    if (mix_residuals(f, T_OUT_RES_NORM, T_OUT_RES_PROJ, T_NORM, -1) < 0 ||
        did(f, "gather", kern_gather(&a, f->s)) < 0 || linear(f, T_LM_HEAD, -1, &f->head_in, &f->head_out) < 0)
        return -1;
    return all_gather(f, &columns, 1, f->logits.rows);
}

static int trace_layer(struct forward *f, int l)
{
    struct k3_tensor p = *running(f);
    size_t bytes = (size_t)(p.rows * p.cols) * sizeof(float);

    if (add_branch(f) < 0)
        return -1;
    if (!kern_is_host(f->s)) {
        if (!f->trace_host || kern_copy(f->s, f->trace_host, bytes, p.data, bytes, bytes, 1) < 0)
            return k3_errorf(f->err, "no copy of layer %d's residual: %s", l, kern_stream_error(f->s));
        p.data = f->trace_host;
    }
    if (did(f, "sync", kern_sync(f->s)) < 0)
        return -1;
    if (f->trace(l, &p, f->trace_arg) && !kern_is_host(f->s))
        return did(f, "copy", kern_copy(f->s, running(f)->data, bytes, f->trace_host, bytes, bytes, 1));
    return 0;
}

/* The running sum and all snapshots. */
static int send_stream(struct forward *f)
{
    const float *part[K3_MAX_SNAPSHOTS + 1];
    const struct k3_tensor *p = running(f);

    for (int i = 0; i <= f->snapshots; i++)
        part[i] = f->stream[i].data;
    return comm_send(f->pipeline, f->s, part, f->snapshots + 1, (size_t)(p->rows * p->cols), f->sh->stage + 1, f->err);
}

static int receive_stream(struct forward *f)
{
    float *part[K3_MAX_SNAPSHOTS + 1];
    const struct k3_tensor *p = running(f);

    for (int i = 0; i <= f->snapshots; i++)
        part[i] = f->stream[i].data;
    return comm_receive(f->pipeline, f->s, part, f->snapshots + 1, (size_t)(p->rows * p->cols), f->sh->stage - 1,
                        f->err);
}

/* From the last stage to the first rank, which samples. */
static int return_logits(struct forward *f)
{
    float *logits = f->logits.data;
    size_t count = (size_t)(f->logits.rows * f->logits.cols);

    if (!f->pipeline || f->sh->rank != 0)
        return 0;
    if (shard_is_last(f->sh))
        return comm_send(f->pipeline, f->s, &(const float *){logits}, 1, count, 0, f->err);
    return f->sh->stage == 0 ? comm_receive(f->pipeline, f->s, &logits, 1, count, f->sh->pp - 1, f->err) : 0;
}

/* What a stage begins with. */
static int enter(struct forward *f)
{
    f->snapshots = forward_snapshots(f->c, f->layers.begin);
    f->branch_waits = 0;
    return f->sh->stage == 0 ? embed(f) : receive_stream(f);
}

/* ... and ends with. */
static int leave(struct forward *f)
{
    int last = shard_is_last(f->sh);

    if (!last && (add_branch(f) < 0 || send_stream(f) < 0))
        return -1;
    if (f->logits.rows == 0)
        return 0;
    return last && head(f) < 0 ? -1 : return_logits(f);
}

/* Queue the whole of a step. */
static int run_layers(struct forward *f)
{
    if (enter(f) < 0)
        return -1;
    for (int l = (int)f->layers.begin; l < f->layers.end; l++)
        if (attention_sublayer(f, l) < 0 || ffn_sublayer(f, l) < 0 || (f->trace && trace_layer(f, l) < 0))
            return -1;
    return leave(f);
}

/* --- checkpoints ---------------------------------------------------------------------------------------------------
 */

/* to[to_place] = from[from_place], `floats` each */
static int copy_floats(struct forward *f, const void *from, int32_t from_place, void *to, int32_t to_place,
                       int64_t floats)
{
    size_t bytes = (size_t)floats * sizeof(float);

    return did(f, "copy",
               kern_copy(f->s, (char *)to + (size_t)to_place * bytes, bytes,
                         (const char *)from + (size_t)from_place * bytes, bytes, bytes, 1));
}

static int copy_kda(struct forward *f, const struct layer_state *from, int32_t from_place, const struct layer_state *to,
                    int32_t to_place)
{
    int64_t conv = (int64_t)(K3_TAPS - 1) * f->kda_heads * K3_HEAD_DIM;
    int64_t kda = (int64_t)f->kda_heads * K3_HEAD_DIM * K3_HEAD_DIM;

    if (copy_floats(f, from->q_conv, from_place, to->q_conv, to_place, conv) < 0 ||
        copy_floats(f, from->k_conv, from_place, to->k_conv, to_place, conv) < 0 ||
        copy_floats(f, from->v_conv, from_place, to->v_conv, to_place, conv) < 0 ||
        copy_floats(f, from->kda, from_place, to->kda, to_place, kda) < 0)
        return -1;
    return 0;
}

static int copy_page(struct forward *f, const struct kern_latents *l, int32_t from, int32_t to)
{
    size_t bytes = (size_t)l->page_tokens * K3_CACHE_DIM * forward_latent_bytes(l->dtype);
    char *data = l->data;

    return did(f, "copy",
               kern_copy(f->s, data + (size_t)to * bytes, bytes, data + (size_t)from * bytes, bytes, bytes, 1));
}

static int copy_state(struct forward *f, const struct forward_copy *c)
{
    for (int64_t l = f->layers.begin; l < f->layers.end; l++) {
        const struct layer_state *from = c->kind == FORWARD_LOAD ? &f->kept[l] : &f->state[l];
        const struct layer_state *to = c->kind == FORWARD_SAVE ? &f->kept[l] : &f->state[l];
        if (f->c->attention[l] == K3_KDA) {
            if (f->kda_heads > 0 && copy_kda(f, from, c->from, to, c->to) < 0)
                return -1;
        } else if (c->kind == FORWARD_FORK && c->to_page >= 0) {
            if (copy_page(f, &to->latents, c->from_page, c->to_page) < 0)
                return -1;
        }
    }
    return 0;
}

static int copy_states(struct forward *f, const struct forward_step *step)
{
    for (int i = 0; i < step->copies; i++)
        if (copy_state(f, &step->copy[i]) < 0)
            return -1;
    return 0;
}

/* --- graphs ----------------------------------------------------------------------------------------------------------
 */

/* A step of one row of an answer a sequence, with logits for each: the same operations on the same places, however long
 * the sequences are. */
static int is_repeated(const struct forward *f)
{
    const struct kern_batch *b = f->batch;

    return !kern_is_host(f->s) && !f->trace && !b->prefill && b->rows == b->seqs && b->rows == f->logits.rows &&
           b->rows <= GRAPHS;
}

static int record(struct forward *f)
{
    struct kern_graph **g = &f->graph[f->batch->rows];

    if (did(f, "graph", kern_graph_begin(f->s)) < 0)
        return -1;
    int rc = run_layers(f);
    *g = kern_graph_end(f->s); /* in any case: the stream must not stay in recording */
    return rc < 0 ? -1 : did(f, "graph", *g ? 0 : -1);
}

int forward_operations(const struct forward *f, int32_t rows)
{
    return rows >= 0 && rows <= GRAPHS && f->graph[rows] ? kern_graph_operations(f->graph[rows]) : 0;
}

void forward_forget_graphs(struct forward *f)
{
    for (int i = 0; i <= GRAPHS; i++) {
        kern_graph_destroy(f->graph[i]);
        f->graph[i] = NULL;
    }
}

static int run_graph(struct forward *f)
{
    struct kern_graph **g = &f->graph[f->batch->rows];

    if (!*g && record(f) < 0)
        return -1;
    return did(f, "graph", kern_graph_run(*g, f->s));
}

/* --- a step ----------------------------------------------------------------------------------------------------------
 */

static int check_sequence(const struct forward *f, const struct kern_batch *b, int i)
{
    int64_t end = b->pos[i] + b->begin[i + 1] - b->begin[i], pages = (end + f->limits.page_tokens - 1);

    pages /= f->limits.page_tokens;
    if (b->begin[i] >= b->begin[i + 1] || b->slot[i] < 0 || b->slot[i] >= f->limits.slots || b->pos[i] < 0 ||
        pages > b->page_stride || pages > f->limits.slot_pages)
        return -1;
    for (int64_t n = 0; n < pages; n++) {
        int32_t page = b->pages[(int64_t)i * b->page_stride + n];
        if (page < 0 || page >= f->limits.pages)
            return -1;
    }
    return 0;
}

/* Whether sequence i may run as a part of its prompt (struct kern_batch). */
static int prefill_is_sound(const struct kern_batch *b, int i)
{
    int64_t prompt = b->prefill ? b->prefill[i] : 0, end = b->pos[i] + b->begin[i + 1] - b->begin[i];

    return prompt == 0 ||
           (b->pos[i] % K3_PREFILL_BLOCK == 0 && end <= prompt && (end % K3_PREFILL_BLOCK == 0 || end == prompt));
}

static int is_below(int32_t n, int32_t end)
{
    return n >= 0 && n < end;
}

static int copy_is_sound(const struct forward *f, const struct forward_copy *c)
{
    const struct forward_limits *l = &f->limits;

    if (c->kind < FORWARD_SAVE || c->kind > FORWARD_FORK ||
        !is_below(c->from, c->kind == FORWARD_LOAD ? l->checkpoints : l->slots) ||
        !is_below(c->to, c->kind == FORWARD_SAVE ? l->checkpoints : l->slots))
        return 0;
    return c->kind != FORWARD_FORK || c->to_page == -1 ||
           (is_below(c->from_page, l->pages) && is_below(c->to_page, l->pages));
}

/* A plan that came from another rank must not reach past this rank's memory. */
static int check_step(const struct forward *f, const struct forward_step *step, struct k3_error *err)
{
    const struct kern_batch *b = &step->batch;

    errno = EINVAL;
    if (b->rows < 1 || b->rows > f->limits.rows || step->outputs < 0 || step->outputs > f->limits.outputs)
        return k3_errorf(err, "a step of %d rows and %d outputs; this rank has room for %d and %d", b->rows,
                         step->outputs, f->limits.rows, f->limits.outputs);
    if (b->seqs < 1 || b->seqs > b->rows || b->seqs > f->limits.slots || b->begin[0] != 0 ||
        b->begin[b->seqs] != b->rows)
        return k3_errorf(err, "a step whose %d sequences do not add up to its %d rows", b->seqs, b->rows);
    for (int i = 0; i < b->seqs; i++) {
        if (check_sequence(f, b, i) < 0)
            return k3_errorf(err, "a step whose sequence %d has rows, slot or pages that this rank does not have", i);
        if (!prefill_is_sound(b, i))
            return k3_errorf(err, "a step whose sequence %d runs a prompt in pieces that are not of %d tokens", i,
                             K3_PREFILL_BLOCK);
    }
    for (int i = 0; i < step->copies; i++)
        if (!copy_is_sound(f, &step->copy[i]))
            return k3_errorf(err, "a step that copies a state to or from where this rank has none");
    for (int i = 0; i < b->rows; i++)
        if (step->token[i] < 0 || step->token[i] >= f->c->vocab)
            return k3_errorf(err, "token id %d is not in the vocabulary of %d", step->token[i], f->c->vocab);
    for (int i = 0; i < step->outputs; i++)
        if (step->output[i] < 0 || step->output[i] >= b->rows)
            return k3_errorf(err, "logits of row %d are asked for in a step of %d rows", step->output[i], b->rows);
    return 0;
}

/* Queue everything and wait for it. */
static int run_step(struct forward *f, const struct forward_step *step)
{
    size_t bytes = (size_t)(f->logits.rows * f->logits.cols) * sizeof(float);

    if (copy_states(f, step) < 0 || did(f, "copy", forward_send_lists(f, step)) < 0)
        return -1;
    if ((is_repeated(f) ? run_graph(f) : run_layers(f)) < 0)
        return -1;
    if (f->logits_host && did(f, "copy", kern_copy(f->s, f->logits_host, bytes, f->logits.data, bytes, bytes, 1)) < 0)
        return -1;
    return did(f, "sync", kern_sync(f->s));
}

int forward_step(struct forward *f, const struct forward_step *step, const float **logits, struct k3_error *err)
{
    *logits = NULL;
    if (check_step(f, step, err) < 0)
        return -1;
    forward_set_rows(f, step->batch.rows, step->outputs);
    f->err = err;
    int rc = run_step(f, step);
    f->batch = NULL;
    f->err = NULL;
    if (rc == 0 && step->outputs > 0)
        *logits = f->logits_host ? f->logits_host : f->logits.data;
    return rc;
}
