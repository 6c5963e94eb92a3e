/* Times as sbatch takes them, said on a Tuesday at noon. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "client/when.h"

static double said(void)
{
    struct tm tm = {.tm_year = 126, .tm_mon = 11, .tm_mday = 1, .tm_hour = 12, .tm_isdst = -1};

    return (double)mktime(&tm);
}

static void every_form_is_understood(void **state)
{
    static const struct {
        const char *text, *time;
    } forms[] = {
        {"now", "2026-12-01T12:00:00"},
        {"now+90", "2026-12-01T12:01:30"},
        {"now+90seconds", "2026-12-01T12:01:30"},
        {"now+5min", "2026-12-01T12:05:00"},
        {"now+1hour", "2026-12-01T13:00:00"},
        {"NOW+2days", "2026-12-03T12:00:00"},
        {"now+1week", "2026-12-08T12:00:00"},
        {"12:01", "2026-12-01T12:01:00"},
        {"12:00", "2026-12-02T12:00:00"}, /* has passed: tomorrow */
        {"9:30", "2026-12-02T09:30:00"},
        {"23:59:58", "2026-12-01T23:59:58"},
        {"1:30PM", "2026-12-01T13:30:00"},
        {"12:15 am", "2026-12-02T00:15:00"},
        {"midnight", "2026-12-02T00:00:00"},
        {"noon", "2026-12-02T12:00:00"},
        {"teatime", "2026-12-01T16:00:00"},
        {"today", "2026-12-01T12:00:00"},
        {"tomorrow", "2026-12-02T12:00:00"},
        {"2027-01-31", "2027-01-31T00:00:00"},
        {"2027-01-31T09:05", "2027-01-31T09:05:00"},
        {"2027-01-31T09:05:07", "2027-01-31T09:05:07"},
        {"2028-02-29", "2028-02-29T00:00:00"},
        {"1225", "2026-12-25T00:00:00"},
        {"0131", "2027-01-31T00:00:00"}, /* next year */
        {"013128", "2028-01-31T00:00:00"},
        {"12/25", "2026-12-25T00:00:00"},
        {"12/25/27", "2027-12-25T00:00:00"},
        {"12.25.27-08:00", "2027-12-25T08:00:00"},
        {"12/25-08:00:30", "2026-12-25T08:00:30"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        struct k3_error err;
        char text[32];
        double at;

        if (when_parse(forms[i].text, said(), &at, &err) < 0)
            fail_msg("%s", err.text);
        time_t t = (time_t)at;
        struct tm tm;
        strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", localtime_r(&t, &tm));
        if (strcmp(text, forms[i].time) != 0)
            fail_msg("%s is %s, not %s", forms[i].text, text, forms[i].time);
    }
}

static void what_is_no_time_is_refused(void **state)
{
    static const char *const wrong[] = {
        "",
        "soon",
        "12",
        "24:00",
        "12:60",
        "12:00:60",
        "13:00PM",
        "0:15AM",
        "12:00 x",
        "now+",
        "now+x",
        "now+1year",
        "now+999999999999",
        "now-5",
        "nowish",
        "2027-02-29",
        "2027-13-01",
        "2027-1-1",
        "2027-01-31T",
        "2027-01-31T25:00",
        "2027-01-31x",
        "1325",
        "0230",
        "12/25/",
        "12/25.27",
        "12/25-",
        "122",
        "12251",
        "-1:00",
        "now+1hoursx",
    };

    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct k3_error err;
        double at = 7;

        if (when_parse(wrong[i], said(), &at, &err) == 0)
            fail_msg("%s was taken", wrong[i]);
        assert_true(at == 7);
        assert_non_null(strstr(err.text, " is no time as in 17:30"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_form_is_understood),
        cmocka_unit_test(what_is_no_time_is_refused),
    };

    setenv("TZ", "Europe/Berlin", 1);
    return cmocka_run_group_tests_name("when", tests, NULL, NULL);
}
