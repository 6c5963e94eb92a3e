#include "client/when.h"

#include <ctype.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <strings.h>
#include <time.h>

enum { DAY = 86400, COUNT_MOST = 100000000 };

/* n digits into *number; what follows them, or NULL. */
static const char *digits(const char *s, int n, int *number)
{
    for (*number = 0; n > 0; n--, s++) {
        if (!isdigit((unsigned char)*s))
            return NULL;
        *number = 10 * *number + *s - '0';
    }
    return s;
}

/* As many as there are. */
static const char *count(const char *s, long *number)
{
    const char *begin = s;

    for (*number = 0; isdigit((unsigned char)*s) && *number < COUNT_MOST; s++)
        *number = 10 * *number + *s - '0';
    return s > begin && !isdigit((unsigned char)*s) ? s : NULL;
}

/* HH:MM[:SS][AM|PM], an hour may have one digit. */
static const char *clock_time(const char *s, struct tm *tm)
{
    const char *end;

    if (!(end = digits(s, 2, &tm->tm_hour)) && !(end = digits(s, 1, &tm->tm_hour)))
        return NULL;
    if (*end != ':' || !(end = digits(end + 1, 2, &tm->tm_min)))
        return NULL;
    tm->tm_sec = 0;
    if (*end == ':' && !(end = digits(end + 1, 2, &tm->tm_sec)))
        return NULL;
    const char *half = end + strspn(end, " ");
    bool am = strncasecmp(half, "am", 2) == 0, pm = strncasecmp(half, "pm", 2) == 0;
    if (am || pm) {
        if (tm->tm_hour < 1 || tm->tm_hour > 12)
            return NULL;
        tm->tm_hour = tm->tm_hour % 12 + (pm ? 12 : 0);
        end = half + 2;
    }
    return tm->tm_hour < 24 && tm->tm_min < 60 && tm->tm_sec < 60 ? end : NULL;
}

/* -1: there is no such day. */
static time_t instant(const struct tm *tm)
{
    struct tm normal = *tm;

    normal.tm_isdst = -1;
    time_t t = mktime(&normal);
    return normal.tm_mday == tm->tm_mday && normal.tm_mon == tm->tm_mon ? t : -1;
}

/* "now" has been read. */
static bool from_now(const char *s, time_t now, time_t *at)
{
    static const struct {
        const char *name; /* shortened at will */
        long seconds;
    } units[] = {{"seconds", 1}, {"minutes", 60}, {"hours", 3600}, {"days", DAY}, {"weeks", 7 * DAY}};
    long n, unit = *s ? 0 : 1;

    if (!*s) {
        *at = now;
        return true;
    }
    if (*s != '+' || !(s = count(s + 1, &n)))
        return false;
    if (!*s)
        unit = 1;
    for (size_t i = 0; !unit && i < sizeof units / sizeof *units; i++)
        if (strncasecmp(s, units[i].name, strlen(s)) == 0)
            unit = units[i].seconds;
    *at = now + n * unit;
    return unit > 0;
}

static bool of_day(const char *s, time_t now, time_t *at)
{
    static const struct {
        const char *name;
        int hour;
    } names[] = {{"midnight", 0}, {"noon", 12}, {"teatime", 16}};
    struct tm tm;
    const char *end = NULL;

    localtime_r(&now, &tm);
    for (size_t i = 0; !end && i < sizeof names / sizeof *names; i++)
        if (strcasecmp(s, names[i].name) == 0) {
            tm.tm_hour = names[i].hour;
            tm.tm_min = tm.tm_sec = 0;
            end = "";
        }
    if (!end && !(end = clock_time(s, &tm)))
        return false;
    tm.tm_isdst = -1;
    *at = mktime(&tm);
    if (*at <= now) {
        tm.tm_mday++;
        tm.tm_isdst = -1;
        *at = mktime(&tm);
    }
    return !*end;
}

/* YYYY-MM-DD[THH:MM[:SS]] */
static bool iso(const char *s, time_t *at)
{
    struct tm tm = {0};
    int year, month;

    if (!(s = digits(s, 4, &year)) || *s != '-' || !(s = digits(s + 1, 2, &month)) || *s != '-' ||
        !(s = digits(s + 1, 2, &tm.tm_mday)))
        return false;
    if (*s == 'T' && !(s = clock_time(s + 1, &tm)))
        return false;
    tm.tm_year = year - 1900;
    tm.tm_mon = month - 1;
    *at = instant(&tm);
    return !*s && *at >= 0;
}

/* MMDD[YY] and with / or . between, [-HH:MM[:SS]] */
static bool month_first(const char *s, time_t now, time_t *at)
{
    struct tm tm = {0}, today;
    int month, year;
    const char *end;

    localtime_r(&now, &today);
    if (!(s = digits(s, 2, &month)))
        return false;
    const char between = *s == '/' || *s == '.' ? *s : '\0';
    if (!(s = digits(s + !!between, 2, &tm.tm_mday)))
        return false;
    tm.tm_mon = month - 1;
    tm.tm_year = today.tm_year;
    bool has_year = (!between || *s == between) && (end = digits(s + !!between, 2, &year));
    if (has_year) {
        tm.tm_year = 100 + year;
        s = end;
    }
    if (*s == '-' && !(s = clock_time(s + 1, &tm)))
        return false;
    *at = instant(&tm);
    if (!has_year && *at >= 0 && *at <= now) {
        tm.tm_year++;
        *at = instant(&tm);
    }
    return !*s && *at >= 0;
}

int when_parse(const char *text, double now, double *at, struct k3_error *err)
{
    time_t from = (time_t)now, t = from;
    bool known;

    if (strncasecmp(text, "now", 3) == 0)
        known = from_now(text + 3, from, &t);
    else if (strcasecmp(text, "today") == 0)
        known = true;
    else if (strcasecmp(text, "tomorrow") == 0)
        known = from_now("+1day", from, &t);
    else
        known = of_day(text, from, &t) || iso(text, &t) || month_first(text, from, &t);
    if (!known)
        return k3_errorf(err, "%s is no time as in 17:30, 2027-01-31T09:00 or now+2hours", text);
    *at = (double)t;
    return 0;
}
