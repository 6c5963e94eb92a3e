/* log.h - one line an event, syslog levels
 *
 * The ids that let one request be followed come first ("req ID leased to job 7 ...").  Prompts and answers never appear
 * in a log line. */
#ifndef K3_COMMON_LOG_H
#define K3_COMMON_LOG_H

#include <syslog.h>

/* ident: the program's name (copied), first on every line.  Lines below `level` (LOG_ERR ... LOG_DEBUG) are dropped.
 * They go to stderr with a time stamp; under systemd (JOURNAL_STREAM is set) with a <N> priority prefix instead. */
void k3_log_init(const char *ident, int level);
void k3_log_level(int level);
/* LOG_* for "err", "warning", "notice", "info" or "debug"; -1 for anything else. */
int k3_log_parse_level(const char *name);

/* Keeps errno. */
void k3_log(int level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#define log_err(...) k3_log(LOG_ERR, __VA_ARGS__)
#define log_warning(...) k3_log(LOG_WARNING, __VA_ARGS__)
#define log_notice(...) k3_log(LOG_NOTICE, __VA_ARGS__)
#define log_info(...) k3_log(LOG_INFO, __VA_ARGS__)
#define log_debug(...) k3_log(LOG_DEBUG, __VA_ARGS__)

#endif
