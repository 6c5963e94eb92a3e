/* kernels.h - every operation of Kimi K3's forward pass as one call, whatever computes it
 *
 * An operation takes one argument struct and the stream that shall do the work.  The stream carries the backend (ref:
 * slow, plain, sums in fp64; cpu: the fast one; cuda), so the forward pass is written once.  A call queues work and
 * returns 0, or -1 when the backend cannot do it (errno EINVAL: a dtype or shape that this operation does not take); it
 * never waits, never allocates.  Results may be read after kern_sync().  All pointers, those of a kern_batch and lists
 * of tokens, rows and experts among them, are borrowed until then and lie in the memory that the stream's backend works
 * on (kern_alloc); only the structs of arguments and tensors themselves are read during the call.
 *
 * Shapes are written [rows, columns]; T is the number of token rows in the step.  Activations are F32 on the CPU
 * backends and on cuda, whose matrix products round them to BF16 on their way into the tensor cores. The order of every
 * sum depends on shapes only, never on what other rows are in the step. Section numbers are those of docs/k3-model.md
 * ("SPEC").
 *
 * Nothing of src/ is included here. */
#ifndef K3_KERNELS_H
#define K3_KERNELS_H

#include <stddef.h>
#include <stdint.h>

/* Head geometry that kernels are compiled for; config.json is checked against it at load (SPEC 2). */
enum {
    K3_HEAD_DIM = 128, /* KDA key and value width of a head */
    K3_NOPE_DIM = 128, /* MLA query/key part that goes through the latent */
    K3_ROPE_DIM = 64,  /* MLA part shared by all heads (never rotated in K3) */
    K3_V_DIM = 128,    /* MLA value width of a head */
    K3_QK_DIM = K3_NOPE_DIM + K3_ROPE_DIM,
    K3_LATENT_DIM = 512,                        /* MLA latent */
    K3_CACHE_DIM = K3_LATENT_DIM + K3_ROPE_DIM, /* values cached a token and MLA layer */
    K3_TAPS = 4,                                /* short convolution, the last tap on the current token */
    K3_MX_BLOCK = 32,                           /* columns of an MX format that share a scale */
    K3_PREFILL_BLOCK = 64,                      /* tokens: the steps of a prompt begin at multiples of it */
    K3_EXPAND_BLOCK = 128,                      /* tokens, a multiple of the above: see struct kern_batch */
    K3_MAX_SNAPSHOTS = 16,                      /* AttnRes snapshots, 8 in K3 */
    K3_MAX_TOPK = 32,                           /* experts of a token, 16 in K3 */
    K3_MAX_LINEARS = 8,                         /* products of one kern_linears() */
    K3_MAX_PARTS = 64                           /* of one kern_columns() */
};

enum k3_dtype {
    K3_F32 = 1,
    K3_BF16,
    K3_I32,
    K3_U8,
    K3_FP8_E4M3, /* e4m3 (bias 7, no infinity, at most 448) with an F32 scale a row */
    K3_MXFP8,    /* e4m3 with an e8m0 scale a block of 32 columns */
    K3_MXFP4     /* e2m1, two a byte, low nibble = even column, with an e8m0 scale a block of 32 columns (SPEC 3.3) */
};

/* How a tensor's elements lie in memory.  Repacked forms of a backend get ids of their own. */
enum k3_layout { K3_ROW_MAJOR = 0 };

/* A matrix (or a vector: rows = 1).  `stride` is the distance of two rows in elements: cols, or more in a view of wider
 * rows. `scale` holds what the numbers of an element's row or block are multiplied by.  MX formats have a byte for each
 * block of 32 columns: a row's lie stride / 32 bytes after those of the row before, so cols, stride and the first
 * column of a view are multiples of 32.  K3_FP8_E4M3 has a float a row, whatever columns a view takes.  NULL for the
 * other formats. */
