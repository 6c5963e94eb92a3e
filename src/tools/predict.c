#include "tools/predict.h"

#include <math.h>

static double ms(double amount, double giga_a_second)
{
    return amount / (giga_a_second * 1e9) * 1e3;
}

/* Phases of an exchange, and the bytes that a rank sends in all of them. */
static int phases(const struct cost_exchange *e, const struct predict_options *o, double *sent)
{
    double others = e->ranks - 1, part = e->bytes / e->ranks;

    switch (e->kind) {
    case COST_ALL_REDUCE:
        *sent = o->one_shot ? others * e->bytes : 2 * others * part;
        return o->one_shot ? 1 : 2;
    case COST_SEND:
        *sent = e->bytes;
        return 1;
    default: /* a part to or from each of the others */
        *sent = others * part;
        return 1;
    }
}

static void add_exchanges(const struct k3_config *c, const struct layout *l, int stage, const struct device *d,
                          const struct predict_options *o, const struct cost_step *step, struct prediction *p)
{
    struct cost_exchange list[COST_EXCHANGES_MAX];
    int n = cost_exchanges(c, l, stage, &o->cost, step, list);

    for (int i = 0; i < n; i++) {
        double sent;
        int each = phases(&list[i], o, &sent);
        p->exchanges += list[i].count;
        p->phases += list[i].count * each;
        if (o->exchange_us >= 0) {
            p->latency_ms += list[i].count * o->exchange_us / 1e3;
        } else {
            p->latency_ms += list[i].count * each * d->phase_us.value / 1e3;
            p->wire_ms += list[i].count * ms(sent, d->link_gbs.value);
        }
    }
}

/* Milliseconds of moving a group's bytes.  What does not leave the level 2 cache moves none; the dense weights of a
 * decoding step of many rows are read once for each step_rows of them. */
static double memory_time(const struct cost_work *w, const struct device *d, const struct predict_step *step, int group,
                          double *bytes)
{
    int dense = group < COST_WEIGHTS && group != COST_EXPERTS && group != COST_EMBED;
    double passes = dense && !step->prefill ? ceil(step->seqs / d->step_rows.value) : 1;

    *bytes = group == COST_STREAM && w->stream_bytes < d->cache_mb.value * 1e6 ? 0 : w->bytes[group];
    return passes * ms(*bytes, d->bandwidth_gbs.value * d->share.value);
}

static double compute_time(const struct cost_work *w, const struct device *d, const struct predict_step *step,
                           int group)
{
    double rate = d->matrix_tflops.value * d->matrix_share.value;

    if (group == COST_EXPERTS && !step->prefill)
        rate = fmin(rate, d->expert_tflops.value);
    return ms(w->flops[group], rate * 1e3);
}

void predict_rank(const struct k3_config *c, const struct layout *l, int rank, const struct device *d,
                  const struct predict_options *o, const struct predict_step *step, struct prediction *p)
{
    int rows = step->prefill ? step->prefill : step->seqs, stage = rank / l->tp;
    struct cost_step cost = {rows, step->seqs, step->context, step->seqs};
    struct shard sh = layout_shard(l, rank);
    int64_t layers = shard_count(c, &sh, SHARD_LAYERS);

    *p = (struct prediction){.layers_ms = (double)layers * d->layer_us.value / 1e3};
    cost_work(c, l, rank, &o->cost, &cost, &p->work);
    for (int g = 0; g < COST_GROUPS; g++) {
        double bytes, memory = memory_time(&p->work, d, step, g, &bytes);
        double compute = compute_time(&p->work, d, step, g);
        p->bytes += bytes;
        p->memory_ms += memory;
        p->compute_ms += fmax(compute - memory, 0);
    }
    add_exchanges(c, l, stage, d, o, &cost, p);
    p->step_ms = p->memory_ms + p->compute_ms + p->layers_ms + p->latency_ms + p->wire_ms;
}

static void add_stage(struct prediction *all, const struct prediction *stage)
{
    if (stage->bytes > all->bytes) {
        all->bytes = stage->bytes;
        all->work = stage->work;
    }
    all->memory_ms += stage->memory_ms;
    all->compute_ms += stage->compute_ms;
    all->layers_ms += stage->layers_ms;
    all->exchanges += stage->exchanges;
    all->phases += stage->phases;
    all->latency_ms += stage->latency_ms;
    all->wire_ms += stage->wire_ms;
    all->step_ms += stage->step_ms;
}

/* Decoding sequences go through the stages in as many turns as there are stages, so that all have something to do; a
 * prompt's chunks follow each other. */
void predict(const struct k3_config *c, const struct layout *l, const struct device *d, const struct predict_options *o,
             const struct predict_step *step, struct prediction *p)
{
    int turns = step->prefill || step->seqs < l->pp ? step->prefill ? 1 : step->seqs : l->pp;
    struct predict_step turn = *step;
    double slowest = 0;

    turn.seqs = (step->seqs + turns - 1) / turns;
    *p = (struct prediction){.bytes = 0};
    for (int stage = 0; stage < l->pp; stage++) {
        struct prediction one;
        predict_rank(c, l, stage * l->tp, d, o, &turn, &one);
        add_stage(p, &one);
        slowest = fmax(slowest, one.step_ms);
    }
    p->wait_ms = fmax(turns * slowest - p->step_ms, 0);
    p->step_ms += p->wait_ms;
    p->tokens_per_second = step->prefill ? step->prefill / slowest * 1e3 : step->seqs / p->step_ms * 1e3;
}
