/* fsm.h - a life cycle as a table
 *
 *     static const struct fsm_move moves[] = {
 *         { REQ_QUEUED,  EV_LEASED,      REQ_RUNNING },
 *         { REQ_RUNNING, EV_ENGINE_LOST, REQ_QUEUED  },
 *     };
 *
 * States and events are enums that count from 0, with a list of names each.  fsm_step() is the only way to move. */
#ifndef K3_COMMON_FSM_H
#define K3_COMMON_FSM_H

#include <stdbool.h>
#include <stddef.h>

struct fsm_move {
    int state, event, next;
};

struct fsm_table {
    const char *what; /* first word of the log line: "req" */
    const char *const *states;
    const char *const *events;
    const struct fsm_move *moves;
    size_t count;
};

/* Part of the thing that has the life cycle. */
struct fsm {
    const struct fsm_table *table; /* borrowed */
    int state;
    double since; /* clock_monotonic() when it was entered */
};

void fsm_init(struct fsm *f, const struct fsm_table *table, int state);

/* Is there a row for this event in the present state? */
bool fsm_can(const struct fsm *f, int event);

/* Move along the table's row and log it ("req ID: QUEUED to RUNNING (leased) after 1.2 s").  0, or -1 when the table
 * has none: that is logged as an error and nothing changes. */
int fsm_step(struct fsm *f, const char *id, int event);

#endif