struct k3_tensor {
    void *data;
    void *scale;
    enum k3_dtype dtype;
    enum k3_layout layout;
    int64_t rows, cols, stride;
};

/* Which sequences the rows of a step belong to.  Sequence i owns rows [begin[i], begin[i + 1]); its first row is the
 * token at position pos[i] of the sequence, and what precedes it lies in the state of slot[i] and in the pages of row i
 * of `pages`. A sequence whose pos is 0 starts from zero state, whatever its slot held before.
 *
 * KDA has a recurrent and a chunked form, MLA an absorbed and an expanded one, and two forms differ in their last bits.
 * So that a sequence's bits are its own affair, the form of a row follows from its position and the prompt's length,
 * never from the rows that happen to be in the step.  prefill[i] is 0 for recurrent and absorbed; else the number of
 * tokens of the prompt.  All rows are then the prompt's, pos[i] is a multiple of K3_PREFILL_BLOCK, and so is the end
 * of the rows unless it is the prompt's.  KDA is chunked for all of them; MLA is expanded for those in blocks of
 * K3_EXPAND_BLOCK positions that lie in the prompt from end to end, and absorbed for the prompt's last few.  (cuda
 * absorbs all of them, the former in a form of their own.)  A step without prompts says so by a NULL, for which a
 * backend has less to launch. */
struct kern_batch {
    int32_t rows, seqs;
    const int32_t *begin; /* [seqs + 1] */
    const int32_t *slot;  /* [seqs] */
    const int64_t *pos;   /* [seqs] */
    const int32_t *pages; /* [seqs, page_stride]: page ids in the order of positions */
    int32_t page_stride;
    const int32_t *prefill; /* [seqs]; NULL: 0 for all */
};

/* How many of sequence i's rows take the expanded form of MLA: the first, if any. */
static inline int32_t kern_expanded_rows(const struct kern_batch *b, int32_t i)
{
    int64_t rows = b->begin[i + 1] - b->begin[i], prompt = b->prefill != NULL ? b->prefill[i] : 0;
    int64_t expanded = prompt / K3_EXPAND_BLOCK * K3_EXPAND_BLOCK - b->pos[i];
    return (int32_t)(expanded < 0 ? 0 : expanded < rows ? expanded : rows);
}

/* --- streams -------------------------------------------------------------------------------------------------- */

struct k3_stream;

/* name: "ref"; "cpu", the fastest variant that this machine has; "cpu-avx512", "cpu-avx2" or "cpu-plain" (no special
 * instructions) for one of them, to bisect a drift; or, where built, "cuda" for the first GPU that this process sees
 * and "cuda:N" for another.  threads: CPU threads that share the work, 1 for none beside the caller; they change no bit
 * of a result.  One thread at a time may use a stream.  All memory that the operations need is taken here (ref: when an
 * operation first needs it).  NULL with errno ENOTSUP for a backend that this build or this machine does not have,
 * ENOMEM or EAGAIN. */
struct k3_stream *kern_stream_create(const char *name, int threads);
void kern_stream_destroy(struct k3_stream *s);
/* What a stream computes on. */
struct kern_device {
    char name[64], id[48]; /* "NVIDIA H200", its UUID or PCI address; empty on CPU backends */
    uint64_t free, total;  /* bytes of its memory; 0 on CPU backends */
    int unified;           /* its memory is the machine's own */
};
int kern_device_of(const struct k3_stream *s, struct kern_device *d);

/* How many devices of this backend the process sees: 1 for CPU backends, 0 for one that is not built. */
int kern_devices(const char *name);
/* What computes: "ref", "cpu-avx512", "cpu-avx2", "cpu-plain", "cuda". */
const char *kern_stream_name(const struct k3_stream *s);
/* Wait for all that was queued; -1 when some of it failed. */
int kern_sync(struct k3_stream *s);
/* A sentence for the last call on this stream that failed, from errno where the backend has none of its own. */
const char *kern_stream_error(const struct k3_stream *s);
/* The backend's own handle of the stream (cuda: its cudaStream_t), NULL on CPU backends. */
void *kern_stream_native(const struct k3_stream *s);

