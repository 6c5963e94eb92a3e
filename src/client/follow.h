/* follow.h - one request from submission, or from wherever it is by now, to its last byte
 *
 * Submits or attaches, shows where the request stands while it waits, hands what comes to the output, survives a daemon
 * that goes away for a while (it attaches again from the next token), and acknowledges the answer after the last byte
 * was written, when it was written from its first token on.
 *
 * First Ctrl-C: id and state on stderr.  A second one within a second: the request is cancelled.  SIGTERM and SIGHUP
 * leave the request in the queue.  A reader of stdout who has gone away cancels it, as nobody wants the rest.  Whoever
 * only attached never cancels: Ctrl-C and a reader who has gone away end the program. */
#ifndef K3_CLIENT_FOLLOW_H
#define K3_CLIENT_FOLLOW_H

#include <stdbool.h>

#include "client/connect.h"
#include "client/output.h"
#include "common/error.h"
#include "wire/message.h"

struct follow_options {
    const char *program;
    const char *effort; /* reasoning effort asked for, to be shown; NULL: none */
    uint64_t backlog;   /* tokens that are there already, and say nothing of the engine's speed */
    bool parsable;      /* the id on stdout before the answer */
    bool text;          /* the answer is text, so that an empty one is worth a sentence */
    bool verbose;       /* id and usage on stderr even when that is no terminal */
};

/* `question` is a SUBMIT with watch set, or an ATTACH; borrowed.  The exit code of the program; where that is not
 * EXIT_CODE_OK, what had to be said was said on stderr. */
int follow_request(struct connection *c, const struct message *question, struct output *output,
                   const struct follow_options *options);

#endif
