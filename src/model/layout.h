/* layout.h - how a job's ranks divide the model: tensor parallel, pipeline and expert parallel degrees (SPEC 11.5)
 *
 * Written "tp=8,pp=2,ep=4": pp stages of tp ranks each, one stage's ranks after the other's.  A stage has consecutive
 * layers, of which its ranks share everything.  They form ep groups, each with its share of whole experts, which are
 * split within the group by inner width; ep = 1 splits all of them by inner width. */
#ifndef K3_MODEL_LAYOUT_H
#define K3_MODEL_LAYOUT_H

#include "common/error.h"
#include "model/config.h"
#include "model/shard.h"

enum { LAYOUT_RANKS_MAX = 4096, LAYOUT_NAME = 40 };

struct layout {
    int tp, pp, ep;
};

/* What is not named is 1. */
int layout_parse(const char *text, struct layout *l, struct k3_error *err);
/* Is there something to do for every stage and group? */
int layout_check(const struct k3_config *c, const struct layout *l, struct k3_error *err);
/* The layout of a job of so many ranks: parsed, checked and of as many; "": tp = ranks. */
int layout_of_job(const char *text, int ranks, const struct k3_config *c, struct layout *l, struct k3_error *err);

int layout_ranks(const struct layout *l);
/* "tp=8,pp=2" */
const char *layout_name(const struct layout *l, char text[LAYOUT_NAME]);
struct shard layout_shard(const struct layout *l, int rank);
/* The layout and, of all its ranks, the number of the one that has this place. */
int layout_of_shard(const struct shard *sh, struct layout *l);

#endif