/* --- memory ----------------------------------------------------------------------------------------------------------
 */

/* Whether what kern_alloc() gives is this process' own memory, to be read and written without kern_copy(). */
int kern_is_host(const struct k3_stream *s);
/* The dtype of latent caches that this backend works on: K3_F32 or K3_BF16. */
enum k3_dtype kern_latent_dtype(const struct k3_stream *s);
/* Memory for what operations work on; reads as zeros, aligned to 256 bytes at least, on the CPU costs pages only where
 * it is touched.  NULL with errno ENOMEM. */
void *kern_alloc(struct k3_stream *s, size_t bytes);
void kern_free(struct k3_stream *s, void *p, size_t bytes);
/* This process' memory which the device also reaches (cuda: pinned): what kern_copy() takes without a detour, and
 * operations read slowly.  NULL with errno ENOMEM. */
void *kern_alloc_host(struct k3_stream *s, size_t bytes);
void kern_free_host(struct k3_stream *s, void *p, size_t bytes);
/* Copy `rows` rows of `bytes` bytes, whose starts are to_step and from_step bytes apart, in this process' or the
 * device's memory.  Queued like an operation. */
int kern_copy(struct k3_stream *s, void *to, size_t to_step, const void *from, size_t from_step, size_t bytes,
              size_t rows);

/* Do nothing for so long, as an operation: what an exchange between ranks would take. */
int kern_delay(struct k3_stream *s, double microseconds);

/* --- graphs ----------------------------------------------------------------------------------------------------------
 */

struct kern_graph;

/* Record what is queued from here on instead of running it, until kern_graph_end().  -1 with errno ENOTSUP on a backend
 * that runs operations at once. */
int kern_graph_begin(struct k3_stream *s);
/* NULL when something between could not be recorded. */
struct kern_graph *kern_graph_end(struct k3_stream *s);
/* Queue the whole of it, on the stream that recorded it. */
int kern_graph_run(struct kern_graph *g, struct k3_stream *s);
/* Kernels and copies that it holds. */
int kern_graph_operations(const struct kern_graph *g);
void kern_graph_destroy(struct kern_graph *g);

/* --- dense -------------------------------------------------------------------------------------------------------- */

/* y[t] = table[token[t] - first], or zeros where that row is not in this shard of the table (SPEC 4.2). */
struct embed_args {
    const int32_t *token;          /* [T] */
    const struct k3_tensor *table; /* BF16 [vocabulary shard, H] */
    int32_t first;                 /* vocabulary id of the table's row 0 */
    const struct k3_tensor *y;     /* [T, H] */
};
int kern_embed(const struct embed_args *a, struct k3_stream *s);

/* y[i] = x[row[i]].  EINVAL for a row that x does not have, on the CPU backends. */
struct gather_args {
    const struct k3_tensor *x; /* [T, n] */
    const int32_t *row;        /* [y rows] */
    const struct k3_tensor *y;
};
int kern_gather(const struct gather_args *a, struct k3_stream *s);

/* y[t,o] = sum_i w[o,i] x[t,i], added to y when accumulate is set.  Any of rows, out, in may be 0 (empty shard: y
 * becomes 0 unless accumulating).  The scale of a row of FP8_E4M3 multiplies finished sums over its codes; that of an
 * MX block multiplies each of its codes, which are exact then. */
struct linear_args {
    const struct k3_tensor *x; /* [T, in] */
    const struct k3_tensor *w; /* [out, in] F32, BF16, FP8_E4M3, MXFP8 or MXFP4 */
    const struct k3_tensor *y; /* [T, out] */
    int accumulate;
};
int kern_linear(const struct linear_args *a, struct k3_stream *s);

/* Up to K3_MAX_LINEARS products that do not wait for each other: none reads or adds to what another writes.  The same
 * bits as one after the other. */
