/* format_test.c - columns, words and short ids of the commands' tables */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "client/format.h"
#include "client/list.h"
#include "client/status.h"
#include "client/words.h"

static struct message_listing_row row = {
    .id = {{0x12, 0x34, 0x56, 0x78, 0x9a}},
    .user = "ada",
    .name = "caf\xc3\xa9\x1b[31m",
    .state = REQUEST_RUNNING,
    .job = 4711,
    .ctok = 120,
    .start_t = 1000,
};

static void check(const char *format, const struct message_listing_row *r, const char *wanted)
{
    char *text;
    size_t size;
    FILE *f = open_memstream(&text, &size);
    assert_non_null(f);
    format_row(format, r, 8, 1075, f);
    fclose(f);
    assert_string_equal(text, wanted);
    free(text);
}

static void columns_are_cut_padded_and_aligned(void **state)
{
    (void)state;
    check("%i", &row, "12345678\n");
    check("%I", &row, "123456789a0000000000000000000000\n");
    check("%5u|", &row, "ada  |\n");
    check("%.5u|", &row, "  ada|\n");
    check("%2u|%.2u|", &row, "ad|ad|\n");
    check("%t %T %M %k %m %A %%", &row, "R RUNNING 1:15 120 - 4711 %\n");
    check("%j|", &row, "caf\xc3\xa9?[31m|\n");
    check("%6j|%4j|", &row, "caf\xc3\xa9?[|caf\xc3\xa9|\n");
    check("%V %S", &(struct message_listing_row){0}, "N/A N/A\n");
}

static void where_it_runs_or_why_it_waits(void **state)
{
    struct message_listing_row waits = {.state = REQUEST_QUEUED, .reason = "Priority", .place = 2};
    (void)state;
    check("%R", &row, "4711\n");
    check("%R %P %t", &waits, "(Priority) 2 PD\n");
    check("%r", &row, "None\n");
    check("%M", &waits, "0:00\n");
}

static void unknown_columns_are_refused(void **state)
{
    struct k3_error err;
    (void)state;
    assert_int_equal(format_check("%i %9u %.4t%% plain", &err), 0);
    assert_int_equal(format_check("%i %.8q", &err), -1);
    assert_string_equal(err.text, "--format: there is no column %.8q");
    assert_int_equal(format_check("%", &err), -1);
    assert_int_equal(format_check("%.8", &err), -1);
    assert_int_equal(format_check("%8%", &err), -1);
}

static void types_are_a_format_too(void **state)
{
    static const char *const bad[] = {
        "", "Nonsense", "State,", "State:", "State:x", "State:9x", "State:1000", ",State"};
    struct k3_error err;
    (void)state;
    char *format = format_of_types("JobID:6,username:.5,StateCompact", &err);
    assert_string_equal(format, "%6A%.5u%20t");
    check(format, &row, "4711    adaR                   \n");
    free(format);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_null(format_of_types(bad[i], &err));
    assert_null(format_of_types("State,Nonsense:3,Name", &err));
    assert_string_equal(err.text, "--Format: there is no column Nonsense:3");
}

static void times_and_sizes_read_well(void **state)
{
    char t[32];
    (void)state;
    assert_string_equal(words_duration(0, t), "0:00");
    assert_string_equal(words_duration(-5, t), "0:00");
    assert_string_equal(words_duration(3599.9, t), "59:59");
    assert_string_equal(words_duration(3600, t), "1:00:00");
    assert_string_equal(words_duration(93784, t), "1-02:03:04");
    assert_string_equal(words_bytes(0, t), "0 B");
    assert_string_equal(words_bytes(999, t), "999 B");
    assert_string_equal(words_bytes(1000, t), "1.00 kB");
    assert_string_equal(words_bytes(97450000000, t), "97.5 GB");
    assert_string_equal(words_bytes(1559965606912, t), "1.56 TB");
    assert_string_equal(words_bytes(999600, t), "1.00 MB");
    assert_string_equal(status_count(7, t), "7");
    assert_string_equal(status_count(1240, t), "1,240");
    assert_string_equal(status_count(1234567, t), "1,234,567");
}

static void short_ids_tell_rows_apart(void **state)
{
    struct message_listing_row rows[3] = {{.id = {{1}}}, {.id = {{2}}}, {.id = {{1, 0, 0, 0, 0, 0x10}}}};
    struct list l = {rows, 0, NULL, 0};
    (void)state;
    assert_int_equal(list_digits(&l), 8);
    l.n = 2;
    assert_int_equal(list_digits(&l), 8);
    l.n = 3;
    assert_int_equal(list_digits(&l), 11);
    rows[2].id.bytes[5] = 0x01;
    assert_int_equal(list_digits(&l), 12);
    rows[2] = rows[0];
    assert_int_equal(list_digits(&l), 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(columns_are_cut_padded_and_aligned), cmocka_unit_test(where_it_runs_or_why_it_waits),
        cmocka_unit_test(unknown_columns_are_refused),        cmocka_unit_test(types_are_a_format_too),
        cmocka_unit_test(times_and_sizes_read_well),          cmocka_unit_test(short_ids_tell_rows_apart),
    };
    return cmocka_run_group_tests_name("format", tests, NULL, NULL);
}
