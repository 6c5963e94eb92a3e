/* prompt_test.c - what becomes of arguments, files and standard input */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "client/prompt.h"

static char path[] = "/tmp/k3-prompt-XXXXXX";

static int make_file(void **state)
{
    int fd = mkstemp(path);
    (void)state;
    return fd < 0 || close(fd) < 0 ? -1 : 0;
}

static int remove_file(void **state)
{
    (void)state;
    return unlink(path);
}

static void write_file(const char *text, size_t len)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, len, f), len);
    fclose(f);
}

/* Read with fd as standard input (taken); the text as a string, freed by the caller. */
static char *read_with(int fd, const char *word, const char *file, struct k3_error *err)
{
    struct buf text = {NULL, 0, 0};
    struct option_texts files = {.n = file != NULL, .v = {file}};
    char *words[] = {(char *)word, "b"}, *result = NULL;
    if (fd < 0)
        close(STDIN_FILENO);
    if (fd > 0) { /* 0 already: it was closed before */
        assert_int_equal(dup2(fd, STDIN_FILENO), STDIN_FILENO);
        close(fd);
    }
    if (prompt_read(&text, words, word ? 2 : 0, &files, err) == 0) {
        buf_addc(&text, '\0');
        result = strdup(text.s);
        assert_int_equal(strlen(result) + 1, text.n);
    }
    buf_free(&text);
    return result;
}

static int null_input(void)
{
    return open("/dev/null", O_RDONLY);
}

static void check(char *got, const char *wanted)
{
    assert_non_null(got);
    assert_string_equal(got, wanted);
    free(got);
}

static void arguments_files_and_stdin_are_joined_in_that_order(void **state)
{
    struct k3_error err;
    (void)state;
    write_file("from a file\n", 12);
    check(read_with(null_input(), "a", NULL, &err), "a b");
    check(read_with(null_input(), NULL, path, &err), "from a file");
    check(read_with(open(path, O_RDONLY), "a", NULL, &err), "a b\n\nfrom a file");
    check(read_with(open(path, O_RDONLY), NULL, NULL, &err), "from a file");
    check(read_with(open(path, O_RDONLY), "a", path, &err), "a b\n\nfrom a file\n\nfrom a file");
    check(read_with(open(path, O_RDONLY), NULL, "-", &err), "from a file");
}

static void closed_or_empty_input_is_nothing(void **state)
{
    struct k3_error err;
    (void)state;
    check(read_with(-1, "a", NULL, &err), "a b");
    assert_null(read_with(-1, NULL, NULL, &err));
    assert_string_equal(err.text, "there is no text to submit");
    assert_null(read_with(null_input(), NULL, NULL, &err));
    write_file("\n", 1);
    assert_null(read_with(open(path, O_RDONLY), NULL, NULL, &err));
}

static void a_pipe_is_read_to_its_end(void **state)
{
    struct k3_error err;
    int p[2];
    (void)state;
    assert_int_equal(pipe(p), 0);
    assert_int_equal(write(p[1], "piped", 5), 5);
    close(p[1]);
    check(read_with(p[0], "a", NULL, &err), "a b\n\npiped");
}

static void an_idle_socket_is_left_out_and_a_busy_one_is_read(void **state)
{
    struct k3_error err;
    int s[2];
    (void)state;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, s), 0);
    check(read_with(s[0], "a", NULL, &err), "a b");
    close(s[1]);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, s), 0);
    assert_int_equal(write(s[1], "by ssh", 6), 6);
    close(s[1]);
    check(read_with(s[0], "a", NULL, &err), "a b\n\nby ssh");
}

static void bytes_that_are_no_text_are_replaced(void **state)
{
    struct k3_error err;
    (void)state;
    write_file("caf\xe9 \xe2\x82\xac \xe2\x82", 11);
    check(read_with(open(path, O_RDONLY), NULL, NULL, &err), "caf\xef\xbf\xbd \xe2\x82\xac \xef\xbf\xbd");
}

