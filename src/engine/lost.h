/* lost.h - the batch script's word to the daemon: the engine of this job has died, give its requests to others */
#ifndef K3_ENGINE_LOST_H
#define K3_ENGINE_LOST_H

#include "common/error.h"
#include "common/settings.h"

/* Say that this Slurm job's engine is lost and wait LOST_WAIT_MS at most for the daemon to know.  Returns an exit code
 * of wire/message.h; err is set unless it is EXIT_CODE_OK. */
enum { LOST_WAIT_MS = 2000 };
int lost_report(const struct settings *s, const char *reason, struct k3_error *err);

#endif
