/* vocab_test.c - loading a vocabulary, and text to ids against tiktoken's answers */
#include "util.h"

#include <time.h>

static struct vocab *toy[2];
static const int toy_base[2] = {768, 8192};

static int load_toys(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++)
        toy[i] = toy_vocab(toy_base[i]);
    return 0;
}

static int destroy_toys(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++)
        vocab_destroy(toy[i]);
    return 0;
}

static void encodes_as_tiktoken_does(void **state)
{
    json_t *cases = load_cases("tokens.json");
    struct tokens got = {0};
    size_t i;
    json_t *c;
    (void)state;

    json_array_foreach(cases, i, c)
    {
        json_t *text = json_object_get(c, "text");
        for (int t = 0; t < 2; t++) {
            json_t *want = json_object_get(c, t == 0 ? "768" : "8192");
            tokens_clear(&got);
            assert_int_equal(vocab_encode(toy[t], json_string_value(text), json_string_length(text), &got, NULL), 0);
            bool same = got.n == json_array_size(want);
            for (size_t k = 0; same && k < got.n; k++)
                same = got.id[k] == json_integer_value(json_array_get(want, k));
            if (!same)
                fail_msg("case %zu differs with %d ranks", i, toy_base[t]);
        }
    }
    tokens_free(&got);
    json_decref(cases);
}

static void assert_ids(const struct tokens *got, const int32_t *want, size_t n)
{
    assert_int_equal(got->n, n);
    assert_memory_equal(got->id, want, n * sizeof *want);
}

static void specials_are_recognised_only_in_raw_prompts(void **state)
{
    static const char text[] = "<|open|>a[EOS]<|reserved_token_800|><|sep|";
    const struct vocab *v = toy[0];
    struct tokens plain = {0}, raw = {0}, want = {0};
    (void)state;

    assert_int_equal(vocab_encode(v, text, strlen(text), &plain, NULL), 0);
    for (size_t i = 0; i < plain.n; i++)
        assert_false(vocab_is_control(v, plain.id[i]));

    tokens_push(&want, vocab_special(v, VOCAB_OPEN));
    assert_int_equal(vocab_encode(v, "a", 1, &want, NULL), 0);
    tokens_push(&want, vocab_special(v, VOCAB_EOS));
    tokens_push(&want, 800);
    assert_int_equal(vocab_encode(v, "<|sep|", 6, &want, NULL), 0);
    assert_int_equal(vocab_encode_raw(v, text, strlen(text), &raw, NULL), 0);
    assert_ids(&raw, want.id, want.n);

    for (int32_t id = vocab_base(v); id < vocab_size(v); id++) {
        tokens_clear(&raw);
        assert_int_equal(vocab_encode_raw(v, vocab_name(v, id), strlen(vocab_name(v, id)), &raw, NULL), 0);
        assert_ids(&raw, &id, 1);
    }
    tokens_free(&plain);
    tokens_free(&raw);
    tokens_free(&want);
}

/* Encode and put the bytes together again. */
static void assert_keeps_bytes(const struct vocab *v, const char *text, size_t len)
{
    struct tokens t = {0};
    size_t at = 0;

    assert_int_equal(vocab_encode(v, text, len, &t, NULL), 0);
    for (size_t i = 0; i < t.n; i++) {
        size_t n;
        const char *bytes = vocab_bytes(v, t.id[i], &n);
        assert_non_null(bytes);
        assert_true(at + n <= len);
        assert_memory_equal(text + at, bytes, n);
        at += n;
    }
    assert_int_equal(at, len);
    tokens_free(&t);
}

static void keeps_every_byte_of_ill_formed_text(void **state)
{
    uint32_t seed = 1;
    char text[200];
    (void)state;

    for (int round = 0; round < 2000; round++) {
        size_t len = (size_t)round % sizeof text + 1;
        for (size_t i = 0; i < len; i++) {
            seed = seed * 1664525 + 1013904223;
            /* Half of the rounds lean on lead bytes, so that truncated characters are common. */
            text[i] = (char)(round % 2 ? seed >> 24 : (seed >> 24 & 0x3f) | (seed >> 23 & 1 ? 0xc0 : 0x80));
        }
        assert_keeps_bytes(toy[round & 1], text, len);
    }
}

