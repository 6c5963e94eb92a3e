/* serve.h - an engine's whole life on one rank: meet the others, agree, load, run, end together */
#ifndef K3_ENGINE_SERVE_H
#define K3_ENGINE_SERVE_H

#include "common/error.h"
#include "common/settings.h"

/* settings may be NULL: they could not be read, problem says why, and the other ranks shall hear of it.  Returns the
 * exit code: EXIT_CODE_OK when told to stop, EXIT_CODE_USAGE when starting again would not help, EXIT_CODE_FAILED
 * otherwise.  The sentence is logged by the rank that knows it best.  Does not return when a step is lost: all ranks
 * are ended. */
int serve(const struct settings *settings, const struct k3_error *problem);

#endif
