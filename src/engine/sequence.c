#include "engine/sequence.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/alloc.h"
#include "common/log.h"

enum event { EV_ADMITTED, EV_CAUGHT_UP, EV_ENDED, EVENTS };

/* Every move there is; an event that a state has no row for is a mistake in the program. */
static const struct move {
    enum sequence_state from;
    enum event event;
    enum sequence_state to;
} moves[] = {
    {SEQUENCE_WAITING, EV_ADMITTED, SEQUENCE_PREFILL}, {SEQUENCE_PREFILL, EV_CAUGHT_UP, SEQUENCE_DECODE},
    {SEQUENCE_WAITING, EV_ENDED, SEQUENCE_ENDED}, /* cancelled, or a continuation that was complete already */
    {SEQUENCE_PREFILL, EV_ENDED, SEQUENCE_ENDED},      {SEQUENCE_DECODE, EV_ENDED, SEQUENCE_ENDED},
};

static const char *const state_names[SEQUENCE_STATES] = {"waiting", "prefill", "decode", "ended"};

struct sequence {
    struct k3_id id;
    enum sequence_state state;
    int64_t entered_ns[SEQUENCE_STATES]; /* when each state was entered, 0: never */
    int32_t *token;                      /* [most] */
    int32_t prompt, count, most;         /* tokens of the prompt, known, possible */
    int32_t position;                    /* tokens that have run */
    enum sequence_end end;
    char *sentence;
};

static int64_t now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

static void move(struct sequence *q, enum event event)
{
    char id[K3_ID_DIGITS + 1];

    for (size_t i = 0; i < sizeof moves / sizeof *moves; i++) {
        if (moves[i].from != q->state || moves[i].event != event)
            continue;
        int64_t now = now_ns();
        log_debug("req %s %s after %.3f s %s", k3_id_format(&q->id, id), state_names[moves[i].to],
                  (double)(now - q->entered_ns[q->state]) * 1e-9, state_names[q->state]);
        q->state = moves[i].to;
        q->entered_ns[q->state] = now;
        return;
    }
    assert(!"a move that the table does not have");
}

struct sequence *sequence_create(const struct k3_id *id, const int32_t *prompt, int32_t prompt_tokens,
                                 const int32_t *resumed, int32_t resumed_tokens, int32_t max_tokens)
{
    struct sequence *q = k3_zalloc(sizeof *q);

    assert(prompt_tokens > 0 && resumed_tokens <= max_tokens);
    q->id = *id;
    q->state = SEQUENCE_WAITING;
    q->entered_ns[SEQUENCE_WAITING] = now_ns();
    q->prompt = prompt_tokens;
    q->count = prompt_tokens + resumed_tokens;
    q->most = prompt_tokens + max_tokens;
    q->token = k3_calloc((size_t)q->most, sizeof *q->token);
    memcpy(q->token, prompt, (size_t)prompt_tokens * sizeof *prompt);
    if (resumed_tokens > 0)
        memcpy(q->token + prompt_tokens, resumed, (size_t)resumed_tokens * sizeof *resumed);
    if (q->count == q->most)
        sequence_finish(q, END_LENGTH, NULL);
    return q;
}

void sequence_destroy(struct sequence *q)
{
    if (!q)
        return;

    int saved = errno;
    free(q->token);
    free(q->sentence);
    free(q);
    errno = saved;
}

const struct k3_id *sequence_id(const struct sequence *q)
{
    return &q->id;
}

enum sequence_state sequence_state(const struct sequence *q)
{
    return q->state;
}

int32_t sequence_prompt_tokens(const struct sequence *q)
{
    return q->prompt;
}

int32_t sequence_answer_tokens(const struct sequence *q)
{
    return q->count - q->prompt;
}

int64_t sequence_most_tokens(const struct sequence *q)
{
    return q->most;
}

void sequence_admit(struct sequence *q)
{
    move(q, EV_ADMITTED);
}

const int32_t *sequence_pending(const struct sequence *q, int32_t *count)
{
    *count = q->count - q->position;
    return q->token + q->position;
}

int64_t sequence_position(const struct sequence *q)
{
    return q->position;
}

void sequence_ran(struct sequence *q, int32_t n)
{
    assert(n > 0 && n <= q->count - q->position);
    q->position += n;
    if (q->state == SEQUENCE_PREFILL && q->position == q->count)
        move(q, EV_CAUGHT_UP);
}

void sequence_append(struct sequence *q, int32_t token)
{
    assert(q->state == SEQUENCE_DECODE && q->position == q->count && q->count < q->most);
    q->token[q->count++] = token;
    if (q->count == q->most)
        sequence_finish(q, END_LENGTH, NULL);
}

void sequence_finish(struct sequence *q, enum sequence_end end, const char *sentence)
{
    if (q->state == SEQUENCE_ENDED)
        return;
    move(q, EV_ENDED);
    q->end = end;
    q->sentence = sentence ? k3_strdup(sentence) : NULL;
}

enum sequence_end sequence_end(const struct sequence *q)
{
    assert(q->state == SEQUENCE_ENDED);
    return q->end;
}

const char *sequence_sentence(const struct sequence *q)
{
    return q->sentence;
}

/* Seconds from entering one state to entering another, the end standing for a state that was never entered. */
static double between(const struct sequence *q, enum sequence_state from, enum sequence_state to)
{
    int64_t end = q->entered_ns[to] ? q->entered_ns[to] : q->entered_ns[SEQUENCE_ENDED];

    return q->entered_ns[from] ? (double)(end - q->entered_ns[from]) * 1e-9 : 0;
}

double sequence_prefill_s(const struct sequence *q)
{
    return between(q, SEQUENCE_PREFILL, SEQUENCE_DECODE);
}

double sequence_decode_s(const struct sequence *q)
{
    return between(q, SEQUENCE_DECODE, SEQUENCE_ENDED);
}