/* An ill-formed sequence is cut as U+FFFD would be: as a symbol, so the words beside it keep their ids. */
static void ill_formed_text_is_a_symbol(void **state)
{
    struct tokens got = {0}, want = {0};
    const struct vocab *v = toy[1];
    (void)state;

    assert_int_equal(vocab_encode(v, "message\xff role", 13, &got, NULL), 0);
    assert_int_equal(vocab_encode(v, "message", 7, &want, NULL), 0);
    assert_int_equal(vocab_encode(v, "\xff", 1, &want, NULL), 0);
    assert_int_equal(vocab_encode(v, " role", 5, &want, NULL), 0);
    assert_ids(&got, want.id, want.n);
    tokens_free(&got);
    tokens_free(&want);
}

static void long_runs_are_cut(void **state)
{
    const size_t n = 60000;
    char *text = k3_zalloc(n);
    struct tokens got = {0}, want = {0};
    (void)state;

    memset(text, 'a', n);
    assert_int_equal(vocab_encode(toy[1], text, n, &got, NULL), 0);
    for (size_t at = 0; at < n; at += 25000)
        assert_int_equal(vocab_encode(toy[1], text + at, n - at < 25000 ? n - at : 25000, &want, NULL), 0);
    assert_ids(&got, want.id, want.n);
    tokens_free(&got);
    tokens_free(&want);
    free(text);
}

/* "a" and the separator 0x1c alternate, so no run is cut by Python's idea of white space, while the pre-tokenizer sees
 * one piece of symbols: the longest piece there is.  A quadratic merge would take minutes. */
static void the_longest_piece_takes_no_time(void **state)
{
    const size_t n = 400000;
    char *text = k3_zalloc(n);
    struct timespec a, b;
    (void)state;

    for (size_t i = 0; i < n; i++)
        text[i] = "--\x1c"[i % 3];
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &a);
    assert_keeps_bytes(toy[1], text, n);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &b);
    assert_true(b.tv_sec - a.tv_sec < 10);
    free(text);
}

static void refuses_text_beyond_the_limit_before_work(void **state)
{
    struct k3_error err;
    struct tokens t = {0};
    (void)state;

    /* The length alone refuses: the text is not read. */
    assert_int_equal(vocab_encode(toy[0], "", (size_t)VOCAB_TEXT_MAX + 1, &t, &err), -1);
    assert_non_null(strstr(err.text, "at most 33554432"));
    assert_int_equal(t.n, 0);
}

static void slots_follow_the_base_tokens(void **state)
{
    size_t n;
    (void)state;

    for (int t = 0; t < 2; t++) {
        const struct vocab *v = toy[t];
        int base = toy_base[t];
        assert_int_equal(vocab_base(v), base);
        assert_int_equal(vocab_size(v), base + 256);
        assert_int_equal(vocab_special(v, VOCAB_END_OF_MSG), base + 2);
        assert_string_equal(vocab_name(v, base + 3), "<|open|>");
        assert_string_equal(vocab_name(v, base + 255), "[PAD]");
        char *reserved = k3_asprintf("<|reserved_token_%d|>", base + 8);
        assert_string_equal(vocab_name(v, base + 8), reserved);
        free(reserved);
        assert_null(vocab_bytes(v, base, &n));
        assert_null(vocab_bytes(v, -1, &n));
        assert_null(vocab_name(v, base - 1));
        assert_null(vocab_name(v, base + 256));
        assert_false(vocab_is_control(v, base - 1));
        assert_false(vocab_is_control(v, base + 256));
    }
}

/* The 256 single bytes and then `more`, as a tiktoken.model. */
static char *ranks_and(const char *more, size_t *len)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    char *text = k3_zalloc(256 * 16 + strlen(more)), *s = text;

    for (int c = 0; c < 256; c++)
        s += sprintf(s, "%c%c== %d\n", digits[c >> 2], digits[(c & 3) << 4], c);
    *len = (size_t)sprintf(s, "%s", more) + (size_t)(s - text);
    return text;
}

