/* forward.h - one step of Kimi K3 on this rank's shard
 *
 * A step runs token rows of several sequences through all layers.  The caller owns the bookkeeping (which slot and
 * which pages belong to which sequence); here live the memory behind slots and pages, and the scratch of a step, laid
 * out once at creation.  On a backend that records graphs, a step of one row a sequence is one graph, recorded when its
 * number of rows first occurs. Every rank of the communicator calls forward_step() with the same batch.
 *
 * In a pipeline a step passes through one stage after the other: each holds less, and none of it is faster. */
#ifndef K3_MODEL_FORWARD_H
#define K3_MODEL_FORWARD_H

#include "comm/comm.h"
#include "common/error.h"
#include "kernels/kernels.h"
#include "model/config.h"
#include "model/shard.h"
#include "model/weights.h"

struct forward;

struct forward_limits {
    int32_t rows;          /* most token rows in a step */
    int32_t outputs;       /* most rows of logits in a step */
    int32_t slots;         /* sequences with KDA and convolution state */
    int32_t checkpoints;   /* copies of such states, kept for later sequences */
    int32_t pages;         /* latent pages, shared by all MLA layers: page n is page n of each */
    int32_t page_tokens;   /* tokens a page */
    int32_t slot_pages;    /* most pages of a sequence */
    enum k3_dtype latents; /* how the pages keep them: kern_latent_dtype() of the stream */
};

/* Bytes that forward_create() will take, by part, for the printed memory budget. */
struct forward_bytes {
    uint64_t state;       /* KDA and convolution state of all slots */
    uint64_t checkpoints; /* ... and the copies */
    uint64_t latents;     /* latent pages */
    uint64_t scratch;     /* activations and lists of a step, logits */
};
struct forward_bytes forward_bytes(const struct k3_config *c, const struct shard *sh, const struct forward_limits *l);

/* Borrows everything it is given until forward_destroy().  comm is divided into the shard's stages (comm_divide()). */
struct forward *forward_create(const struct k3_config *c, const struct shard *sh, const struct weights *w,
                               struct comm *comm, struct k3_stream *s, const struct forward_limits *l,
                               struct k3_error *err);
void forward_destroy(struct forward *f);

enum forward_copy_kind {
    FORWARD_SAVE, /* a slot's state into a checkpoint */
    FORWARD_LOAD, /* a checkpoint's state into a slot */
    FORWARD_FORK  /* a slot's state into another slot, and the latents of from_page into to_page (-1: of no page) */
};
struct forward_copy {
    int32_t kind; /* enum forward_copy_kind */
    int32_t from, to;
    int32_t from_page, to_page;
};

/* Borrowed during forward_step(). */
struct forward_step {
    const struct forward_copy *copy; /* [copies]: done one after the other before anything else */
    int32_t copies;
    struct kern_batch batch;
    const int32_t *token;  /* [batch.rows] */
    const int32_t *output; /* [outputs]: rows whose logits are wanted */
    int32_t outputs;
};

/* Run one step.  logits is [outputs, vocab] F32 in this process' memory, good until the next step, whole on the first
 * rank of all and on those of the last stage; NULL on the others, and when outputs is 0.
 * A plan that reaches outside the limits is refused with errno EINVAL before anything has changed; after any other
 * failure the states of the step's sequences are lost, and the ranks may no longer agree.  Never allocates. */
int forward_step(struct forward *f, const struct forward_step *step, const float **logits, struct k3_error *err);

/* Operations of the graph of steps of so many rows, 0 when none was recorded. */
int forward_operations(const struct forward *f, int32_t rows);
/* Record them anew: the communicator exchanges in another way. */
void forward_forget_graphs(struct forward *f);

/* Call trace(layer, p, arg) after every layer of this rank's stage with the running residual p [rows, H] (SPEC 4.3),
 * which may be read until it returns; 1: it has written p, and the next layer starts from that.  NULL ends it. */
typedef int forward_trace_f(int layer, const struct k3_tensor *p, void *arg);
void forward_trace(struct forward *f, forward_trace_f *trace, void *arg);

#endif
