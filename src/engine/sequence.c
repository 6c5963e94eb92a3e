#include "engine/sequence.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/alloc.h"
#include "common/clock.h"
#include "common/fsm.h"

enum event { EV_ADMITTED, EV_CAUGHT_UP, EV_ENDED };

static const struct fsm_move moves[] = {
    {SEQUENCE_WAITING, EV_ADMITTED, SEQUENCE_PREFILL}, {SEQUENCE_PREFILL, EV_CAUGHT_UP, SEQUENCE_DECODE},
    {SEQUENCE_WAITING, EV_ENDED, SEQUENCE_ENDED}, /* cancelled, or a continuation that was complete already */
    {SEQUENCE_PREFILL, EV_ENDED, SEQUENCE_ENDED},      {SEQUENCE_DECODE, EV_ENDED, SEQUENCE_ENDED},
};

static const struct fsm_table life = {
    .what = "req",
    .states = (const char *const[]){"waiting", "prefill", "decode", "ended"},
    .events = (const char *const[]){"admitted", "caught up", "ended"},
    .moves = moves,
    .count = sizeof moves / sizeof *moves,
};

struct sequence {
    struct k3_id id;
    char id_text[K3_ID_DIGITS + 1];
    uint64_t lease;
    struct sampling sampling; /* its bias is ours */
    struct output *output;    /* or NULL */
    struct fsm life;
    double entered[SEQUENCE_STATES]; /* clock_monotonic() when each state was entered, 0: never */
    int32_t *token;                  /* [most] */
    int32_t prompt, count, most;     /* tokens of the prompt, known, possible */
    int32_t position;                /* tokens that have run */
    int32_t cached;                  /* ... of the prompt, in another sequence */
    uint8_t key[PREFIX_KEY_MAX];     /* of the user */
    size_t key_len;                  /* 0: none */
    int32_t page_tokens, pages;      /* pages: full of known tokens */
    struct prefix_hash *chain;       /* [most / page_tokens]: of those */
    enum sequence_end end;
    struct k3_error why;           /* no text: nothing to say */
    struct sequence *first, *next; /* choices of the request; next is ours */
    int32_t choice;
};

static void move(struct sequence *q, enum event event)
{
    int rc = fsm_step(&q->life, q->id_text, (int)event);

    assert(rc == 0);
    (void)rc;
    q->entered[q->life.state] = q->life.since;
}

static void end_if_complete(struct sequence *q, bool stopped)
{
    if (stopped)
        sequence_finish(q, END_STOP, NULL);
    else if (q->count == q->most)
        sequence_finish(q, END_LENGTH, NULL);
}

static void *copy(const void *list, int32_t n, size_t size)
{
    void *mine = k3_calloc((size_t)n, size);

    if (n > 0)
        memcpy(mine, list, (size_t)n * size);
    return mine;
}

/* Hash the pages that have become full. */
static void chain_pages(struct sequence *q)
{
    while (q->key_len > 0 && (q->pages + 1) * q->page_tokens <= q->count) {
        prefix_hash_page(&q->chain[q->pages], q->pages > 0 ? &q->chain[q->pages - 1] : NULL,
                         q->token + (ptrdiff_t)q->pages * q->page_tokens, q->page_tokens, q->key, q->key_len);
        q->pages++;
    }
}

struct sequence *sequence_create(const struct sequence_args *a)
{
    struct sequence *q = k3_zalloc(sizeof *q);
    bool stopped = false;

    assert(a->prompt_tokens > 0 && a->resumed_tokens <= a->max_tokens);
    q->first = q;
    q->id = a->id;
    k3_id_format(&a->id, q->id_text);
    q->lease = a->lease;
    q->sampling = a->sampling;
    q->sampling.bias = copy(a->sampling.bias, a->sampling.biases, sizeof *a->sampling.bias);
    q->sampling.bias_value = copy(a->sampling.bias_value, a->sampling.biases, sizeof *a->sampling.bias_value);
    q->output = a->output;
    fsm_init(&q->life, &life, SEQUENCE_WAITING);
    q->prompt = a->prompt_tokens;
    q->count = a->prompt_tokens + a->resumed_tokens;
    q->most = a->prompt_tokens + a->max_tokens;
    q->token = k3_calloc((size_t)q->most, sizeof *q->token);
    memcpy(q->token, a->prompt, (size_t)a->prompt_tokens * sizeof *a->prompt);
    for (int32_t i = 0; i < a->resumed_tokens; i++) {
        q->token[q->prompt + i] = a->resumed[i];
        stopped = q->output && output_token(q->output, a->resumed[i], false, NULL, NULL);
    }
    if (a->prefix_key_len > 0) {
        assert(a->prefix_key_len <= sizeof q->key && a->page_tokens > 0);
        memcpy(q->key, a->prefix_key, a->prefix_key_len);
        q->key_len = a->prefix_key_len;
        q->page_tokens = a->page_tokens;
        q->chain = k3_calloc((size_t)(q->most / q->page_tokens), sizeof *q->chain);
        chain_pages(q);
    }
    end_if_complete(q, stopped);
    return q;
}

