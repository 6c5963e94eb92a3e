#include "engine/test/tiny.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/alloc.h"
#include "common/log.h"
#include "model/jsontext.h"
#include "model/synthetic.h"

enum { VOCABULARY = 1024, CONFIG_BYTES = 1 << 20 };

static struct {
    struct k3_config config;
    struct shard shard;
    struct comm *comm;
    struct k3_stream *stream; /* that the weights were loaded for */
    struct weights *weights;
} model;

static int32_t least(int32_t a, int32_t b)
{
    return a < b ? a : b;
}

int32_t tiny_below(uint32_t *seed, int32_t n)
{
    *seed = *seed * 1664525u + 1013904223u;
    return (int32_t)((*seed >> 8) % (uint32_t)n);
}

void tiny_random_request(uint32_t *seed, struct tiny_request *r)
{
    static const int32_t longest[] = {3, 70, 200, 450};

    memset(r, 0, sizeof *r);
    r->prompt_tokens = 1 + tiny_below(seed, longest[tiny_below(seed, 4)]);
    r->max_tokens = 1 + tiny_below(seed, least(40, TINY_CONTEXT - r->prompt_tokens));
    for (int32_t i = 0; i < r->prompt_tokens; i++)
        r->prompt[i] = tiny_below(seed, VOCABULARY);
    r->sampling = (struct sampling){.temperature = tiny_below(seed, 3) == 0 ? 0.0f : 1.0f,
                                    .top_p = tiny_below(seed, 2) ? 1.0f : 0.9f,
                                    .top_k = tiny_below(seed, 2) ? 0 : 50,
                                    .seed = (uint64_t)tiny_below(seed, 1 << 20)};
}

/* --- the model ------------------------------------------------------------------------------------------------------
 */

/* A checkpoint is made from the config, loaded, and gone again. */
static int load_from(const char *dir, struct k3_error *err)
{
    char *file = k3_asprintf("%s/model.safetensors", dir);
    int rc = synthetic_write(&model.config, file, err);

    if (rc == 0)
        model.weights = weights_load(dir, &model.config, &model.shard, model.stream, NULL, err);
    unlink(file);
    free(file);
    return model.weights ? 0 : -1;
}

int tiny_load(void **state)
{
    const char *tmp = getenv("TMPDIR");
    char *dir = k3_asprintf("%s/k3tiny.XXXXXX", tmp ? tmp : "/tmp"), *text;
    struct k3_error err = {"no directory for its files"};
    size_t len;
    int rc = -1;

    (void)state;
    k3_log_level(LOG_WARNING);
    model.shard = (struct shard){.tp = 1};
    model.comm = comm_self_create();
    model.stream = kern_stream_create("cpu", 1);
    if ((text = jsontext_load(TEST_MODELS "/tiny-a.json", CONFIG_BYTES, &len, &err)) &&
        k3_config_parse("tiny-a.json", text, len, &model.config, &err) == 0 && mkdtemp(dir)) {
        rc = load_from(dir, &err);
        rmdir(dir);
    }
    if (rc < 0)
        fprintf(stderr, "tiny-a: %s\n", err.text);
    free(text);
    free(dir);
    return rc;
}

int tiny_unload(void **state)
{
    (void)state;
    weights_destroy(model.weights);
    kern_stream_destroy(model.stream);
    comm_destroy(model.comm);
    return 0;
}

/* --- an engine ------------------------------------------------------------------------------------------------------
 */

struct tiny *tiny_create(const struct tiny_limits *l)
{
    struct tiny *t = k3_zalloc(sizeof *t);
    struct cache_limits cache = {l->slots, l->pages, l->page_tokens};
    struct forward_limits forward = {.rows = l->rows,
                                     .outputs = l->slots,
                                     .slots = l->slots,
                                     .checkpoints = l->checkpoints,
                                     .pages = l->pages,
                                     .page_tokens = l->page_tokens};
    struct plan_limits plan = {.rows = l->rows,
                               .slots = l->slots,
                               .checkpoints = l->checkpoints,
                               .pages = l->pages,
                               .slot_pages = (TINY_CONTEXT + l->page_tokens - 1) / l->page_tokens,
                               .page_tokens = l->page_tokens};
    struct k3_error err;

    t->limits = *l;
    t->stream = kern_stream_create("cpu", l->threads);
    assert_non_null(t->stream);
    forward.slot_pages = plan.slot_pages;
    forward.latents = kern_latent_dtype(t->stream);
    t->forward = forward_create(&model.config, &model.shard, model.weights, model.comm, t->stream, &forward, &err);
    assert_non_null(t->forward);
    t->cache = cache_create(&cache);
    t->prefix = prefix_create(t->cache, l->checkpoints);
    t->scheduler = scheduler_create(t->cache, t->prefix, l->slots, l->chunk);
    t->plan = plan_create(&plan);
    t->sampler = sampler_create(model.config.vocab);
    return t;
}

