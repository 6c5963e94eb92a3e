/* error.h - the sentence a person reads when something fails
 *
 * Functions that can fail return -1 (or NULL), leave the cause in errno where there is one, and write one sentence into
 * the caller's struct k3_error.  Whoever first knows what went wrong writes it, naming the file, line, key or
 * tensor and the mend; callers may put context in front, never a second opinion. */
#ifndef K3_COMMON_ERROR_H
#define K3_COMMON_ERROR_H

struct k3_error {
    char text[512];
};

/* Write the sentence into err (which may be NULL: the caller does not care).  Keeps errno.  Always returns -1, so that
 * "return k3_errorf(err, ...)" is a failing function's last line. */
int k3_errorf(struct k3_error *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Put context before the sentence that is already there ("while reading k3.conf: " ...).  Keeps errno; returns -1. */
int k3_error_prefix(struct k3_error *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
