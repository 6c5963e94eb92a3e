#include "common/alloc.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void out_of_memory(void) __attribute__((noreturn));

static void out_of_memory(void)
{
    static const char text[] = "out of memory: stopping\n";
    fwrite(text, 1, sizeof text - 1, stderr);
    abort();
}

static void *checked(void *p)
{
    if (!p)
        out_of_memory();
    return p;
}

void *k3_zalloc(size_t bytes)
{
    return checked(calloc(1, bytes ? bytes : 1));
}

void *k3_calloc(size_t count, size_t bytes)
{
    return checked(calloc(count ? count : 1, bytes ? bytes : 1));
}

void *k3_reallocarray(void *old, size_t count, size_t bytes)
{
    return checked(reallocarray(old, count ? count : 1, bytes ? bytes : 1));
}

char *k3_strdup(const char *s)
{
    return checked(strdup(s));
}

char *k3_strndup(const char *s, size_t len)
{
    char *copy = k3_zalloc(len + 1);
    memcpy(copy, s, len);
    return copy;
}

char *k3_asprintf(const char *fmt, ...)
{
    char *s;
    va_list ap;

    va_start(ap, fmt);
    int n = vasprintf(&s, fmt, ap);
    va_end(ap);
    return checked(n < 0 ? NULL : s);
}

void *k3_try_alloc(size_t count, size_t bytes)
{
    return calloc(count ? count : 1, bytes ? bytes : 1);
}

static _Thread_local bool forbidden;

void alloc_forbid(bool forbid)
{
    forbidden = forbid;
}

bool alloc_forbidden(void)
{
    return forbidden;
}
