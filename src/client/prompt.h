/* prompt.h - what the user says, from arguments, files and standard input
 *
 * The parts come in this order, with a blank line between: arguments (joined by spaces), files, standard input.
 *
 * Whether standard input belongs to it cannot always be known.  Without other text it is read to its end.  With other
 * text: a terminal is left alone; a file or pipe is read to its end (somebody wrote "<" or "|"), with a word on stderr
 * when nothing comes for a while; a socket is what ssh and service managers leave open without meaning anything, so it
 * is read only when its first byte comes within a second.  "-f -" always waits for it. */
#ifndef K3_CLIENT_PROMPT_H
#define K3_CLIENT_PROMPT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/options.h"
#include "common/error.h"
#include "text/buf.h"
#include "wire/message.h"

/* Collect the text into *text (UTF-8: other bytes become U+FFFD).  -1: a file cannot be read, there is no text at all,
 * or it is longer than a request may be. */
int prompt_read(struct buf *text, char *const *words, size_t word_count, const struct option_texts *files,
                struct k3_error *err);

/* The request's JSON: messages, thinking, thinking_effort.  system may be NULL.  Freed by the caller; NULL: too long.
 */
char *prompt_json(const struct buf *text, const char *system, bool thinking, const char *effort, struct k3_error *err);

/* "768,12,5" (spaces allowed) as token ids, v freed by the caller. */
int prompt_tokens(const char *text, struct message_u32s *ids, struct k3_error *err);

/* "768:-5,12:3.5" as token ids and what is added to their logits, both v freed by the caller. */
int prompt_bias(const char *text, struct message_u32s *ids, struct message_f32s *values, struct k3_error *err);

#endif
