#include "tools/plan.h"

#include <string.h>

const char *plan_part_name(int part)
{
    static const char *const names[] = {"kda state", "checkpoints", "mla cache", "scratch", "communication", "reserve"};

    return part < COST_WEIGHTS ? cost_group_name(part) : names[part - COST_WEIGHTS];
}

void plan_memory(const struct plan *p, const struct layout *l, enum k3_dtype dense, int rank, struct plan_memory *m)
{
    struct cost_memory cost;

    cost_memory(&p->config, l, rank, dense, &p->limits, &cost);
    *m = (struct plan_memory){.part = {
                                  [PLAN_STATE] = (double)cost.forward.state,
                                  [PLAN_CHECKPOINTS] = (double)cost.forward.checkpoints,
                                  [PLAN_LATENTS] = (double)cost.forward.latents,
                                  [PLAN_SCRATCH] = (double)cost.forward.scratch,
                                  [PLAN_COMMUNICATION] = layout_ranks(l) > 1 ? p->device.comm_gb.value * 1e9 : 0,
                                  [PLAN_RESERVE] = p->device.reserve_gb.value * 1e9,
                              }};
    for (int g = 0; g < COST_WEIGHTS; g++)
        m->part[g] = (double)cost.weights[g];
    for (int i = 0; i < PLAN_PARTS; i++)
        m->total += m->part[i];
    m->fits = m->total <= p->device.memory_gb.value * 1e9;
}

int plan_same_memory(const struct plan *p, const struct layout *l, enum k3_dtype dense, int rank, struct plan_memory *m)
{
    struct plan_memory next;

    plan_memory(p, l, dense, rank, m);
    for (; rank + 1 < layout_ranks(l); rank++) {
        plan_memory(p, l, dense, rank + 1, &next);
        if (memcmp(&next, m, sizeof next) != 0)
            break;
    }
    return rank;
}

void plan_fullest(const struct plan *p, const struct layout *l, enum k3_dtype dense, struct plan_memory *m)
{
    struct plan_memory next;

    plan_memory(p, l, dense, 0, m);
    for (int rank = 1; rank < layout_ranks(l); rank++) {
        plan_memory(p, l, dense, rank, &next);
        if (next.total > m->total)
            *m = next;
    }
}
