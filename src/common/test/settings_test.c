/* settings_test.c - k3.conf: order of sources, refusals that name file, line and key, what --show-config prints */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/settings.h"

static char path[] = "/tmp/k3-settings-XXXXXX";

static int make_file(void **state)
{
    int fd = mkstemp(path);
    (void)state;
    return fd < 0 ? -1 : close(fd);
}

static int remove_file(void **state)
{
    (void)state;
    return unlink(path);
}

static int load(struct settings *s, const char *text, struct k3_error *err)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
    return settings_load(s, path, err);
}

static void an_empty_file_leaves_the_defaults(void **state)
{
    struct settings s;
    struct k3_error err;
    (void)state;
    assert_int_equal(load(&s, "", &err), 0);
    assert_string_equal(s.common.socket, "ipc:///run/k3/k3queued.sock");
    assert_string_equal(s.common.munge_socket, "");
    assert_int_equal(s.k3queued.max_output, 8 << 20);
    assert_true(s.k3queued.heartbeat == 1.0);
    assert_int_equal(s.k3served.page_tokens, 64);
    assert_string_equal(s.k3submit.reasoning_effort, "max");
    assert_true(s.k3submit.top_p == 0.95);
    settings_clear(&s);
}

static void the_file_replaces_them(void **state)
{
    struct settings s;
    struct k3_error err;
    (void)state;
    assert_int_equal(
        load(&s,
             "common: { socket = \"ipc:///tmp/a.sock\"; };\n"
             "# 99999999999, k3served: { prefix_slots = 99999999999; /*\n"
             "/* 99999999999 // * */ k3served: { prefix_slots = 4; restart_delay = 2; drain_timeout = 0.5;\n"
             "model = \"\\\"99999999999\"; } // 99999999999\n",
             &err),
        0);
    assert_string_equal(s.k3served.model, "\"99999999999");
    assert_string_equal(s.common.socket, "ipc:///tmp/a.sock");
    assert_int_equal(s.k3served.prefix_slots, 4);
    assert_true(s.k3served.restart_delay == 2.0);
    assert_true(s.k3served.drain_timeout == 0.5);
    assert_int_equal(s.k3served.slots, 8);
    settings_clear(&s);
}

static void mistakes_are_named_with_file_and_line(void **state)
{
    static const struct {
        const char *text, *line, *sentence;
    } wrong[] = {
        {"k3served: {\n tq = 4; };", ":2: ", "there is no setting k3served.tq"},
        {"\nk3server: { prefix_slots = 4; };", ":2: ", "there is no section k3server"},
        {"k3served = 4;", ":1: ", "k3served is a section"},
        {"k3served: {\n\n prefix_slots = \"4\"; };",
         ":3: ", "k3served.prefix_slots: text in quotes is not a whole number, 0 to 4096"},
        {"k3served: {\n prefix_slots = 4.5; };",
         ":2: ", "k3served.prefix_slots: a number with a fraction is not a whole number"},
        {"k3served: {\n prefix_slots = -1; };", ":2: ", "k3served.prefix_slots: -1 is not"},
        {"k3served: {\n slots = 4294967296L; };", ":2: ", "k3served.slots: 4294967296 is not"},
        {"k3served: {\n slots = 99999999999; };", ":2: ", "99999999999 is more than any setting can be"},
        {"k3served: {\n slots = 4294967297; };", ":2: ", "4294967297 is more than any setting can be"},
        {"# 1 \"\n/* 2\n */ k3served: { model = \"a\\\"\n 1\";\n // 3\n prefix_slots = 0x1FFFFFFFF; };",
         ":6: ", "0x1FFFFFFFF is more than any setting can be"},
        {"k3served: {\n model = true; };", ":2: ", "k3served.model: true or false is not text in quotes"},
        {"common: {\n log_level = \"loud\"; };", ":2: ", "common.log_level: \"loud\" is not one of err warning"},
        {"k3submit: {\n top_p = 1.5; };", ":2: ", "k3submit.top_p: 1.5 is not a number, 0 to 1"},
        {"k3served: {\n prefix_slots = (1, 2); };", ":2: ", "k3served.prefix_slots: a group or list is not"},
        {"k3served: {\n prefix_slots = 4;\n prefix_slots = 5; };", ":3: ", "duplicate"},
        {"k3served: {\n prefix_slots = ; };", ":2: ", "syntax error"},
    };
    struct settings s;
    struct k3_error err;
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(load(&s, wrong[i].text, &err), -1);
        assert_int_equal(errno, EINVAL);
        assert_memory_equal(err.text, path, strlen(path));
        assert_memory_equal(err.text + strlen(path), wrong[i].line, strlen(wrong[i].line));
        if (!strstr(err.text, wrong[i].sentence))
            fail_msg("%s lacks: %s", err.text, wrong[i].sentence);
    }
}

