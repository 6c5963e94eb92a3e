/* output.h - the answer as it comes in, written as the user wants it
 *
 * Text goes to stdout as it comes; token ids too, with commas; JSON when all is there.  Reasoning goes to stderr when
 * it is to be shown.  Of several answers to one prompt ("choices") the first is written as it comes and the others
 * behind it at the end, with a line on stderr before each.  A terminal gets no control characters, whatever the model
 * was talked into. */
#ifndef K3_CLIENT_OUTPUT_H
#define K3_CLIENT_OUTPUT_H

#include <stdbool.h>
#include <stdint.h>

#include "common/error.h"
#include "wire/message.h"

enum output_form { OUTPUT_TEXT, OUTPUT_TOKENS, OUTPUT_JSON };

struct output;

/* What --output NAME and --json ask for; name NULL: not given.  -1: there is no such form. */
int output_form_of(const char *name, bool json, enum output_form *form, struct k3_error *err);

struct output *output_create(enum output_form form, bool show_reasoning);
void output_destroy(struct output *o); /* accepts NULL */

/* There are so many choices, MESSAGE_CHOICES at most; one until this says more. */
void output_expect(struct output *o, uint32_t choices);
/* The answer is wanted from this token on.  The first delta may begin before it: deltas are never cut. */
void output_from(struct output *o, uint64_t token);
/* Only what comes from now on is; there are so many tokens of it at most. */
void output_tail(struct output *o, uint64_t token);

/* Take a delta and write what it brings.  1: taken; 0: there are tokens missing before it (ask again by
 * output_attach()); -1: writing failed (errno EPIPE: the reader is gone).  What is there already is passed over. */
int output_delta(struct output *o, const struct message_delta *d, struct k3_error *err);

/* Would it be written on a terminal?  Then a live line there is cleared first. */
bool output_shows(const struct output *o, const struct message_delta *d);

/* Offset of the first token that has not come yet; of all choices together. */
uint64_t output_next(const struct output *o);
/* What is wanted next.  Borrowed until the next call. */
struct message_attach output_attach(struct output *o);
/* What the last text belonged to; CHANNELS before any came. */
enum delta_channel output_channel(const struct output *o);
/* Was any text of the answer itself written? */
bool output_answered(const struct output *o);
/* Has anything been put on the terminal, so that a live line would come in between? */
bool output_on_terminal(const struct output *o);

/* The end: the last newline, or the JSON object, is written and flushed.  -1 as above. */
int output_end(struct output *o, const struct k3_id *id, const struct message_done *done, struct k3_error *err);

#endif