static void files_that_cannot_be_taken_are_named(void **state)
{
    struct k3_error err;
    (void)state;
    assert_null(read_with(null_input(), NULL, "/nonexistent", &err));
    assert_string_equal(err.text, "/nonexistent: No such file or directory");
    assert_null(read_with(null_input(), NULL, "/dev/zero", &err));
    assert_string_equal(err.text, "/dev/zero: the text is longer than 4 MiB");
    assert_null(read_with(open("/", O_RDONLY), NULL, NULL, &err));
    assert_string_equal(err.text, "standard input: Is a directory");
}

static char *json(const char *text, const char *system, bool thinking, struct k3_error *err)
{
    struct buf b = {(char *)text, strlen(text), 0};
    return prompt_json(&b, system, thinking, "high", err);
}

static void the_request_is_json(void **state)
{
    struct k3_error err;
    (void)state;
    check(json("say \"hi\"\n", NULL, true, &err),
          "{\"messages\":[{\"role\":\"user\",\"content\":\"say \\\"hi\\\"\\n\"}],\"thinking\":true,"
          "\"thinking_effort\":\"high\"}");
    check(json("x", "be terse", false, &err), "{\"messages\":[{\"role\":\"system\",\"content\":\"be terse\"},"
                                              "{\"role\":\"user\",\"content\":\"x\"}],\"thinking\":false}");
    assert_null(json("x", "caf\xe9", true, &err));
    assert_string_equal(err.text, "--system: not UTF-8 text");
}

static void a_request_that_escaping_makes_too_long_is_refused(void **state)
{
    struct k3_error err;
    size_t len = MESSAGE_REQUEST / 2;
    char *big = malloc(len + 1);
    (void)state;
    assert_non_null(big);
    memset(big, '"', len);
    big[len] = '\0';
    assert_null(json(big, NULL, true, &err));
    assert_string_equal(err.text, "the text is longer than 4 MiB");
    free(big);
}

static void token_ids_are_parsed(void **state)
{
    static const char *const wrong[] = {"", ",", "1,", ",1", "1,,2", "1;2", "-1", "1 2", "x", "4294967296", "1,2x"};
    struct message_u32s ids;
    struct k3_error err;
    (void)state;
    assert_int_equal(prompt_tokens("768,12, 4294967295 ,0", &ids, &err), 0);
    assert_int_equal(ids.n, 4);
    assert_int_equal(ids.v[0], 768);
    assert_int_equal(ids.v[2], UINT32_MAX);
    free(ids.v);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        if (prompt_tokens(wrong[i], &ids, &err) == 0)
            fail_msg("accepted: %s", wrong[i]);
    assert_non_null(strstr(err.text, "--prompt-tokens"));
}

static void a_bias_is_parsed(void **state)
{
    static const char *const wrong[] = {"",       "12",     "12:",   "12:x", ":5",
                                        "12:101", "12:nan", "12:5,", "-1:5", "4294967296:5"};
    struct message_u32s ids = {NULL, 0};
    struct message_f32s values = {NULL, 0};
    struct k3_error err;
    (void)state;
    assert_int_equal(prompt_bias("12:-100,4294967295:0.5", &ids, &values, &err), 0);
    assert_int_equal(ids.n, 2);
    assert_int_equal(values.n, 2);
    assert_int_equal(ids.v[1], UINT32_MAX);
    assert_true(values.v[0] == -100 && values.v[1] == 0.5f);
    free(ids.v);
    free(values.v);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        if (prompt_bias(wrong[i], &ids, &values, &err) == 0)
            fail_msg("taken: %s", wrong[i]);
        assert_null(ids.v);
        assert_int_equal(values.n, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arguments_files_and_stdin_are_joined_in_that_order),
        cmocka_unit_test(closed_or_empty_input_is_nothing),
        cmocka_unit_test(a_pipe_is_read_to_its_end),
        cmocka_unit_test(an_idle_socket_is_left_out_and_a_busy_one_is_read),
        cmocka_unit_test(bytes_that_are_no_text_are_replaced),
        cmocka_unit_test(files_that_cannot_be_taken_are_named),
        cmocka_unit_test(the_request_is_json),
        cmocka_unit_test(a_request_that_escaping_makes_too_long_is_refused),
        cmocka_unit_test(token_ids_are_parsed),
        cmocka_unit_test(a_bias_is_parsed),
    };
    return cmocka_run_group_tests_name("prompt", tests, make_file, remove_file);
}