struct linears_args {
    const struct linear_args *product; /* [count] */
    int32_t count;
};
int kern_linears(const struct linears_args *a, struct k3_stream *s);

/* y += x.  [T, n] each. */
struct add_args {
    const struct k3_tensor *x;
    const struct k3_tensor *y;
};
int kern_add(const struct add_args *a, struct k3_stream *s);

/* y[0,i] = sum_p x[p,i], p = 0 first. */
struct sum_args {
    const struct k3_tensor *x; /* [parts, n], parts >= 1 */
    const struct k3_tensor *y; /* [1, n], not in x */
};
int kern_sum(const struct sum_args *a, struct k3_stream *s);

/* y[t, begin[p] + i] = part[p][t, i]: side by side what the ranks have of a row's columns, each its own rows one after
 * the other.  The two lists are read during the call. */
struct columns_args {
    const float *const *part; /* [parts], each [T, begin[p + 1] - begin[p]], none within y */
    const int64_t *begin;     /* [parts + 1], from 0 up to y's columns */
    int32_t parts;            /* 1 ... K3_MAX_PARTS */
    const struct k3_tensor *y;
};
int kern_columns(const struct columns_args *a, struct k3_stream *s);

/* y[t,d] = x[t,d] * w[d] / sqrt(mean_d x[t,d]^2 + eps) (SPEC 4.1).  y may be x. */
struct rmsnorm_args {
    const struct k3_tensor *x; /* [T, n] */
    const struct k3_tensor *w; /* [1, n] BF16 or F32 */
    const struct k3_tensor *y;
    float eps;
};
int kern_rmsnorm(const struct rmsnorm_args *a, struct k3_stream *s);

/* y = linear_beta * tanh(up / linear_beta) * beta * tanh(gate / beta) * sigmoid(gate) (SPEC 4.1, SiTU).  y may be gate.
 */
struct situ_args {
    const struct k3_tensor *gate, *up; /* [T, n] */
    const struct k3_tensor *y;
    float beta, linear_beta;
};
int kern_situ(const struct situ_args *a, struct k3_stream *s);

/* --- Block Attention Residuals (SPEC 4.3) ---------------------------------------------------------------------------
 */

/* y = RMS(sum_i a_i v_i; out) over the candidates v = snapshot[0..snapshots-1], p, where a = softmax of
 * s_i = (v_i . (norm * proj)) / sqrt(mean v_i^2 + eps).  y must not overlap a candidate. */
struct attnres_args {
    const struct k3_tensor *p;           /* [T, H] */
    const struct k3_tensor *snapshot;    /* array of `snapshots` tensors, each [T, H] */
    int32_t snapshots;                   /* 0 ... K3_MAX_SNAPSHOTS; 0 copies p */
    const struct k3_tensor *norm, *proj; /* [1, H] */
    const struct k3_tensor *y;
    float eps;
    const struct k3_tensor *out;    /* [1, H]: weight of that last norm (SPEC 4.1); NULL for none */
    const struct k3_tensor *branch; /* [T, H]: p += branch is done first; NULL for none */
};
int kern_attnres(const struct attnres_args *a, struct k3_stream *s);

/* --- Kimi Delta Attention (SPEC 4.4, 5) ------------------------------------------------------------------------------
 */

/* Causal depthwise convolution over K3_TAPS tokens, then SiLU.  state keeps the last K3_TAPS - 1 inputs of every slot,
 * oldest first, and is moved on. */
struct conv_args {
    const struct k3_tensor *x; /* [T, C] */
    const struct k3_tensor *w; /* F32 [C, K3_TAPS] */
    const struct k3_tensor *y; /* [T, C], not x */
    void *state;               /* F32 [slots, K3_TAPS - 1, C] */
    const struct kern_batch *batch;
};
int kern_conv(const struct conv_args *a, struct k3_stream *s);

