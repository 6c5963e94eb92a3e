/* sequence_test.c - a request's life on the engine */
#include "text/test/util.h"

#include "engine/sequence.h"

static const int32_t prompt[] = {10, 11, 12, 13, 14}, begun[] = {20, 21};

static struct sequence *make(int32_t resumed_tokens, int32_t max_tokens)
{
    return sequence_create(&(struct sequence_args){.id = {{1, 2, 3}},
                                                   .prompt = prompt,
                                                   .prompt_tokens = 5,
                                                   .resumed = begun,
                                                   .resumed_tokens = resumed_tokens,
                                                   .max_tokens = max_tokens});
}

static void runs_its_prompt_then_token_by_token(void **state)
{
    struct sequence *q = make(0, 3);
    int32_t n;
    (void)state;
    assert_int_equal(sequence_state(q), SEQUENCE_WAITING);
    assert_int_equal(sequence_most_tokens(q), 8);
    sequence_admit(q, 0);
    assert_int_equal(sequence_state(q), SEQUENCE_PREFILL);
    assert_memory_equal(sequence_pending(q, &n), prompt, sizeof prompt);
    assert_int_equal(n, 5);
    sequence_ran(q, 3);
    assert_int_equal(sequence_state(q), SEQUENCE_PREFILL);
    assert_int_equal(sequence_position(q), 3);
    assert_int_equal(*sequence_pending(q, &n), 13);
    sequence_ran(q, 2);
    assert_int_equal(sequence_state(q), SEQUENCE_DECODE);
    for (int32_t i = 0; i < 3; i++) {
        assert_int_equal(sequence_state(q), SEQUENCE_DECODE);
        sequence_append(q, 30 + i, NULL, NULL);
        assert_int_equal(*sequence_pending(q, &n), 30 + i);
        assert_int_equal(n, 1);
        if (i < 2)
            sequence_ran(q, 1);
    }
    assert_int_equal(sequence_state(q), SEQUENCE_ENDED);
    assert_int_equal(sequence_end(q), END_LENGTH);
    assert_int_equal(sequence_prompt_tokens(q), 5);
    assert_int_equal(sequence_answer_tokens(q), 3);
    assert_true(sequence_prefill_s(q) >= 0 && sequence_prefill_s(q) < 60);
    assert_true(sequence_decode_s(q) >= 0 && sequence_decode_s(q) < 60);
    sequence_destroy(q);
}

static void goes_on_where_another_engine_stopped(void **state)
{
    struct sequence *q = make(2, 3);
    int32_t n;
    (void)state;
    sequence_admit(q, 0);
    const int32_t *token = sequence_pending(q, &n);
    assert_int_equal(n, 7);
    assert_int_equal(token[6], 21);
    sequence_ran(q, 7);
    assert_int_equal(sequence_answer_tokens(q), 2);
    sequence_append(q, 22, NULL, NULL);
    assert_int_equal(sequence_end(q), END_LENGTH);
    sequence_destroy(q);

    q = make(2, 2); /* only its DONE had been lost */
    assert_int_equal(sequence_state(q), SEQUENCE_ENDED);
    assert_int_equal(sequence_end(q), END_LENGTH);
    assert_true(sequence_prefill_s(q) == 0 && sequence_decode_s(q) == 0);
    sequence_destroy(q);
}

static void ends_once_whatever_comes_later(void **state)
{
    struct sequence *q = make(0, 3);
    (void)state;
    sequence_admit(q, 0);
    sequence_finish(q, END_FAILED, "a row went bad");
    sequence_finish(q, END_CANCELLED, NULL);
    assert_int_equal(sequence_end(q), END_FAILED);
    assert_string_equal(sequence_sentence(q), "a row went bad");
    sequence_destroy(q);

    q = make(0, 3);
    sequence_finish(q, END_CANCELLED, NULL); /* before it was admitted */
    assert_int_equal(sequence_end(q), END_CANCELLED);
    assert_null(sequence_sentence(q));
    sequence_destroy(q);
}

static void take(void *arg, const struct message_delta *d)
{
    char *text = arg;
    for (size_t i = 0; i < d->parts.n; i++)
        strncat(text, d->parts.v[i].txt.data, d->parts.v[i].txt.len);
}

static void the_last_token_brings_what_was_held_back(void **state)
{
    struct k3_error err;
    struct vocab *toy = toy_vocab(768);
    const char *stop = "no";
    struct sequence *q = sequence_create(&(struct sequence_args){
        .prompt = prompt,
        .prompt_tokens = 5,
        .max_tokens = 2,
        .output = output_create(&(struct output_options){.vocab = toy, .stop = &stop, .stops = 1}, &err)});
    char text[8] = "";
    (void)state;
    sequence_admit(q, 0);
    sequence_ran(q, 5);
    sequence_append(q, 'n', take, text);
    assert_string_equal(text, "");
    sequence_ran(q, 1);
    sequence_append(q, 'n', take, text);
    assert_int_equal(sequence_end(q), END_LENGTH);
    assert_string_equal(text, "nn");
    sequence_destroy(q);
    vocab_destroy(toy);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(runs_its_prompt_then_token_by_token),
        cmocka_unit_test(goes_on_where_another_engine_stopped),
        cmocka_unit_test(ends_once_whatever_comes_later),
        cmocka_unit_test(the_last_token_brings_what_was_held_back),
    };
    return cmocka_run_group_tests_name("sequence", tests, NULL, NULL);
}
