/* output.h - from the tokens of an answer to the deltas that are sent for it
 *
 * Holds what lies between the two: the parser of blocks (or, for a prompt that is no chat, plain decoding into the
 * response channel) and the search for stop strings in the response. */
#ifndef K3_ENGINE_OUTPUT_H
#define K3_ENGINE_OUTPUT_H

#include <stdbool.h>
#include <stdint.h>

#include "common/error.h"
#include "text/parser.h"
#include "text/vocab.h"
#include "wire/message.h"

struct output;

struct output_options {
    const struct vocab *vocab; /* borrowed until output_destroy() */
    bool chat;                 /* blocks, beginning in `start`; else plain text */
    enum parser_start start;
    bool ignore_stop_ids;
    const char *const *stop; /* strings that end the answer and are not part of it; copied */
    size_t stops;
};

/* Refuses stop strings that text/stop.h does not take. */
struct output *output_create(const struct output_options *o, struct k3_error *err);
void output_destroy(struct output *o);

/* Gets the delta; borrowed during the call. */
typedef void output_emit(void *arg, const struct message_delta *delta);

/* The next token of the answer; `last` when there will be no other, whatever it says.  Emits one delta, which holds
 * text that had been held back too if this token ends the answer.  emit NULL: it was delivered under an earlier lease,
 * nothing is emitted but the state moves on.  Returns true when the token itself ends the answer. */
bool output_token(struct output *o, int32_t token, bool last, output_emit *emit, void *arg);

#endif
