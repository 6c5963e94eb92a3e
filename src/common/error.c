#include "common/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int k3_errorf(struct k3_error *err, const char *fmt, ...)
{
    int saved = errno;

    if (err) {
        /* Composed aside, so that a sentence may quote the one it replaces. */
        char text[sizeof err->text];
        va_list ap;
        va_start(ap, fmt);
        vsnprintf(text, sizeof text, fmt, ap);
        va_end(ap);
        memcpy(err->text, text, sizeof text);
    }
    errno = saved;
    return -1;
}

int k3_error_prefix(struct k3_error *err, const char *fmt, ...)
{
    int saved = errno;

    if (err) {
        char text[sizeof err->text];
        va_list ap;
        va_start(ap, fmt);
        int n = vsnprintf(text, sizeof text, fmt, ap);
        va_end(ap);
        if (n >= 0 && (size_t)n < sizeof text)
            snprintf(text + n, sizeof text - (size_t)n, "%s", err->text);
        memcpy(err->text, text, sizeof text);
    }
    errno = saved;
    return -1;
}