void tiny_destroy(struct tiny *t)
{
    scheduler_destroy(t->scheduler);
    prefix_destroy(t->prefix);
    assert_int_equal(cache_free_slots(t->cache), t->limits.slots);
    assert_int_equal(cache_free_pages(t->cache), t->limits.pages);
    cache_destroy(t->cache);
    plan_destroy(t->plan);
    sampler_destroy(t->sampler);
    forward_destroy(t->forward);
    kern_stream_destroy(t->stream);
    free(t->answer);
    free(t);
}

uint64_t tiny_add(struct tiny *t, const struct tiny_request *r, struct tiny_answer *answer)
{
    struct cache_limits cache = {t->limits.slots, t->limits.pages, t->limits.page_tokens};
    int32_t choices = r->choices > 0 ? r->choices : 1;
    struct cache_need need = {r->prompt_tokens + r->max_tokens, choices - 1, r->prompt_tokens};
    struct sequence *first = NULL;

    t->answer = k3_reallocarray(t->answer, (size_t)t->leases + 1, sizeof *t->answer);
    t->answer[t->leases] = answer;
    memset(answer, 0, (size_t)choices * sizeof *answer);
    assert_true(cache_can_hold(&cache, &need));
    for (int32_t i = 0; i < choices; i++) {
        struct sequence_args args = {.lease = (uint64_t)t->leases,
                                     .prompt = r->prompt,
                                     .prompt_tokens = r->prompt_tokens,
                                     .max_tokens = r->max_tokens,
                                     .sampling = r->sampling,
                                     .prefix_key = r->key,
                                     .prefix_key_len = t->limits.checkpoints > 0 ? sizeof r->key : 0,
                                     .page_tokens = t->limits.page_tokens};
        args.sampling.seed += (uint64_t)i;
        struct sequence *q = sequence_create(&args);
        if (first)
            sequence_add_choice(first, q);
        else
            first = q;
    }
    scheduler_add(t->scheduler, first);
    return (uint64_t)t->leases++;
}

/* FNV-1a 64. */
static uint64_t hash(const void *data, size_t len)
{
    const unsigned char *byte = data;
    uint64_t h = 0xcbf29ce484222325;

    for (size_t i = 0; i < len; i++)
        h = (h ^ byte[i]) * 0x100000001b3;
    return h;
}

static void sample(struct tiny *t, struct sequence *q, const float *logits)
{
    struct tiny_answer *a = &t->answer[sequence_lease(q)][sequence_choice(q)];
    struct sampler_text text = sequence_text(q);
    struct k3_error err;

    a->logits[a->count] = hash(logits, (size_t)model.config.vocab * sizeof *logits);
    a->token[a->count] = sampler_pick(t->sampler, sequence_sampling(q), logits, &text, &err);
    assert_true(a->token[a->count] >= 0);
    sequence_append(q, a->token[a->count++], NULL, NULL);
}

int tiny_step(struct tiny *t)
{
    struct forward_step step;
    const float *logits;
    struct k3_error err;

    if (scheduler_plan(t->scheduler, t->plan) == 0)
        return 0;
    assert_int_equal(plan_apply(t->plan, &step, &err), 0);
    if (forward_step(t->forward, &step, &logits, &err) < 0)
        fail_msg("%s", err.text);
    scheduler_ran(t->scheduler);
    for (int32_t i = 0, row; i < scheduler_outputs(t->scheduler); i++) {
        struct sequence *q = scheduler_output(t->scheduler, i, &row);
        sample(t, q, logits + (size_t)row * (size_t)model.config.vocab);
    }
    t->steps++;
    t->rows += step.batch.rows;
    return 1;
}

int tiny_reap(struct tiny *t, uint64_t *lease, enum sequence_end *end)
{
    struct sequence *q = scheduler_reap(t->scheduler);

    if (!q)
        return 0;
    *lease = sequence_lease(q);
    t->answer[*lease]->cached = sequence_cached_tokens(q);
    *end = sequence_common_end(q);
    sequence_destroy(q);
    return 1;
}

void tiny_finish(struct tiny *t)
{
    enum sequence_end end;
    uint64_t lease;

    do {
        while (tiny_reap(t, &lease, &end))
            ;
    } while (tiny_step(t));
}
