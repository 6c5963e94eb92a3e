/* single.h - the model on this rank with one sequence in it: what k3run needs, without queue, scheduler or pages to
 * share
 *
 * Every rank of the communicator makes the same calls with the same tokens. */
#ifndef K3_ENGINE_SINGLE_H
#define K3_ENGINE_SINGLE_H

#include <stdbool.h>
#include <stdint.h>

#include "comm/comm.h"
#include "common/error.h"
#include "model/config.h"
#include "model/forward.h"
#include "model/layout.h"

struct single_options {
    const char *model;   /* checkpoint directory */
    const char *backend; /* see kern_stream_create() */
    int threads;
    int32_t rows;    /* most tokens in a step */
    int64_t tokens;  /* room for the sequence */
    int32_t prompt;  /* how many of them are the prompt */
    bool forks;      /* single_fork() will be called */
    bool unverified; /* a pack is not held against its hashes */
    int all_outputs; /* logits may be asked for every row, not only the last */
};

enum single_outputs { SINGLE_NONE, SINGLE_LAST, SINGLE_ALL };

struct single;

/* Load this rank's share.  Borrows config and comm, which is divided into the layout's stages, until single_destroy().
 */
struct single *single_create(const struct single_options *o, const struct k3_config *c, const struct layout *l,
                             struct comm *comm, struct k3_error *err);
void single_destroy(struct single *s);

/* For forward_trace().  Borrowed. */
struct forward *single_forward(struct single *s);

/* From now on the sequence goes on behind the prompt, as often as this is called: what was appended after an earlier
 * call is gone. */
void single_fork(struct single *s);

/* Append n tokens, at most `rows`, to the sequence; a prompt's forms (struct kern_batch) are taken where its pieces are
 * whole blocks or its end, those of an answer in other pieces.  logits: one row of the vocabulary for the last token,
 * or for each; good until the next call, and NULL where forward_step() has none. */
int single_feed(struct single *s, const int32_t *token, int32_t n, enum single_outputs outputs, const float **logits,
                struct k3_error *err);

#endif
