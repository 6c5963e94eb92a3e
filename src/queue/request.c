#include "queue/request.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/alloc.h"

/* Every legal move. */
static const struct fsm_move moves[] = {
    {REQUEST_QUEUED, EVENT_LEASED, REQUEST_RUNNING},
    {REQUEST_QUEUED, EVENT_HOLD, REQUEST_HELD},
    {REQUEST_QUEUED, EVENT_SUSPEND, REQUEST_SUSPENDED},
    {REQUEST_QUEUED, EVENT_CANCEL, REQUEST_CANCELLED},
    {REQUEST_QUEUED, EVENT_FAILED, REQUEST_FAILED},
    {REQUEST_QUEUED, EVENT_EXPIRED, REQUEST_EXPIRED},

    {REQUEST_HELD, EVENT_RELEASE, REQUEST_QUEUED},
    {REQUEST_HELD, EVENT_CANCEL, REQUEST_CANCELLED},
    {REQUEST_HELD, EVENT_EXPIRED, REQUEST_EXPIRED},

    {REQUEST_SUSPENDED, EVENT_RESUME, REQUEST_QUEUED},
    {REQUEST_SUSPENDED, EVENT_CANCEL, REQUEST_CANCELLED},
    {REQUEST_SUSPENDED, EVENT_EXPIRED, REQUEST_EXPIRED},

    {REQUEST_RUNNING, EVENT_DONE, REQUEST_DONE},
    {REQUEST_RUNNING, EVENT_FAILED, REQUEST_FAILED},
    {REQUEST_RUNNING, EVENT_EXPIRED, REQUEST_EXPIRED},
    {REQUEST_RUNNING, EVENT_TAKEN_BACK, REQUEST_QUEUED},
    {REQUEST_RUNNING, EVENT_CANCEL, REQUEST_ENDING},

    /* the engine was asked to stop; the answer may have been complete by then */
    {REQUEST_ENDING, EVENT_DONE, REQUEST_DONE},
    {REQUEST_ENDING, EVENT_ENDED, REQUEST_CANCELLED},
    {REQUEST_ENDING, EVENT_FAILED, REQUEST_CANCELLED},
    {REQUEST_ENDING, EVENT_EXPIRED, REQUEST_EXPIRED},
};

static const char *const states[] = {
    [REQUEST_QUEUED] = "QUEUED",   [REQUEST_RUNNING] = "RUNNING", [REQUEST_ENDING] = "ENDING",
    [REQUEST_DONE] = "DONE",       [REQUEST_FAILED] = "FAILED",   [REQUEST_CANCELLED] = "CANCELLED",
    [REQUEST_EXPIRED] = "EXPIRED", [REQUEST_HELD] = "HELD",       [REQUEST_SUSPENDED] = "SUSPENDED",
};

static const char *const events[] = {
    [EVENT_LEASED] = "leased",   [EVENT_TAKEN_BACK] = "taken back",
    [EVENT_CANCEL] = "cancel",   [EVENT_ENDED] = "ended",
    [EVENT_DONE] = "done",       [EVENT_FAILED] = "failed",
    [EVENT_EXPIRED] = "expired", [EVENT_HOLD] = "hold",
    [EVENT_RELEASE] = "release", [EVENT_SUSPEND] = "suspend",
    [EVENT_RESUME] = "resume",
};

static const struct fsm_table life = {"req", states, events, moves, sizeof moves / sizeof *moves};

struct request *request_create(const struct k3_id *id, struct message_submit *submit, struct user *user)
{
    struct request *r = k3_zalloc(sizeof *r);

    r->id = *id;
    k3_id_format(id, r->id_text);
    r->user = user;
    r->ask = *submit;
    *submit = (struct message_submit){0};
    fsm_init(&r->life, &life, REQUEST_QUEUED);
    r->reason = "None";
    r->answer = answer_create(request_choices(r));
    TAILQ_INIT(&r->watchers);
    return r;
}

/* A message owns what it holds, so one is built around the ask to be cleared. */
void request_erase_prompt(struct request *r)
{
    struct message m = message_of(WIRE_SUBMIT, &r->id);
    struct message_ask *ask = &r->ask.ask;

    if (ask->req.data)
        explicit_bzero(ask->req.data, ask->req.len);
    if (ask->tok.v)
        explicit_bzero(ask->tok.v, ask->tok.n * sizeof *ask->tok.v);
    for (size_t i = 0; i < ask->stop.n; i++)
        explicit_bzero(ask->stop.v[i], strlen(ask->stop.v[i]));
    m.submit.ask = *ask;
    message_clear(&m);
    *ask = (struct message_ask){.max = ask->max, .n = ask->n};
}

void request_erase_answer(struct request *r)
{
    answer_destroy(r->answer);
    r->answer = NULL;
}

void request_destroy(struct request *r)
{
    int saved = errno;

    if (!r)
        return;
    request_erase_prompt(r);
    request_erase_answer(r);
    free(r->ask.name);
    free(r->done.msg);
    free(r->done.cs.v);
    free(r);
    errno = saved;
}

enum request_state request_state(const struct request *r)
{
    return (enum request_state)r->life.state;
}

int request_move(struct request *r, enum request_event event)
{
    return fsm_step(&r->life, r->id_text, event);
}

bool request_is_final(const struct request *r)
{
    switch (request_state(r)) {
    case REQUEST_DONE:
    case REQUEST_FAILED:
    case REQUEST_CANCELLED:
    case REQUEST_EXPIRED:
        return true;
    default:
        return false;
    }
}

size_t request_prompt_bytes(const struct request *r)
{
    return r->ask.ask.req.len + r->ask.ask.tok.n * sizeof *r->ask.ask.tok.v;
}

uint32_t request_choices(const struct request *r)
{
    return message_ask_choices(&r->ask.ask);
}

uint64_t request_context(const struct request *r)
{
    return (uint64_t)r->ask.ask.tok.n + (r->ask.ask.max ? r->ask.ask.max : 1);
}
