/* alloc_test.c - between two tokens the thread that computes asks for no memory and gives none back
 *
 * Runs step_lead() as k3served does, with a malloc() that ends the program where alloc_forbidden() says so.  Its calls
 * reach the C library under the names that glibc exports for this. */
#include "text/test/util.h"

#include <pthread.h>

#include "common/alloc.h"
#include "engine/step.h"
#include "engine/test/tiny.h"

#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define INTERPOSED 1

void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *old, size_t bytes);
void *__libc_memalign(size_t align, size_t bytes);
void __libc_free(void *p);

static int calls;

static void check(const char *what)
{
    calls++;
    if (!alloc_forbidden())
        return;
    if (write(STDERR_FILENO, what, strlen(what)) > 0)
        abort();
}

void *malloc(size_t bytes)
{
    check("malloc in a step\n");
    return __libc_malloc(bytes);
}

void *calloc(size_t count, size_t bytes)
{
    check("calloc in a step\n");
    return __libc_calloc(count, bytes);
}

void *realloc(void *old, size_t bytes)
{
    check("realloc in a step\n");
    return __libc_realloc(old, bytes);
}

void *aligned_alloc(size_t align, size_t bytes)
{
    check("aligned_alloc in a step\n");
    return __libc_memalign(align, bytes);
}

void free(void *p)
{
    if (p)
        check("free in a step\n");
    __libc_free(p);
}
#else
#define INTERPOSED 0
static int calls;
#endif

enum { SLOTS = 8, TOKENS = 125, PROMPT = 150, CHOICES = 3 };

static const struct tiny_limits limits = {
    .rows = 80, .slots = SLOTS, .pages = 8 * 5, .page_tokens = 64, .chunk = 64, .threads = 2, .checkpoints = 4};

static void order(struct step *st, enum order_kind kind, struct sequence *q)
{
    struct order *o = order_create(kind);

    o->sequence = q;
    mailbox_post(st->orders, &o->mail);
}

static void *lead(void *arg)
{
    struct k3_error err;

    if (step_lead(arg, &err) == 0)
        return NULL;
    fprintf(stderr, "%s\n", err.text);
    return arg;
}

/* Chats and plain text, with and without stop strings. */
static struct sequence *sequence_of(int n, struct vocab *vocab)
{
    static const char *const stop[] = {"no answer says this", "nor that"};
    struct output_options o = {.vocab = vocab,
                               .chat = n % 2,
                               .start = n % 4 == 1 ? PARSER_IN_THINK : PARSER_IN_RESPONSE,
                               .ignore_stop_ids = true,
                               .stop = stop,
                               .stops = n % 3 ? 2 : 0};
    int32_t prompt[PROMPT];
    struct k3_error err;

    for (int i = 0; i < PROMPT; i++)
        prompt[i] = (n * 331 + i * 17) % 1024;
    return sequence_create(&(struct sequence_args){.lease = (uint64_t)n,
                                                   .prompt = prompt,
                                                   .prompt_tokens = PROMPT,
                                                   .max_tokens = TOKENS,
                                                   .sampling = {.temperature = 1,
                                                                .top_p = 0.95f,
                                                                .presence = 0.5f,
                                                                .logprobs = n % 2 ? SAMPLING_LOGPROBS : 0,
                                                                .seed = (uint64_t)n},
                                                   .output = output_create(&o, &err)});
}

/* Read reports until all have ended.  Slowly at first, so that the leader has to wait for blocks to come back. */
static void read_reports(struct step *st, uint64_t tokens[SLOTS])
{
    for (int done = 0, turn = 0; done < SLOTS - CHOICES + 1; turn++) {
        struct mail *m = mailbox_take(st->reports);
        usleep(turn < 30 ? 20000 : 0);
        if (!m)
            continue;
        struct report *r = (struct report *)m;
        if (r->message.head.type == WIRE_DELTA)
            tokens[r->lease + r->message.delta.c] += r->message.delta.ids.n;
        else
            done++;
        report_free(m);
    }
}

static void a_thousand_tokens_in_a_batch_of_8_allocate_nothing(void **state)
{
    struct tiny *t = tiny_create(&limits);
    struct vocab *vocab = toy_vocab(768);
    struct k3_error err;
    struct step st = {.comm = comm_self_create(),
                      .forward = t->forward,
                      .plan = t->plan,
                      .vocab = 1024,
                      .slots = SLOTS,
                      .chunk = limits.chunk,
                      .cache = t->cache,
                      .prefix = t->prefix,
                      .orders = mailbox_create(&err),
                      .reports = mailbox_create(&err),
                      .deltas = report_pool_create(3 * SLOTS, &err)};
    uint64_t tokens[SLOTS] = {0};
    pthread_t leader;
    void *failed;

    (void)state;
    if (INTERPOSED)
        assert_true(calls > 0);
    else
        print_message("# a sanitizer has its own malloc: only the tokens are counted\n");
    struct sequence *several = sequence_of(0, vocab);
    for (int i = 1; i < CHOICES; i++)
        sequence_add_choice(several, sequence_of(0, vocab));
    order(&st, ORDER_RUN, several);
    for (int i = CHOICES; i < SLOTS; i++)
        order(&st, ORDER_RUN, sequence_of(i, vocab));
    assert_int_equal(pthread_create(&leader, NULL, lead, &st), 0);
    read_reports(&st, tokens);
    order(&st, ORDER_STOP, NULL);
    pthread_join(leader, &failed);
    assert_null(failed);
    for (int i = 0; i < SLOTS; i++)
        assert_int_equal(tokens[i], TOKENS);
    mailbox_destroy(st.orders, order_free);
    mailbox_destroy(st.reports, report_free);
    report_pool_destroy(st.deltas);
    vocab_destroy(vocab);
    comm_destroy(st.comm);
    tiny_destroy(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_thousand_tokens_in_a_batch_of_8_allocate_nothing),
    };
    return cmocka_run_group_tests_name("alloc", tests, tiny_load, tiny_unload);
}
