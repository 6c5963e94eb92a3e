#include "common/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static struct {
    char ident[32];
    int level;
    int journal;
} logger = {"k3", LOG_INFO, 0};

static const char *const level_names[] = {
    [LOG_ERR] = "err", [LOG_WARNING] = "warning", [LOG_NOTICE] = "notice", [LOG_INFO] = "info", [LOG_DEBUG] = "debug"};

void k3_log_init(const char *ident, int level)
{
    snprintf(logger.ident, sizeof logger.ident, "%s", ident);
    logger.level = level;
    logger.journal = getenv("JOURNAL_STREAM") != NULL;
}

void k3_log_level(int level)
{
    logger.level = level;
}

int k3_log_parse_level(const char *name)
{
    for (int i = LOG_ERR; i <= LOG_DEBUG; i++)
        if (strcmp(name, level_names[i]) == 0)
            return i;
    return -1;
}

void k3_log(int level, const char *fmt, ...)
{
    if (level > logger.level)
        return;

    int saved = errno;
    char line[1024], stamp[40];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    /* One event is one line, whatever a peer managed to put into a name. */
    for (char *c = line; *c; c++)
        if ((unsigned char)*c < ' ')
            *c = '?';

    /* One fprintf a line: stderr is unbuffered, but several ranks may share it. */
    if (logger.journal) {
        fprintf(stderr, "<%d>%s\n", level, line);
    } else {
        struct timespec now;
        struct tm tm;
        clock_gettime(CLOCK_REALTIME, &now);
        localtime_r(&now.tv_sec, &tm);
        size_t n = strftime(stamp, sizeof stamp, "%FT%T", &tm);
        snprintf(stamp + n, sizeof stamp - n, ".%03ld", now.tv_nsec / 1000000);
        fprintf(stderr, "%s %s[%d]: %s: %s\n", stamp, logger.ident, (int)getpid(), level_names[level], line);
    }
    errno = saved;
}
