/* shard.h - who holds what: the one place that knows how the model is divided among ranks (SPEC 11.5)
 *
 * Nothing divides by tp: everyone asks for [begin, end).  Axes are cut in units that keep heads and scale blocks whole,
 * so shares may be uneven (15 ranks) and, where ranks outnumber units, empty.
 *
 *   KDA     q k v g f_b b, convolutions, A_log, dt_bias by head; f_a whole; o_proj by the head's columns: partial sum
 *   MLA     q_b kv_b g by head; q_a kv_a whole; o_proj by the head's columns: partial sum
 *   dense   gate, up by rows, down by columns of the intermediate width: partial sum; shared experts likewise
 *   experts whole ones by groups of ranks; within a group w1, w3 by rows, w2 by columns of the inner width: partial sum
 *   router  by rows (the logits are gathered with z)
 *   latent  down by rows (z is gathered), up by columns (joins the shared experts' partial sum); norm whole
 *   vocab   embedding by rows (zeros elsewhere: summed), lm_head by rows (logits gathered)
 *
 * Of a pipeline each stage has consecutive layers, the first the embedding, the last what stands behind the layers. */
#ifndef K3_MODEL_SHARD_H
#define K3_MODEL_SHARD_H

#include <stdint.h>

#include "model/config.h"
#include "model/inventory.h"

/* One rank's place; see layout.h. */
struct shard {
    int tp, rank;  /* ranks of its stage, and which of them it is */
    int ep;        /* groups that they form, a divisor of tp; 0 is 1 */
    int pp, stage; /* stages, and which of them it belongs to; 0 of 0 is 0 of 1 */
};

struct range {
    int64_t begin, end;
};

enum shard_axis {
    SHARD_WHOLE,     /* not divided: [0, 1) */
    SHARD_KDA_HEADS, /* in heads */
    SHARD_MLA_HEADS, /* in heads */
    SHARD_DENSE,     /* in columns of the dense intermediate width; this and the next three in steps of K3_MX_BLOCK */
    SHARD_SHARED,    /* shared experts' width */
    SHARD_INNER,     /* expert inner width, within a group */
    SHARD_LATENT,    /* latent width of the experts */
    SHARD_ROUTER,    /* in experts: who computes their logits */
    SHARD_VOCAB,     /* in token ids */
    SHARD_LAYERS,    /* by stage */
    SHARD_EXPERTS    /* whole experts, by group */
};

struct range shard_range(const struct k3_config *c, const struct shard *sh, enum shard_axis axis);
/* end - begin of this rank's range. */
int64_t shard_count(const struct k3_config *c, const struct shard *sh, enum shard_axis axis);
/* Is it of the last stage? */
int shard_is_last(const struct shard *sh);
/* Length of the whole axis, in the same measure. */
int64_t shard_total(const struct k3_config *c, enum shard_axis axis);

/* How a rank's share of a tensor is cut out of it, in stored elements (bytes, for the packed forms).  A vector is one
 * row, a conv weight [C, 1, K] has C rows. */
struct shard_part {
    int64_t rows, cols;    /* of the whole tensor */
    struct range row, col; /* what this rank holds of them */
};
/* Whether layer's tensor of this role (-1: of no layer) is here, at least a part of it. */
int shard_has(const struct k3_config *c, const struct shard *sh, enum tensor_role role, int layer);
struct shard_part shard_of(const struct k3_config *c, const struct shard *sh, enum tensor_role role);

#endif
