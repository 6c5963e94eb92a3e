#include "queue/engine.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <time.h>

#include "common/alloc.h"
#include "common/log.h"

struct engines {
    unsigned int n;
    TAILQ_HEAD(, engine) list;
};

struct engines *engines_create(void)
{
    struct engines *es = k3_zalloc(sizeof *es);

    TAILQ_INIT(&es->list);
    return es;
}

void engines_destroy(struct engines *es)
{
    int saved = errno;

    if (!es)
        return;
    while (!TAILQ_EMPTY(&es->list))
        engines_remove(es, TAILQ_FIRST(&es->list));
    free(es);
    errno = saved;
}

static char *take(char **s)
{
    char *taken = *s ? *s : k3_strdup("");

    *s = NULL;
    return taken;
}

static void enter(struct engine *e, enum engine_state state)
{
    if (e->state == state)
        return;
    log_info("job %u engine on %s: %s to %s", e->job, e->node, engine_state_name(e->state), engine_state_name(state));
    e->state = state;
    e->since = (double)time(NULL);
}

struct engine *engines_add(struct engines *es, const struct frame_peer *peer, uint16_t version,
                           struct message_engine_hello *hello, double now)
{
    struct engine *e = k3_zalloc(sizeof *e);

    e->peer = *peer;
    e->version = version;
    e->job = hello->job;
    e->incarnation = hello->inc;
    e->node = take(&hello->node);
    e->model = take(&hello->model);
    e->layout = take(&hello->layout);
    e->ranks = hello->ranks;
    e->heard = now;
    TAILQ_INIT(&e->leases);
    TAILQ_INSERT_TAIL(&es->list, e, link);
    es->n++;
    enter(e, ENGINE_LOADING);
    return e;
}

void engines_remove(struct engines *es, struct engine *e)
{
    TAILQ_REMOVE(&es->list, e, link);
    es->n--;
    free(e->node);
    free(e->model);
    free(e->layout);
    free(e->loaded.v);
    free(e->total.v);
    free(e);
}

struct engine *engines_by_peer(const struct engines *es, const struct frame_peer *peer)
{
    struct engine *e;

    TAILQ_FOREACH(e, &es->list, link)
    if (frame_peer_equal(&e->peer, peer))
        break;
    return e;
}

struct engine *engines_by_job(const struct engines *es, uint32_t job)
{
    struct engine *e;

    TAILQ_FOREACH(e, &es->list, link)
    if (e->job == job)
        break;
    return e;
}

struct engine *engines_silent(const struct engines *es, double now, double timeout_sec)
{
    struct engine *e;

    TAILQ_FOREACH(e, &es->list, link)
    if (now - e->heard > timeout_sec)
        break;
    return e;
}

struct engine *engines_stalled(const struct engines *es, double now, double stall_sec)
{
    struct engine *e;

    TAILQ_FOREACH(e, &es->list, link)
    if (e->leased > 0 && now - e->moved > stall_sec)
        break;
    return e;
}

struct engine *engines_after(const struct engines *es, const struct engine *e)
{
    return e ? TAILQ_NEXT(e, link) : TAILQ_FIRST(&es->list);
}

unsigned int engines_count(const struct engines *es)
{
    return es->n;
}

static void take_array(struct message_u64s *to, struct message_u64s *from)
{
    free(to->v);
    *to = *from;
    *from = (struct message_u64s){0};
}

void engine_load(struct engine *e, struct message_engine_load *load)
{
    take_array(&e->loaded, &load->ld);
    take_array(&e->total, &load->lt);
}

void engine_ready(struct engine *e, const struct message_engine_ready *ready)
{
    e->slots = ready->slots;
    e->context = ready->ctx;
    if (e->state != ENGINE_FENCED)
        enter(e, ENGINE_SERVING);
    engine_credit(e, ready->credit);
}

/* A BATCH may have been on its way when this was written, so the slots bound what the engine can be given on top of it.
 * A fenced engine must have let go of everything: what it says of a request that it is given again would be about both.
 */
void engine_credit(struct engine *e, uint32_t n)
{
    uint32_t free_slots = e->slots > e->busy ? e->slots - e->busy : 0;

    if (e->state == ENGINE_FENCED && n < e->slots)
        return;
    if (e->state == ENGINE_FENCED)
        enter(e, ENGINE_SERVING);
    e->credit = n < free_slots ? n : free_slots;
}

void engine_beat(struct engine *e, const struct message_heartbeat *beat, double now)
{
    e->rate = beat->rate;
    if (beat->steps != e->steps)
        e->moved = now;
    e->steps = beat->steps;
}

void engine_drains(struct engine *e)
{
    e->credit = 0;
    enter(e, ENGINE_DRAINING);
}

void engine_fence(struct engine *e)
{
    e->credit = 0;
    enter(e, ENGINE_FENCED);
}

bool engine_has_room(const struct engine *e)
{
    return e->state == ENGINE_SERVING && e->credit > 0;
}

bool engine_less_loaded(const struct engine *a, const struct engine *b)
{
    uint64_t load_a = (uint64_t)a->busy * b->slots, load_b = (uint64_t)b->busy * a->slots;

    return load_a != load_b ? load_a < load_b : a->credit > b->credit;
}

struct order_limits engine_limits(const struct engine *e)
{
    return (struct order_limits){.context = e->context, .choices = e->version < WIRE_VERSION_CHOICES ? 1 : e->slots};
}

bool engines_misfit(const struct engines *es, const struct order_limits *need, struct k3_error *err)
{
    struct order_limits most = {0};
    struct engine *e;

    TAILQ_FOREACH(e, &es->list, link)
    {
        struct order_limits can = engine_limits(e);
        if (e->state != ENGINE_SERVING || (need->context <= can.context && need->choices <= can.choices))
            return false;
        most.context = can.context > most.context ? can.context : most.context;
        most.choices = can.choices > most.choices ? can.choices : most.choices;
    }
    if (need->context > most.context)
        k3_errorf(err, "prompt and answer are %" PRIu64 " tokens, the engine's longest context is %" PRIu64,
                  need->context, most.context);
    else
        k3_errorf(err, "%u answers are asked for, the engine works on %u at once", need->choices, most.choices);
    return es->n > 0;
}

void engine_lease(struct engine *e, struct request *r, double now)
{
    if (e->leased == 0)
        e->moved = now;
    r->engine = e;
    r->tokens_leased = r->tokens;
    TAILQ_INSERT_TAIL(&e->leases, r, lease);
    e->leased++;
    e->busy += request_choices(r);
    e->credit -= e->credit < request_choices(r) ? e->credit : request_choices(r);
}

void engine_release(struct engine *e, struct request *r)
{
    r->engine = NULL;
    TAILQ_REMOVE(&e->leases, r, lease);
    e->leased--;
    e->busy -= request_choices(r);
}