/* g[t,h,d] = lower_bound * sigmoid(exp(a_log[h]) * (r[t,h,d] + dt_bias[h,d]));  beta[t,h] = sigmoid(b[t,h]). */
struct kda_gate_args {
    const struct k3_tensor *r;       /* [T, heads * 128] */
    const struct k3_tensor *a_log;   /* F32 [1, >= heads]; entries past heads are not read */
    const struct k3_tensor *dt_bias; /* F32 [1, heads * 128] */
    const struct k3_tensor *b;       /* [T, heads] */
    const struct k3_tensor *g;       /* F32 [T, heads * 128]; may be r */
    const struct k3_tensor *beta;    /* F32 [T, heads]; may be b */
    float lower_bound;               /* -5 */
};
int kern_kda_gate(const struct kda_gate_args *a, struct k3_stream *s);

/* Gated delta rule with a decay a channel.  q and k are L2-normalised here (eps 1e-6 under the root) and q is scaled by
 * 128^-1/2; state is moved on.  Recurrent (SPEC 5.1), or where the batch says prefill in chunks of tokens counted from
 * the step's first row (5.3). */
struct kda_args {
    const struct k3_tensor *q, *k, *v; /* [T, heads * 128] after convolution */
    const struct k3_tensor *g;         /* F32 [T, heads * 128], log decay, in [-5, 0] */
    const struct k3_tensor *beta;      /* F32 [T, heads] */
    const struct k3_tensor *o;         /* [T, heads * 128] */
    void *state;                       /* F32 [slots, heads, 128 (v), 128 (k)] */
    int32_t heads;
    const struct kern_batch *batch;
};
int kern_kda(const struct kda_args *a, struct k3_stream *s);

/* y[t,h,d] = o[t,h,d] * w[d] * sigmoid(gate[t,h,d]) / sqrt(mean_d o[t,h,d]^2 + eps).  y may be o. */
struct gated_norm_args {
    const struct k3_tensor *o, *gate; /* [T, heads * 128] */
    const struct k3_tensor *w;        /* F32 [1, 128] */
    const struct k3_tensor *y;
    float eps;
};
int kern_gated_norm(const struct gated_norm_args *a, struct k3_stream *s);

/* Decay, convolutions, gates, delta rule and norm of one KDA layer, one after the other.  What lies between them (r,
 * the y of the convolutions, g and beta) is the backend's own: it may leave those tensors as they are. */
struct kda_block_args {
    struct linear_args decay; /* its y is the gate's r */
    struct conv_args q, k, v;
    struct kda_gate_args gate;
    struct kda_args delta;       /* its q, k, v are the y of the convolutions; its g and beta those of the gate */
    struct gated_norm_args norm; /* its o is delta's */
};
int kern_kda_block(const struct kda_block_args *a, struct k3_stream *s);

/* --- Multi-head Latent Attention (SPEC 4.5, 6) -----------------------------------------------------------------------
 */

/* The latent cache of one layer: [pages, page_tokens, K3_CACHE_DIM], a token's 512 latents (normalised) then its 64 raw
 * keys. */
struct kern_latents {
    void *data;
    enum k3_dtype dtype; /* kern_latent_dtype() */
    int32_t page_tokens;
};

/* Write the step's rows into the cache: the first 512 of kv RMS-normalised by w, the last 64 as they are. */
struct mla_append_args {
    const struct k3_tensor *kv; /* [T, 576], output of kv_a_proj_with_mqa */
    const struct k3_tensor *w;  /* [1, 512] */
    const struct kern_latents *cache;
    const struct kern_batch *batch;
    float eps;
};
int kern_mla_append(const struct mla_append_args *a, struct k3_stream *s);

/* Causal attention of the step's rows over everything cached, the rows themselves included (append first).  Keys and
 * values are absorbed into the latent, o[t,h] = UV_h sum_s softmax_s(scale * ((UK_h^T qn) . c_s + qp . kp_s)) c_s, or
 * expanded from it, o[t,h] = sum_s softmax_s(scale * (qn . (UK_h c_s) + qp . kp_s)) (UV_h c_s). */
