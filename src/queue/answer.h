/* answer.h - what has been produced for one request so far: one answer, or several choices of one
 *
 * Token ids, text and its parts lie in flat arrays; a piece marks what one delta added to each.  Pieces are numbered
 * from 0, so a reader of any speed needs no copy of its own, only the number of the piece it wants next.  The pieces of
 * all choices lie there in the order in which they came; offsets are counted in each choice.  Bounded: tokens by the
 * most that one message can carry, text in bytes.  Erasing overwrites the memory. */
#ifndef K3_QUEUE_ANSWER_H
#define K3_QUEUE_ANSWER_H

#include <stddef.h>
#include <stdint.h>

#include "common/error.h"
#include "wire/message.h"

enum {
    ANSWER_TOKENS = MESSAGE_IDS, /* tokens of an answer, at most */
    ANSWER_TEXT = 64 << 20,      /* bytes of its text */
    ANSWER_LOGPROBS = 4 << 20,   /* log-probabilities with its tokens */
    ANSWER_PARTS = 2 << 20       /* that the text is in: a token may end one channel and begin another */
};

struct answer;

struct answer *answer_create(uint32_t choices);
void answer_destroy(struct answer *a); /* erases */

/* Put d, which must begin where its choice ends, behind it.  Copies.  -1 with errno EPROTO (it begins elsewhere) or
 * EFBIG (a limit is passed). */
int answer_append(struct answer *a, const struct message_delta *d, struct k3_error *err);

/* The ids so far, in the order in which they came: of the only choice, in its order.  Borrowed until the next append.
 */
const uint32_t *answer_ids(const struct answer *a, size_t *n);
/* The same of all choices, one after the other, into ids [answer_tokens()]. */
void answer_sorted_ids(const struct answer *a, uint32_t *ids);
uint32_t answer_choices(const struct answer *a);
/* Of all choices, and of each: [choices], borrowed until the next append. */
size_t answer_tokens(const struct answer *a);
const uint32_t *answer_lengths(const struct answer *a);
size_t answer_pieces(const struct answer *a);
/* Bytes of memory that it fills. */
size_t answer_bytes(const struct answer *a);
/* Bytes of text, ids and log-probabilities from this piece to the end: what a reader at `piece` has yet to be sent. */
size_t answer_bytes_from(const struct answer *a, size_t piece);

/* Fill d with a piece as it was appended; d borrows until the next append or piece. */
void answer_piece(struct answer *a, size_t piece, struct message_delta *d);

/* The piece from which someone goes on who has so many tokens of each choice ([choices]).  He may have some of those
 * behind it, too. */
size_t answer_find(const struct answer *a, const uint64_t *have);

#endif
