/* profile.h - where a stream's time goes: calls, seconds, bytes and arithmetic of every operation
 *
 * A profile stands between kernels.h and the backend from kern_profile_start() to kern_profile_stop(); a stream without
 * one pays nothing.  Each call is waited for, so on a backend that queues work steps take longer while they are
 * profiled. */
#ifndef K3_KERNELS_PROFILE_H
#define K3_KERNELS_PROFILE_H

#include "kernels/kernels.h"

struct kern_profile_row {
    const char *name; /* of the operation */
    uint64_t calls;
    double seconds;
    /* What has to come from memory, whatever the backend does: weights (of experts, those that rows chose, each once),
     * KDA and convolution state in and out, cached latents.  Activations are not counted. */
    uint64_t bytes;
    /* Multiplications and additions of the matrix products, of the delta rule (5.1's recurrence) and of attention over
     * expanded keys and values. */
    uint64_t flops;
};

struct kern_profile;

/* NULL with errno ENOMEM. */
struct kern_profile *kern_profile_create(void);
void kern_profile_destroy(struct kern_profile *p);

/* One profile a stream and one stream a profile, not in the middle of a step. */
void kern_profile_start(struct kern_profile *p, struct k3_stream *s);
void kern_profile_stop(struct kern_profile *p, struct k3_stream *s);

/* All counters to 0. */
void kern_profile_reset(struct kern_profile *p);
/* One row an operation, in the order of kernels.h. */
const struct kern_profile_row *kern_profile_rows(const struct kern_profile *p, int *count);
/* Seconds from the calls to their returns, with what counting takes: the rest of a step is its caller's. */
double kern_profile_seconds(const struct kern_profile *p);

#endif