struct mla_attend_args {
    const struct k3_tensor *q;    /* [T, heads * 192]: a head's 128 nope then its 64 pe */
    const struct k3_tensor *kv_b; /* BF16 [heads * 256, 512]: a head's 128 rows of UK then its 128 of UV */
    const struct k3_tensor *o;    /* [T, heads * 128] */
    const struct kern_latents *cache;
    const struct kern_batch *batch;
    int32_t heads;
    float scale; /* 192^-1/2 */
};
int kern_mla_attend(const struct mla_attend_args *a, struct k3_stream *s);

/* y = o * sigmoid(gate).  [T, n] each; y may be o. */
struct sigmoid_gate_args {
    const struct k3_tensor *o, *gate;
    const struct k3_tensor *y;
};
int kern_sigmoid_gate(const struct sigmoid_gate_args *a, struct k3_stream *s);

/* --- latent mixture of experts (SPEC 4.6)
 * ------------------------------------------------------------------------------ */

/* Choose topk experts a token by sigmoid(logit) + bias (ties: the lower index), weigh them by the unbiased sigmoid.
 * With groups > 1 only experts of the topk_group groups with the largest sum of two best biased scores take part.  A
 * row with a logit that is not finite gets ids 0 ... topk-1 and weights of NaN: never an index out of range. */
struct router_args {
    const struct k3_tensor *logits; /* F32 [T, experts] */
    const struct k3_tensor *bias;   /* F32 [1, experts] */
    int32_t *id;                    /* [T, topk], by descending biased score */
    float *weight;                  /* [T, topk] */
    int32_t topk, groups, topk_group;
    int renormalize; /* divide by (sum of the chosen + 1e-20) */
    float scaling;
};
int kern_router(const struct router_args *a, struct k3_stream *s);

/* Routed experts of one layer: the matrix of the e-th of them is `first` with data and scale moved on by e times their
 * steps. */
struct kern_expert_matrix {
    struct k3_tensor first; /* MXFP4 or BF16 [out, in] */
    int64_t data_step;      /* bytes from an expert to the next */
    int64_t scale_step;     /* 0 where there are no scales */
};

/* y[t] = sum_j weight[t,j] * w2_e SiTU(w1_e z[t], w3_e z[t]), e = id[t,j].  A row may name an expert twice.
 * The three matrices are of one dtype, their widths multiples of K3_MX_BLOCK.  EINVAL for an id that is no expert's,
 * on the CPU backends.  On a rank that holds some of the experts, or a part of the inner width, y is its part of the
 * sum: of experts held elsewhere nothing is added. */
struct experts_args {
    const struct k3_tensor *z;                /* [T, L] */
    const int32_t *id;                        /* [T, topk] */
    const float *weight;                      /* [T, topk] */
    int32_t topk, experts;                    /* ids are below `experts` */
    int32_t first, held;                      /* the matrices are those of ids [first, first + held) */
    const struct kern_expert_matrix *w1, *w3; /* [I, L] */
    const struct kern_expert_matrix *w2;      /* [L, I] */
    const struct k3_tensor *y;                /* F32 [T, L] */
    float beta, linear_beta;
};
int kern_experts(const struct experts_args *a, struct k3_stream *s);

/* The end of a mixture's layer: norm of the latent sum, its projection up, SiTU and projection down of the shared
 * experts, one after the other.  What lies between them is the backend's own. */
struct latent_tail_args {
    struct rmsnorm_args norm; /* in place; w is NULL where there is none */
    struct linear_args up;    /* its x are columns of the norm's y */
    struct situ_args situ;
    struct linear_args down; /* of the situ's y; adds to the y of `up` */
};
int kern_latent_tail(const struct latent_tail_args *a, struct k3_stream *s);

#endif
