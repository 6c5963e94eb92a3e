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

/* How long the answer may become; everything that fits when the user does not say. */
static int64_t most_tokens(const struct prepare_limits *l, const struct message_lease *request,
                           const struct tokens *prompt, const struct tokens *resumed, struct k3_error *err)
{
    int64_t room = l->context - (int64_t)prompt->n, most = request->ask.max ? request->ask.max : room;

    errno = EINVAL;
    if (prompt->n == 0)
        return k3_errorf(err, "the prompt is empty");
    if (room < 1)
        return k3_errorf(err, "the prompt has %zu tokens, and this engine holds %" PRId64 " of prompt and answer",
                         prompt->n, l->context);
    if (most > room)
        return k3_errorf(err,
                         "the prompt has %zu tokens and the answer may have %" PRId64
                         " more, and this engine holds %" PRId64 " of both",
                         prompt->n, most, l->context);
    if ((int64_t)resumed->n > most)
        return k3_errorf(err, "the answer has %zu tokens already, but may have %" PRId64, resumed->n, most);
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

struct sequence *prepare_sequence(const struct prepare_limits *l, const struct message_lease *request, uint64_t lease,
                                  struct k3_error *err)
{
    const struct message_ask *ask = &request->ask;
    struct sampling sampling = sampling_of(ask);
    struct output_options o = {.vocab = l->vocab,
                               .chat = ask->req.len > 0,
                               .start = PARSER_IN_RESPONSE,
                               .ignore_stop_ids = ask->ieos,
                               .stop = (const char *const *)ask->stop.v,
                               .stops = ask->stop.n};
    struct tokens prompt = {0}, resumed = {0};
    struct sequence *q = NULL;
    struct output *output;
    int64_t most;

    if (sampling_check(&sampling, l->ids, err) < 0)
        goto out;
    if (o.chat ? render(l, &ask->req, &prompt, &o.start, err) < 0 : take_ids(l, &ask->tok, "prompt", &prompt, err) < 0)
        goto out;
    if (take_ids(l, &request->out, "answer so far", &resumed, err) < 0 ||
        (most = most_tokens(l, request, &prompt, &resumed, err)) < 0 || !(output = output_create(&o, err)))
        goto out;
    bool known = l->page_tokens > 0 && request->ckey.len >= PREFIX_KEY_MIN;
    q = sequence_create(&(struct sequence_args){.id = request->id,
                                                .prefix_key = request->ckey.data,
                                                .prefix_key_len = known ? request->ckey.len : 0,
                                                .page_tokens = l->page_tokens,
                                                .lease = lease,
                                                .prompt = prompt.id,
                                                .prompt_tokens = (int32_t)prompt.n,
                                                .resumed = resumed.id,
                                                .resumed_tokens = (int32_t)resumed.n,
                                                .max_tokens = (int32_t)most,
                                                .sampling = sampling,
                                                .output = output});
out:
    tokens_free(&prompt);
    tokens_free(&resumed);
    return q;
}
