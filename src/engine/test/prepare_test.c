/* prepare_test.c - what becomes of a lease, and which cannot be taken */
#include "text/test/util.h"

#include "engine/prepare.h"

static struct prepare_limits limits = {.ids = 1024, .context = 100, .cache = {4, 25, 4}};
static uint32_t prompt[120], out[120];

static int load_toy(void **state)
{
    (void)state;
    limits.vocab = toy_vocab(768);
    return 0;
}

static int destroy_toy(void **state)
{
    (void)state;
    vocab_destroy((struct vocab *)limits.vocab);
    return 0;
}

static struct message_lease lease_of(size_t prompt_tokens, uint32_t max)
{
    return (struct message_lease){
        .ask = {.tok = {prompt, prompt_tokens}, .max = max, .temp = 1, .topp = 0.9, .seed = 4}};
}

static void an_answer_may_be_as_long_as_asked_or_as_fits(void **state)
{
    struct k3_error err;
    struct message_lease l = lease_of(30, 20);
    struct sequence *q = prepare_sequence(&limits, &l, 7, &err);
    (void)state;
    assert_non_null(q);
    assert_int_equal(sequence_lease(q), 7);
    assert_int_equal(sequence_prompt_tokens(q), 30);
    assert_int_equal(sequence_most_tokens(q), 50);
    assert_int_equal(sequence_sampling(q)->seed, 4);
    sequence_destroy(q);
    l = lease_of(30, 0);
    q = prepare_sequence(&limits, &l, 8, &err);
    assert_int_equal(sequence_most_tokens(q), 100);
    sequence_destroy(q);
    l = lease_of(99, 1); /* to the last token */
    q = prepare_sequence(&limits, &l, 9, &err);
    assert_non_null(q);
    sequence_destroy(q);
}

static void a_chat_is_rendered(void **state)
{
    const char *chat = "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}]}";
    struct message_lease l = lease_of(0, 5);
    struct k3_error err;
    (void)state;
    l.ask.req = (struct message_bytes){(uint8_t *)chat, strlen(chat)};
    struct sequence *q = prepare_sequence(&limits, &l, 1, &err);
    assert_non_null(q);
    int32_t n;
    const int32_t *token = sequence_pending(q, &n);
    assert_int_equal(token[0], vocab_special(limits.vocab, VOCAB_OPEN));
    assert_int_equal(token[n - 1], vocab_special(limits.vocab, VOCAB_SEP));
    sequence_destroy(q);
}

static void a_continuation_begins_behind_what_there_is(void **state)
{
    struct message_lease l = lease_of(10, 40);
    struct k3_error err;
    int32_t n;
    (void)state;
    l.out = (struct message_u32s){out, 15};
    struct sequence *q = prepare_sequence(&limits, &l, 1, &err);
    assert_int_equal(sequence_answer_tokens(q), 15);
    assert_int_equal(sequence_most_tokens(q), 50);
    sequence_pending(q, &n);
    assert_int_equal(n, 25);
    sequence_destroy(q);
    l.out.n = 40;
    q = prepare_sequence(&limits, &l, 1, &err);
    assert_int_equal(sequence_state(q), SEQUENCE_ENDED);
    sequence_destroy(q);
}

static void refuses(struct message_lease l, const char *why)
{
    struct k3_error err;
    assert_null(prepare_sequence(&limits, &l, 1, &err));
    if (!strstr(err.text, why))
        fail_msg("\"%s\" does not say \"%s\"", err.text, why);
}

static void what_cannot_be_is_refused_in_a_sentence(void **state)
{
    struct message_lease l;
    (void)state;
    refuses(lease_of(0, 5), "the prompt is empty");
    refuses(lease_of(100, 0), "the prompt has 100 tokens, and this engine holds 100 of prompt and answer");
    refuses(lease_of(90, 11), "the prompt has 90 tokens and the answer may have 11 more, and this engine holds 100");
    refuses(lease_of(90, UINT32_MAX), "may have 4294967295 more");
    l = lease_of(10, 5);
    l.out = (struct message_u32s){out, 6};
    refuses(l, "the answer has 6 tokens already, but may have 5");
    prompt[3] = 1024;
    refuses(lease_of(10, 5), "token id 1024 at 3 is not below 1024");
    prompt[3] = UINT32_MAX;
    refuses(lease_of(10, 5), "token id 4294967295 at 3");
    prompt[3] = 0;
    l = lease_of(10, 5);
    l.ask.topp = 1.5;
    refuses(l, "top");
    l = lease_of(10, 5);
    l.ask.topk = UINT32_MAX;
    refuses(l, "top");
    l = lease_of(10, 5);
    l.ask.bi = (struct message_u32s){(uint32_t[]){UINT32_MAX}, 1};
    l.ask.bv = (struct message_f32s){(float[]){1}, 1};
    refuses(l, "token id 4294967295 is not below 1024");
    l = lease_of(0, 5);
    l.ask.req = (struct message_bytes){(uint8_t *)"{}", 2};
    refuses(l, "messages");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_answer_may_be_as_long_as_asked_or_as_fits),
        cmocka_unit_test(a_chat_is_rendered),
        cmocka_unit_test(a_continuation_begins_behind_what_there_is),
        cmocka_unit_test(what_cannot_be_is_refused_in_a_sentence),
    };
    return cmocka_run_group_tests_name("prepare", tests, load_toy, destroy_toy);
}
