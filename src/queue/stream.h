/* stream.h - the terminals that watch a request
 *
 * Several may watch one request, from any token on.  Each has a place in the answer, not a copy of what it has yet to
 * be sent: sending goes on until its line is full (the socket keeps a bounded number of messages for each peer) and
 * again later, so nobody waits for anybody.  A reader that takes nothing for some seconds while more than max_output
 * bytes wait for it is dropped: the log names it, and once it reads again it is told to attach again. */
#ifndef K3_QUEUE_STREAM_H
#define K3_QUEUE_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"
#include "queue/request.h"
#include "wire/frame.h"

enum { STREAM_WATCHERS = 16 }; /* of one request, at most */

struct stream;

/* socket: the daemon's ROUTER, borrowed. */
struct stream *stream_create(void *socket);
/* Bytes that may wait for a reader that does not read. */
void stream_limit(struct stream *s, size_t max_output);
void stream_destroy(struct stream *s); /* requests have been forgotten */

/* Send one message that answers a question.  One that does not get through is gone: who asked asks again. */
void stream_answer(struct stream *s, const struct frame_peer *to, uint16_t version, struct message *m);

/* From now on this peer is sent what it does not have of the answer (so many tokens it has of each choice), changes of
 * state, and the end.  A peer that watches already starts over. */
int stream_attach(struct stream *s, struct request *r, const struct frame_peer *peer, uint16_t version,
                  const uint64_t *have, struct k3_error *err);

/* Send the watchers of r what they can take: new pieces, and the end when there is one. */
void stream_push(struct stream *s, struct request *r);
/* The same after state, place or reason have changed. */
void stream_state(struct stream *s, struct request *r);
/* Send this to all who watch r; where the line is full it is lost. */
void stream_tell(struct stream *s, const struct request *r, struct message *m);
bool stream_watched(const struct request *r);

/* Try again those whose lines were full.  False: there are none. */
bool stream_retry(struct stream *s);

/* r is about to be erased or freed: nobody watches it any more. */
void stream_forget(struct stream *s, struct request *r);

#endif