static void the_environment_names_the_file(void **state)
{
    struct settings s;
    struct k3_error err;
    (void)state;
    assert_int_equal(load(&s, "k3served: { prefix_slots = 3; };", &err), 0);
    settings_clear(&s);
    setenv("K3_CONF", path, 1);
    assert_int_equal(settings_load(&s, NULL, &err), 0);
    assert_int_equal(s.k3served.prefix_slots, 3);
    settings_clear(&s);
    setenv("K3_CONF", "/nonexistent/k3.conf", 1);
    assert_int_equal(settings_load(&s, NULL, &err), -1);
    assert_string_equal(err.text, "/nonexistent/k3.conf: No such file or directory");
    setenv("K3_CONF", "/", 1);
    assert_int_equal(settings_load(&s, NULL, &err), -1);
    assert_string_equal(err.text, "/: Is a directory");
    unsetenv("K3_CONF");
}

static void a_typed_value_wins_and_is_checked(void **state)
{
    struct settings s;
    struct k3_error err;
    (void)state;
    assert_int_equal(load(&s, "k3submit: { temperature = 0.5; };", &err), 0);
    assert_int_equal(settings_set(&s, "k3submit.temperature", "0.7", "--temperature", &err), 0);
    assert_true(s.k3submit.temperature == 0.7);
    assert_int_equal(settings_set(&s, "k3submit.temperature", "hot", "--temperature", &err), -1);
    assert_string_equal(err.text, "--temperature: k3submit.temperature: hot is not a number, 0 to 10");
    assert_int_equal(settings_set(&s, "k3submit.max_tokens", "1e3", "-", &err), -1);
    assert_int_equal(settings_set(&s, "k3submit.max_tokens", "", "-", &err), -1);
    assert_int_equal(settings_set(&s, "k3submit.temperature", "nan", "-", &err), -1);
    assert_true(s.k3submit.temperature == 0.7);
    assert_int_equal(settings_set(&s, "nothing", "1", "-", &err), -1);
    settings_clear(&s);
}

static void get_prints_one_value(void **state)
{
    struct settings s;
    struct k3_error err;
    char *text;
    (void)state;
    assert_int_equal(load(&s, "", &err), 0);
    assert_string_equal(text = settings_get(&s, "k3served.restarts", &err), "3");
    free(text);
    assert_string_equal(text = settings_get(&s, "k3queued.heartbeat", &err), "1.0");
    free(text);
    assert_string_equal(text = settings_get(&s, "common.log_level", &err), "info");
    free(text);
    assert_null(settings_get(&s, "k3served.tq", &err));
    assert_string_equal(err.text, "there is no setting k3served.tq");
    settings_clear(&s);
}

/* What manual.h prints is the rows' text, not the value that was parsed from it. */
static void defaults_are_written_as_they_are_shown(void **state)
{
    const struct conf_table *t = settings_table();
    struct settings s;
    struct k3_error err;
    (void)state;
    assert_int_equal(load(&s, "", &err), 0);
    for (size_t i = 0; i < t->count; i++) {
        char name[100], *text;
        snprintf(name, sizeof name, "%s.%s", t->rows[i].section, t->rows[i].key);
        assert_string_equal(text = settings_get(&s, name, &err), t->rows[i].initial);
        free(text);
    }
    settings_clear(&s);
}

static char *shown(const struct settings *s)
{
    char *text;
    size_t size;
    FILE *f = open_memstream(&text, &size);
    assert_non_null(f);
    settings_show(s, f);
    fclose(f);
    return text;
}

/* Also proves that every default is within its own range and choices. */
static void what_is_shown_can_be_read_back(void **state)
{
    struct settings s, again;
    struct k3_error err;
    (void)state;
    assert_int_equal(load(&s, "k3served: {\n\n model = \"/a \\\"b\\\" \\\\c\"; };", &err), 0);
    char *first = shown(&s);
    char expected[100];
    snprintf(expected, sizeof expected, "model = \"/a \\\"b\\\" \\\\c\"; # %s:3\n", path);
    assert_non_null(strstr(first, expected));
    assert_non_null(strstr(first, "heartbeat = 1.0; # built in\n"));
    if (load(&again, first, &err) < 0)
        fail_msg("%s", err.text);
    assert_string_equal(again.k3served.model, "/a \"b\" \\c");
    assert_true(again.k3submit.top_p == s.k3submit.top_p);
    free(first);
    settings_clear(&s);
    settings_clear(&again);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_empty_file_leaves_the_defaults),      cmocka_unit_test(the_file_replaces_them),
        cmocka_unit_test(mistakes_are_named_with_file_and_line),  cmocka_unit_test(the_environment_names_the_file),
        cmocka_unit_test(a_typed_value_wins_and_is_checked),      cmocka_unit_test(get_prints_one_value),
        cmocka_unit_test(defaults_are_written_as_they_are_shown), cmocka_unit_test(what_is_shown_can_be_read_back),
    };
    return cmocka_run_group_tests_name("settings", tests, make_file, remove_file);
}