void sequence_destroy(struct sequence *q)
{
    if (!q)
        return;

    int saved = errno;
    for (struct sequence *next; q; q = next) {
        next = q->next;
        output_destroy(q->output);
        free((void *)q->sampling.bias);
        free((void *)q->sampling.bias_value);
        free(q->token);
        free(q->chain);
        free(q);
    }
    errno = saved;
}

/* --- choices ------------------------------------------------------------------------------------------------------
 */

void sequence_add_choice(struct sequence *first, struct sequence *choice)
{
    struct sequence *last = first;

    while (last->next)
        last = last->next;
    assert(choice->prompt == first->prompt && !choice->next);
    last->next = choice;
    choice->first = first;
    choice->choice = last->choice + 1;
}

struct sequence *sequence_first(const struct sequence *q)
{
    return q->first;
}

struct sequence *sequence_next(const struct sequence *q)
{
    return q->next;
}

int32_t sequence_choice(const struct sequence *q)
{
    return q->choice;
}

bool sequence_all_ended(const struct sequence *first)
{
    for (const struct sequence *q = first; q; q = q->next)
        if (q->life.state != SEQUENCE_ENDED)
            return false;
    return true;
}

/* What ends them all at once stands behind what ends one in the enum. */
enum sequence_end sequence_common_end(const struct sequence *first)
{
    enum sequence_end end = END_STOP;

    for (const struct sequence *q = first; q; q = q->next)
        end = sequence_end(q) > end ? sequence_end(q) : end;
    return end;
}

void sequence_finish_all(struct sequence *first, enum sequence_end end, const char *sentence)
{
    for (struct sequence *q = first; q; q = q->next)
        sequence_finish(q, end, sentence);
}

/* --- life -----------------------------------------------------------------------------------------------------------
 */

const struct k3_id *sequence_id(const struct sequence *q)
{
    return &q->id;
}

uint64_t sequence_lease(const struct sequence *q)
{
    return q->lease;
}

const struct sampling *sequence_sampling(const struct sequence *q)
{
    return &q->sampling;
}

enum sequence_state sequence_state(const struct sequence *q)
{
    return (enum sequence_state)q->life.state;
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

void sequence_admit(struct sequence *q, int32_t run)
{
    assert(run < q->count);
    move(q, EV_ADMITTED);
    q->position = run;
    q->cached = run < q->prompt ? run : q->prompt;
}

int32_t sequence_cached_tokens(const struct sequence *q)
{
    return q->cached;
}

const struct prefix_hash *sequence_chain(const struct sequence *q, int32_t *pages)
{
    *pages = q->pages;
    return q->chain;
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

struct sampler_text sequence_text(const struct sequence *q)
{
    return (struct sampler_text){q->token, q->prompt, q->count};
}

void sequence_ran(struct sequence *q, int32_t n)
{
    assert(n > 0 && n <= q->count - q->position);
    q->position += n;
    if (q->life.state == SEQUENCE_PREFILL && q->position == q->count)
        move(q, EV_CAUGHT_UP);
}

void sequence_append(struct sequence *q, int32_t token, output_emit *emit, void *arg)
{
    assert(q->life.state == SEQUENCE_DECODE && q->position == q->count && q->count < q->most);
    q->token[q->count++] = token;
    chain_pages(q);
    end_if_complete(q, q->output && output_token(q->output, token, q->count == q->most, emit, arg));
}

void sequence_finish(struct sequence *q, enum sequence_end end, const char *sentence)
{
    if (q->life.state == SEQUENCE_ENDED)
        return;
    move(q, EV_ENDED);
    q->end = end;
    if (sentence)
        k3_errorf(&q->why, "%s", sentence);
}

enum sequence_end sequence_end(const struct sequence *q)
{
    assert(q->life.state == SEQUENCE_ENDED);
    return q->end;
}

const char *sequence_sentence(const struct sequence *q)
{
    return q->why.text[0] ? q->why.text : NULL;
}

/* Seconds from entering one state to entering another, the end standing for a state that was never entered. */
static double between(const struct sequence *q, enum sequence_state from, enum sequence_state to)
{
    double end = q->entered[to] > 0 ? q->entered[to] : q->entered[SEQUENCE_ENDED];

    return q->entered[from] > 0 ? end - q->entered[from] : 0;
}

double sequence_prefill_s(const struct sequence *q)
{
    return between(q, SEQUENCE_PREFILL, SEQUENCE_DECODE);
}

double sequence_decode_s(const struct sequence *q)
{
    return between(q, SEQUENCE_DECODE, SEQUENCE_ENDED);
}
