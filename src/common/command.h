/* command.h - run a program beside the loop
 *
 * Without a shell, with nothing on standard input, found by PATH; what it prints, errors too, is kept up to a limit.
 * It has a time limit, after which it is killed. */
#ifndef K3_COMMON_COMMAND_H
#define K3_COMMON_COMMAND_H

#include <stdbool.h>

#include "common/error.h"
#include "common/loop.h"

enum { COMMAND_OUTPUT = 65536 }; /* bytes that are kept */

/* Is there such a program in PATH? */
bool command_exists(const char *program);

struct command;

/* status: its exit status, or -1 when it was killed or its time was up.  output: borrowed for the call, a NUL at its
 * end. The command is gone when this is called. */
typedef void command_done(void *arg, int status, const char *output);

/* argv is copied.  NULL: it could not be started.  done is called once from the loop, unless command_stop() came first.
 */
struct command *command_start(struct loop *loop, char *const argv[], double limit_sec, command_done *done, void *arg,
                              struct k3_error *err);
/* Kill it and never call done.  Accepts NULL. */
void command_stop(struct command *c);

#endif
