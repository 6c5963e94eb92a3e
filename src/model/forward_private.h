/* forward_private.h - what forward.c, forward_create.c and forward_memory.c share: one rank's places for state and
 * activations */
#ifndef K3_MODEL_FORWARD_PRIVATE_H
#define K3_MODEL_FORWARD_PRIVATE_H

#include "gpu/arena.h"
#include "model/forward.h"

/* What a sequence leaves behind in one layer: KDA layers a slot each, MLA layers the latents of its tokens. */
struct layer_state {
    void *q_conv, *k_conv, *v_conv; /* [slots, K3_TAPS - 1, heads * 128] each */
    void *kda;                      /* [slots, heads, 128, 128] */
    struct kern_latents latents;
};

/* Activations of a step.  All are k3_tensor, so that a step can set their rows in one loop. */
struct activations {
    struct k3_tensor x;      /* [T, H] input of a sublayer */
    struct k3_tensor branch; /* [T, H] its output */
    /* KDA, on this rank's heads */
    struct k3_tensor q_in, k_in, v_in, q, k, v; /* [T, heads * 128] before and after the convolution */
    struct k3_tensor low;                       /* [T, 128] */
    struct k3_tensor decay;                     /* [T, heads * 128] */
    struct k3_tensor beta;                      /* [T, heads] */
    /* MLA, on this rank's heads */
    struct k3_tensor q_low; /* [T, q_lora] */
    struct k3_tensor mla_q; /* [T, heads * 192] */
    struct k3_tensor kv;    /* [T, 576] */
    /* both */
    struct k3_tensor o_kda, gate_kda; /* [T, heads * 128] */
    struct k3_tensor o_mla, gate_mla;
    /* feed-forward, on this rank's part of the inner width */
    struct k3_tensor dense_gate, dense_up;
    struct k3_tensor shared_gate, shared_up;
    struct k3_tensor router_mine; /* [T, this rank's part of the experts] */
    struct k3_tensor router;      /* [T, experts]; on a rank alone the same memory, as is z */
    struct k3_tensor z_mine;      /* [T, this rank's part of the latent] */
    struct k3_tensor z;           /* [T, latent] */
    struct k3_tensor sum;         /* [T, latent] */
};

/* The lists of a step where the backend can read them. */
struct step_lists {
    int64_t *pos;                    /* [slots] */
    int32_t *begin, *slot, *prefill; /* [slots + 1], [slots], [slots] */
    int32_t *pages;                  /* [slots, slot_pages] */
    int32_t *token, *output;         /* [rows], [outputs] */
};

enum { GRAPHS = 32 }; /* most rows of a step that is run as a graph */

enum { ACTIVATIONS = sizeof(struct activations) / sizeof(struct k3_tensor) };

/* The residual stream is kept in `stream`: snapshots R first, in order, then the running sum p.  Taking a snapshot of p
 * is counting one more; p then starts anew in the next place (SPEC 4.3). */
struct forward {
    const struct k3_config *c;
    const struct shard *sh;
    const struct weights *w;
    struct comm *comm;     /* between the ranks of its stage */
    struct comm *pipeline; /* between those that share out the stages: rank s is the one of stage s */
    struct k3_stream *s;
    struct forward_limits limits;
    struct arena *arena;

    struct range layers;       /* of its stage */
    struct layer_state *state; /* [layers of the model], those of other stages empty */
    struct layer_state *kept;  /* [layers of the model]: KDA layers' checkpoints, laid out as their slots are */
    struct activations act;
    struct k3_tensor stream[K3_MAX_SNAPSHOTS + 1]; /* [T, H] each */
    int snapshots;
    int branch_waits;                           /* act.branch is yet to be added to the running sum */
    int32_t *expert;                            /* [T, topk] */
    float *expert_weight;                       /* [T, topk] */
    struct k3_tensor head_in, head_out, logits; /* [outputs, H], [outputs, this rank's vocabulary], [outputs, vocab] */

    /* Only where the backend has memory of its own: */
    struct step_lists lists, sent;  /* one block on this side, one on the other */
    void *lists_block, *sent_block; /* [lists_bytes] each */
    size_t lists_bytes;
    float *logits_host;                   /* as logits */
    struct kern_graph *graph[GRAPHS + 1]; /* by rows; NULL: not recorded yet */

    int64_t *latent_begin, *router_begin, *vocab_begin; /* [tp + 1]: where each rank's columns start */
    int32_t kda_heads, mla_heads, inner;                /* this rank's */
    struct range experts;                               /* of its group */

    const struct kern_batch *batch; /* of the step that runs, as are the next two: where the backend can read them */
    const int32_t *token, *output;
    struct kern_batch sent_batch;
    struct k3_error *err;
    forward_trace_f *trace;
    void *trace_arg;
    float *trace_host; /* a copy of p, where the backend has memory of its own and a trace was asked for */
};

size_t forward_trace_bytes(const struct forward *f);
/* Snapshots that the residual stream has taken before layer l. */
int forward_snapshots(const struct k3_config *c, int64_t l);
/* Whether the logits come to this rank: one of the last stage, or the first of all. */
int forward_has_logits(const struct forward *f);
/* Everything but the places of what lies in the arena, which is counted only: what a rank of this shape holds. */
void forward_describe(struct forward *f, const struct k3_config *c, const struct shard *sh,
                      const struct forward_limits *l);
void forward_undescribe(struct forward *f);
/* Take everything of the arena: to count before arena_commit(), to place after it. */
void forward_lay_out(struct forward *f);
/* Bytes of one value in the latent pages. */
size_t forward_latent_bytes(enum k3_dtype dtype);
/* Make every activation as tall as the step. */
void forward_set_rows(struct forward *f, int64_t rows, int64_t outputs);
/* Where the lists lie in a block; returns its size. */
size_t forward_place_lists(struct step_lists *l, void *block, const struct forward_limits *limit);
/* Bring the step's lists to where the backend reads them and set batch, token and output. */
int forward_send_lists(struct forward *f, const struct forward_step *step);

#endif
