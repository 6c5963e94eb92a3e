#include "engine/prepare.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "text/chat.h"
#include "text/tokens.h"

/* Ids that somebody else chose, into a list. */
static int take_ids(const struct prepare_limits *l, const struct message_u32s *ids, const char *what,
                    struct tokens *out, struct k3_error *err)
{
    for (size_t i = 0; i < ids->n; i++)
        if (ids->v[i] >= (uint32_t)l->ids) {
            errno = EINVAL;
            return k3_errorf(err,
                             "%s: token id %" PRIu32 " at %zu is not below %" PRId32 ", the size of the vocabulary",
                             what, ids->v[i], i, l->ids);
        }
    for (size_t i = 0; i < ids->n; i++)
        tokens_push(out, (int32_t)ids->v[i]);
    return 0;
}

static int render(const struct prepare_limits *l, const struct message_bytes *req, struct tokens *prompt,
                  enum parser_start *start, struct k3_error *err)
{
    struct chat_prompt *chat = chat_render((const char *)req->data, req->len, err);

    if (!chat)
        return -1;
    *start = chat_start(chat);
    int rc = chat_tokens(chat, l->vocab, prompt, err);
    chat_destroy(chat);
    return rc;
}

/* Tokens of prompt and answer that each of so many choices can have at most when all are here at once. */
static int64_t room_of(const struct prepare_limits *l, int64_t prompt, uint32_t choices)
{
    int64_t page = l->cache.page_tokens, full = prompt / page, each = full + (l->cache.pages - full) / choices;

    return each * page < l->context ? each * page : l->context;
}

/* How long each answer may become; everything that fits when the user does not say. */
static int64_t most_tokens(const struct prepare_limits *l, const struct message_lease *request,
                           const struct tokens *prompt, struct k3_error *err)
{
    uint32_t choices = message_ask_choices(&request->ask);
    int64_t here = room_of(l, (int64_t)prompt->n, choices), room = here - (int64_t)prompt->n;
    int64_t most = request->ask.max ? request->ask.max : room;

    errno = EINVAL;
    if (prompt->n == 0)
        return k3_errorf(err, "the prompt is empty");
    if (choices > (uint32_t)l->cache.slots)
        return k3_errorf(err, "%u answers are asked for, and this engine works on %" PRId32 " at once", choices,
                         l->cache.slots);
    if (room < 1)
        return k3_errorf(err, "the prompt has %zu tokens, and this engine holds %" PRId64 " of prompt and answer%s",
                         prompt->n, here, choices > 1 ? " for each of so many answers" : "");
    if (most > room)
        return k3_errorf(err,
                         "the prompt has %zu tokens and the answer may have %" PRId64
                         " more, and this engine holds %" PRId64 " of both%s",
                         prompt->n, most, here, choices > 1 ? " for each of so many answers" : "");
    return most;
}

/* Borrows the bias. */
static struct sampling sampling_of(const struct message_ask *ask)
{
    return (struct sampling){
        .temperature = (float)ask->temp,
        .top_p = (float)ask->topp,
        .top_k = (int32_t)ask->topk,
        .min_p = (float)ask->minp,
        .repetition = (float)ask->rep,
        .presence = (float)ask->pres,
        .frequency = (float)ask->freq,
        .bias = (const int32_t *)ask->bi.v,
        .bias_value = ask->bv.v,
        .biases = (int32_t)ask->bi.n,
        .logprobs = (int32_t)ask->lp,
        .seed = ask->seed,
    };
}

/* What all choices of a request have in common. */
struct prepared {
    const struct prepare_limits *limits;
    const struct message_lease *request;
    uint64_t lease;
    struct output_options output;
    struct sampling sampling;
    struct tokens prompt, resumed; /* resumed: of all choices, one after the other */
    int64_t most;
};

static struct sequence *prepare_choice(const struct prepared *p, uint32_t choice, const int32_t *resumed,
                                       uint32_t tokens, struct k3_error *err)
{
    const struct message_bytes *key = &p->request->ckey;
    struct output *output;

    if (tokens > p->most) {
        errno = EINVAL;
        k3_errorf(err, "the answer has %u tokens already, but may have %" PRId64, tokens, p->most);
        return NULL;
    }
    if (!(output = output_create(&p->output, err)))
        return NULL;
    struct sequence_args args = {.id = p->request->id,
                                 .prefix_key = key->data,
                                 .prefix_key_len = p->limits->shares && key->len >= PREFIX_KEY_MIN ? key->len : 0,
                                 .page_tokens = p->limits->cache.page_tokens,
                                 .lease = p->lease,
                                 .prompt = p->prompt.id,
                                 .prompt_tokens = (int32_t)p->prompt.n,
                                 .resumed = resumed,
                                 .resumed_tokens = (int32_t)tokens,
                                 .max_tokens = (int32_t)p->most,
                                 .sampling = p->sampling,
                                 .output = output};
    args.sampling.seed += choice;
    return sequence_create(&args);
}

static struct sequence *prepare_choices(const struct prepared *p, struct k3_error *err)
{
    const struct message_u32s *outn = &p->request->outn;
    const int32_t *resumed = p->resumed.id;
    struct sequence *first = NULL;
    uint32_t choices = message_ask_choices(&p->request->ask);

    for (uint32_t i = 0; i < choices; i++) {
        uint32_t tokens = outn->n > 0 ? outn->v[i] : i == 0 ? (uint32_t)p->resumed.n : 0;
        struct sequence *q = prepare_choice(p, i, resumed, tokens, err);
        if (!q) {
            sequence_destroy(first);
            return NULL;
        }
        if (first)
            sequence_add_choice(first, q);
        else
            first = q;
        resumed += tokens;
    }
    return first;
}

struct sequence *prepare_sequence(const struct prepare_limits *l, const struct message_lease *request, uint64_t lease,
                                  struct k3_error *err)
{
    const struct message_ask *ask = &request->ask;
    struct prepared p = {.limits = l,
                         .request = request,
                         .lease = lease,
                         .sampling = sampling_of(ask),
                         .output = {.vocab = l->vocab,
                                    .chat = ask->req.len > 0,
                                    .start = PARSER_IN_RESPONSE,
                                    .ignore_stop_ids = ask->ieos,
                                    .stop = (const char *const *)ask->stop.v,
                                    .stops = ask->stop.n}};
    struct sequence *q = NULL;

    if (sampling_check(&p.sampling, l->ids, err) < 0)
        goto out;
    if (p.output.chat ? render(l, &ask->req, &p.prompt, &p.output.start, err) < 0
                      : take_ids(l, &ask->tok, "prompt", &p.prompt, err) < 0)
        goto out;
    if (take_ids(l, &request->out, "answer so far", &p.resumed, err) == 0 &&
        (p.most = most_tokens(l, request, &p.prompt, err)) > 0)
        q = prepare_choices(&p, err);
out:
    tokens_free(&p.prompt);
    tokens_free(&p.resumed);
    return q;
}
