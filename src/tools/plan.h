/* plan.h - what k3plan was asked, and its answer as text or as JSON */
#ifndef K3_TOOLS_PLAN_H
#define K3_TOOLS_PLAN_H

#include <stdio.h>

#include "tools/measured.h"
#include "tools/predict.h"

enum { PLAN_LAYOUTS_MAX = 64, PLAN_STEPS_MAX = 64, PLAN_DENSE_MAX = 4 };

/* Plain data; whoever fills it owns what it points to. */
struct plan {
    const char *model; /* its config file */
    struct k3_config config;
    struct device device;
    int nodes; /* ranks that there are, one a node */
    struct layout layout[PLAN_LAYOUTS_MAX];
    int layouts;
    enum k3_dtype dense[PLAN_DENSE_MAX];
    int denses;
    struct predict_step step[PLAN_STEPS_MAX];
    int steps;
    struct predict_options options; /* the form of the dense part apart */
    struct forward_limits limits;
};

/* What a rank's memory goes to, in the order of the budget that k3served prints. */
enum plan_part {
    PLAN_WEIGHTS,
    PLAN_STATE = COST_WEIGHTS,
    PLAN_CHECKPOINTS,
    PLAN_LATENTS,
    PLAN_SCRATCH,
    PLAN_COMMUNICATION,
    PLAN_RESERVE,
    PLAN_PARTS
};
struct plan_memory {
    double part[PLAN_PARTS], total; /* bytes; the first COST_WEIGHTS parts are the groups of weights */
    int fits;
};
const char *plan_part_name(int part);
void plan_memory(const struct plan *p, const struct layout *l, enum k3_dtype dense, int rank, struct plan_memory *m);
/* The rank with the most. */
void plan_fullest(const struct plan *p, const struct layout *l, enum k3_dtype dense, struct plan_memory *m);
/* The last of the ranks after `rank` whose memory is the same; *m is theirs. */
int plan_same_memory(const struct plan *p, const struct layout *l, enum k3_dtype dense, int rank,
                     struct plan_memory *m);

/* Everything about each layout; or one line a layout. */
void plan_print(const struct plan *p, FILE *out);
void plan_compare(const struct plan *p, FILE *out);
void plan_print_json(const struct plan *p, FILE *out);

/* Runs of the device, as predicted and as measured. */
void plan_check(const struct plan *p, const struct measured *m, int files, FILE *out);
void plan_check_json(const struct plan *p, const struct measured *m, int files, FILE *out);

#endif
