/* jobcheck.h - is this job a running one of that user?  squeue is asked, beside the loop */
#ifndef K3_QUEUE_JOBCHECK_H
#define K3_QUEUE_JOBCHECK_H

#include <stdint.h>
#include <sys/types.h>

#include "common/error.h"
#include "common/loop.h"

enum jobcheck_verdict {
    JOB_RUNS,
    JOB_DOES_NOT, /* or is another user's */
    JOB_UNKNOWN   /* Slurm did not answer */
};

struct jobcheck;

/* why: borrowed for the call; "" when it runs.  The check is gone when this is called. */
typedef void jobcheck_done(void *arg, enum jobcheck_verdict verdict, const char *why);

/* done is called once from the loop, unless jobcheck_stop() came first.  NULL: squeue cannot be started. */
struct jobcheck *jobcheck_start(struct loop *loop, uint32_t job, uid_t uid, jobcheck_done *done, void *arg,
                                struct k3_error *err);
/* Accepts NULL. */
void jobcheck_stop(struct jobcheck *j);

#endif
