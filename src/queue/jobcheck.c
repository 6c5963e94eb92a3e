#include "queue/jobcheck.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/alloc.h"
#include "common/command.h"

static const double limit_sec = 10;

struct jobcheck {
    struct command *squeue;
    uint32_t job;
    uid_t uid;
    jobcheck_done *done;
    void *arg;
};

/* Among the ids, one a line? */
static int is_among(uint32_t job, const char *ids)
{
    char line[16];
    size_t len = (size_t)snprintf(line, sizeof line, "%u", job);

    for (const char *at = ids; *at; at += strcspn(at, "\n"), at += *at == '\n')
        if (strcspn(at, "\n") == len && memcmp(at, line, len) == 0)
            return 1;
    return 0;
}

static void on_done(void *arg, int status, const char *output)
{
    struct jobcheck *j = arg;
    struct k3_error why = {""};
    enum jobcheck_verdict verdict = JOB_UNKNOWN;

    if (status < 0)
        k3_errorf(&why, "job %u cannot be checked: squeue does not end within %g s", j->job, limit_sec);
    else if (status > 0)
        k3_errorf(&why, "job %u cannot be checked: %.*s", j->job, (int)strcspn(output, "\n"), output);
    else if (is_among(j->job, output))
        verdict = JOB_RUNS;
    else {
        verdict = JOB_DOES_NOT;
        k3_errorf(&why, "job %u is no running job of uid %u (k3queued.user, k3queued.check_job)", j->job, j->uid);
    }
    j->done(j->arg, verdict, why.text);
    free(j);
}

/* Asked for all running jobs of the user: asked for one that is not there squeue fails, as it does when slurmctld is
 * away. */
struct jobcheck *jobcheck_start(struct loop *loop, uint32_t job, uid_t uid, jobcheck_done *done, void *arg,
                                struct k3_error *err)
{
    struct jobcheck *j = k3_zalloc(sizeof *j);
    char user[16];
    char *argv[] = {(char *)"squeue",
                    (char *)"--noheader",
                    (char *)"--states=RUNNING",
                    (char *)"--format=%A",
                    (char *)"--user",
                    user,
                    NULL};

    snprintf(user, sizeof user, "%u", uid);
    *j = (struct jobcheck){.job = job, .uid = uid, .done = done, .arg = arg};
    if (!(j->squeue = command_start(loop, argv, limit_sec, on_done, j, err))) {
        int saved = errno;
        free(j);
        errno = saved;
        return NULL;
    }
    return j;
}

void jobcheck_stop(struct jobcheck *j)
{
    int saved = errno;

    if (!j)
        return;
    command_stop(j->squeue);
    free(j);
    errno = saved;
}