static void hostile_rank_files_are_refused_by_line(void **state)
{
    static const struct {
        const char *more, *why;
    } cases[] = {
        {"YWI= 257\n", "line 257: the rank is not 256"},
        {"YWI= 0256\n", "line 257: the rank is not 256"},
        {"YWI= \n", "line 257: the rank is not 256"},
        {"YWI=\n", "line 257: not base64, a space and a rank"},
        {"\n", "line 257: not base64, a space and a rank"},
        {" 256\n", "line 257: not the base64 of"},
        {"YW 256\n", "line 257: not the base64 of"},
        {"Y=I= 256\n", "line 257: not the base64 of"},
        {"Y*I= 256\n", "line 257: not the base64 of"},
        {"YQ== 256\n", "line 257: the same bytes as line 98"},
        {"YWI= 256\nYWI= 257", "line 258: the same bytes as line 257"},
    };
    struct k3_error err;
    size_t len;
    (void)state;

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *text = ranks_and(cases[i].more, &len);
        assert_null(load_texts(text, len, NULL, &err));
        if (!strstr(err.text, cases[i].why) || !strstr(err.text, "/tiktoken.model: "))
            fail_msg("case %zu says: %s", i, err.text);
        free(text);
    }

    char *long_token = k3_zalloc(6000);
    memset(long_token, 'A', 5464);
    strcpy(long_token + 5464, " 256\n");
    char *text = ranks_and(long_token, &len);
    assert_null(load_texts(text, len, NULL, &err));
    assert_non_null(strstr(err.text, "not the base64 of 1 to 4096 bytes"));
    free(text);
    free(long_token);

    text = ranks_and("YWI= 256", &len); /* no line end after the last */
    struct vocab *v = load_texts(text, len, NULL, &err);
    assert_non_null(v);
    assert_int_equal(vocab_base(v), 257);
    vocab_destroy(v);
    assert_null(load_texts(text, 255 * 8, NULL, &err));
    assert_non_null(strstr(err.text, "tiktoken.model"));
    free(text);

    assert_null(load_texts("", 0, NULL, &err));
    assert_non_null(strstr(err.text, "no token for the single byte 0x00"));
    assert_null(load_texts(NULL, 0, NULL, &err));
    assert_non_null(strstr(err.text, "No such file"));
}

static void the_configuration_must_agree_about_slots(void **state)
{
    static const struct {
        const char *config, *why; /* why NULL: accepted */
    } cases[] = {
        {"{}", NULL},
        {"{\"added_tokens_decoder\": {\"256\": {\"content\": \"[BOS]\"}, \"259\": {\"content\": \"<|open|>\"}}}", NULL},
        {"{\"model_max_length\": 1000000000000000019884624838656}", NULL},
        {"{\"added_tokens_decoder\": {\"264\": {\"content\": \"<|im_user|>\"}}}", NULL},
        {"{\"added_tokens_decoder\": {\"256\": {\"content\": \"[EOS]\"}}}", "decoder.256.content: [EOS]; K3 has [BOS]"},
        {"{\"added_tokens_decoder\": {\"264\": {\"content\": \"[EOS]\"}}}", "the text of 257 begins that of 264"},
        {"{\"added_tokens_decoder\": {\"264\": {\"content\": \"[EO\"}}}", "the text of 264 begins that of 257"},
        {"{\"added_tokens_decoder\": {\"255\": {\"content\": \"x\"}}}", "not one of the special ids 256 to 511"},
        {"{\"added_tokens_decoder\": {\"512\": {\"content\": \"x\"}}}", "not one of the special ids 256 to 511"},
        {"{\"added_tokens_decoder\": {\"x\": {\"content\": \"x\"}}}", "not one of the special ids 256 to 511"},
        {"{\"added_tokens_decoder\": {\"300\": {\"content\": 7}}}", "decoder.300.content: not a text"},
        {"{\"added_tokens_decoder\": {\"300\": {\"content\": \"\"}}}", "decoder.300.content: not a text"},
        {"{\"added_tokens_decoder\": ", "tokenizer_config.json: line 1 column"},
    };
    struct k3_error err;
    size_t len;
    char *ranks = ranks_and("", &len);
    (void)state;

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct vocab *v = load_texts(ranks, len, cases[i].config, &err);
        if (cases[i].why ? v || !strstr(err.text, cases[i].why) : !v)
            fail_msg("case %zu says: %s", i, v ? "accepted" : err.text);
        if (i == 3)
            assert_string_equal(vocab_name(v, 264), "<|im_user|>");
        vocab_destroy(v);
    }
    free(ranks);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(encodes_as_tiktoken_does),
        cmocka_unit_test(specials_are_recognised_only_in_raw_prompts),
        cmocka_unit_test(keeps_every_byte_of_ill_formed_text),
        cmocka_unit_test(ill_formed_text_is_a_symbol),
        cmocka_unit_test(long_runs_are_cut),
        cmocka_unit_test(the_longest_piece_takes_no_time),
        cmocka_unit_test(refuses_text_beyond_the_limit_before_work),
        cmocka_unit_test(slots_follow_the_base_tokens),
        cmocka_unit_test(hostile_rank_files_are_refused_by_line),
        cmocka_unit_test(the_configuration_must_agree_about_slots),
    };
    return cmocka_run_group_tests_name("vocab", tests, load_toys, destroy_toys);
}
