#include "client/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "common/alloc.h"

struct status {
    bool live;
    char shown[256]; /* "": nothing */
};

struct status *status_create(void)
{
    struct status *s = k3_zalloc(sizeof *s);
    const char *term = getenv("TERM");

    s->live = isatty(STDERR_FILENO) && term && *term && strcmp(term, "dumb") != 0;
    return s;
}

void status_destroy(struct status *s)
{
    if (!s)
        return;
    status_clear(s);
    free(s);
}

bool status_live(const struct status *s)
{
    return s->live;
}

void status_show(struct status *s, const char *fmt, ...)
{
    char text[sizeof s->shown];
    struct winsize size = {0};
    va_list ap;

    if (!s->live)
        return;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    /* A line that wraps cannot be taken back.  It is ASCII, so bytes are columns. */
    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1 && size.ws_col <= strlen(text))
        text[size.ws_col - 1] = '\0';
    if (strcmp(text, s->shown) == 0)
        return;
    fprintf(stderr, "\r\033[K%s", text);
    memcpy(s->shown, text, sizeof text);
}

void status_clear(struct status *s)
{
    if (!s->shown[0])
        return;
    fputs("\r\033[K", stderr);
    s->shown[0] = '\0';
}

const char *status_count(unsigned long long n, char text[32])
{
    char digits[32];
    size_t len = (size_t)snprintf(digits, sizeof digits, "%llu", n), out = 0;

    for (size_t i = 0; i < len; i++) {
        if (i > 0 && (len - i) % 3 == 0)
            text[out++] = ',';
        text[out++] = digits[i];
    }
    text[out] = '\0';
    return text;
}
