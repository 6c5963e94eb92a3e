#include "common/fsm.h"

#include "common/clock.h"
#include "common/log.h"

static const struct fsm_move *find_move(const struct fsm *f, int event)
{
    for (size_t i = 0; i < f->table->count; i++)
        if (f->table->moves[i].state == f->state && f->table->moves[i].event == event)
            return &f->table->moves[i];
    return NULL;
}

void fsm_init(struct fsm *f, const struct fsm_table *table, int state)
{
    f->table = table;
    f->state = state;
    f->since = clock_monotonic();
}

bool fsm_can(const struct fsm *f, int event)
{
    return find_move(f, event) != NULL;
}

int fsm_step(struct fsm *f, const char *id, int event)
{
    const struct fsm_table *t = f->table;
    const struct fsm_move *move = find_move(f, event);

    if (!move) {
        log_err("%s %s: %s does not happen in state %s", t->what, id, t->events[event], t->states[f->state]);
        return -1;
    }

    double now = clock_monotonic();
    log_info("%s %s: %s to %s (%s) after %.3f s", t->what, id, t->states[f->state], t->states[move->next],
             t->events[event], now - f->since);
    f->state = move->next;
    f->since = now;
    return 0;
}
