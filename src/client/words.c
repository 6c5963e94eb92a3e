#include "client/words.h"

#include <stdio.h>
#include <time.h>

#include "common/alloc.h"

const char *words_state(enum request_state state)
{
    static const char *const letters[REQUEST_STATES] = {
        [REQUEST_QUEUED] = "PD",  [REQUEST_RUNNING] = "R", [REQUEST_ENDING] = "CG",
        [REQUEST_DONE] = "CD",    [REQUEST_FAILED] = "F",  [REQUEST_CANCELLED] = "CA",
        [REQUEST_EXPIRED] = "TO", [REQUEST_HELD] = "H",    [REQUEST_SUSPENDED] = "S",
    };
    return state < REQUEST_STATES ? letters[state] : "?";
}

const char *words_duration(double seconds, char text[32])
{
    unsigned long s = seconds > 0 && seconds < 1e12 ? (unsigned long)seconds : 0;
    unsigned long days = s / 86400, hours = s / 3600 % 24, minutes = s / 60 % 60;

    s %= 60;
    if (days > 0)
        snprintf(text, 32, "%lu-%02lu:%02lu:%02lu", days, hours, minutes, s);
    else if (hours > 0)
        snprintf(text, 32, "%lu:%02lu:%02lu", hours, minutes, s);
    else
        snprintf(text, 32, "%lu:%02lu", minutes, s);
    return text;
}

const char *words_time(double when, char text[32])
{
    time_t t = (time_t)when;
    struct tm tm;

    if (when <= 0 || when > 1e11 || !localtime_r(&t, &tm) || strftime(text, 32, "%Y-%m-%dT%H:%M:%S", &tm) == 0)
        snprintf(text, 32, "N/A");
    return text;
}

const char *words_bytes(uint64_t bytes, char text[32])
{
    static const char units[] = "kMGTPE";
    double n = (double)bytes;
    int unit = -1;

    while (n >= 999.5 && unit < 5) {
        n /= 1000;
        unit++;
    }
    if (unit < 0)
        snprintf(text, 32, "%.0f B", n);
    else
        snprintf(text, 32, "%.*f %cB", n < 9.95 ? 2 : n < 99.5 ? 1 : 0, n, units[unit]);
    return text;
}

char *words_safe(const char *s)
{
    char *copy = k3_strdup(s ? s : "");
    char *to = copy;

    for (const char *from = copy; *from; from++) {
        unsigned char c = (unsigned char)*from, next = (unsigned char)from[1];
        if (c < ' ' || c == 0x7f) {
            *to++ = '?';
        } else if (c == 0xc2 && next >= 0x80 && next < 0xa0) { /* C1 controls */
            *to++ = '?';
            from++;
        } else {
            *to++ = (char)c;
        }
    }
    *to = '\0';
    return copy;
}

size_t words_width(const char *s)
{
    size_t columns = 0;

    for (; *s; s++)
        columns += ((unsigned char)*s & 0xc0) != 0x80;
    return columns;
}

size_t words_cut(const char *s, size_t columns)
{
    size_t bytes = 0;

    while (s[bytes] && (((unsigned char)s[bytes] & 0xc0) == 0x80 || columns-- > 0))
        bytes++;
    return bytes;
}

json_t *words_json(const char *s)
{
    return s ? json_string(s) : json_null();
}
