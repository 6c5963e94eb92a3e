/* request.h - one request: what was asked, what was answered, and where it is in its life
 *
 * The record that the whole daemon reads.  `life` moves only through request_move(), along the table of legal moves;
 * `answer` grows by answer_append(); the links belong to the lists they name. */
#ifndef K3_QUEUE_REQUEST_H
#define K3_QUEUE_REQUEST_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>
#include <sys/types.h>

#include "common/error.h"
#include "common/fsm.h"
#include "queue/answer.h"
#include "wire/frame.h"
#include "wire/id.h"
#include "wire/message.h"

struct engine;
struct user;
struct watcher;

enum request_event {
    EVENT_LEASED,     /* an engine has it */
    EVENT_TAKEN_BACK, /* the lease ended without an end of the answer: engine lost, or given back */
    EVENT_CANCEL,     /* its owner no longer wants it */
    EVENT_ENDED,      /* nobody works on it any more */
    EVENT_DONE,       /* the answer is complete */
    EVENT_FAILED,     /* there will be none */
    EVENT_EXPIRED,    /* its deadline passed */
    EVENT_HOLD,
    EVENT_RELEASE,
    EVENT_SUSPEND,
    EVENT_RESUME
};

struct request {
    struct k3_id id;
    char id_text[K3_ID_DIGITS + 1];
    uint64_t number; /* arrivals are numbered from 1 */
    struct user *user;
    struct message_submit ask; /* the prompt is erased at the end */
    struct fsm life;           /* of enum request_state */
    struct frame_peer asker;   /* who is waiting for ACCEPTED ... */
    uint16_t asker_version;    /* ... and the version it speaks; 0: an engine told of it, nobody asked */
    bool expired;              /* its deadline passed and the engine was told: it ends as EXPIRED */
    bool stored;               /* the store has it: ACCEPTED may be sent */
    bool delivered;            /* its owner has the answer to the last byte */
    double arrived;            /* seconds of the monotonic clock, as all times of the daemon ... */
    double started;            /* ... first lease, 0: not yet */
    double finished;
    double submit_time; /* seconds since 1970, as people see it ... */
    double start_time;  /* ... 0: not yet */

    /* while it waits */
    const char *reason;      /* why, one of squeue's words, never freed */
    unsigned int place;      /* 1 is the next to go; 0 when not in line */
    double lost;             /* when it came back from an engine that was lost, 0: it did not */
    const char *reason_told; /* to those who watch */
    unsigned int place_told;

    /* while an engine has it */
    struct engine *engine;
    uint64_t incarnation; /* of the engine that had the last lease, 0: there was none */
    bool batched;         /* the BATCH with it was sent */
    bool broken;          /* what comes is ignored until the engine has let go of it, then it is taken back */
    double give_up;       /* an engine asked to stop is waited for until then, 0: none was asked */
    unsigned int losses;  /* leases in a row that ended without a new token */
    size_t tokens_leased; /* tokens when the lease began */

    /* the answer; NULL once erased */
    struct answer *answer;
    size_t tokens;            /* of all its choices, also after it was erased */
    struct message_done done; /* how it ended; msg and cs are owned */

    TAILQ_ENTRY(request) all;       /* by arrival */
    TAILQ_ENTRY(request) line;      /* order.c */
    TAILQ_ENTRY(request) lease;     /* engine.c */
    TAILQ_ENTRY(request) phase;     /* queue.c: waiting for the store, or finished */
    TAILQ_HEAD(, watcher) watchers; /* stream.c */
};

/* Takes what submit holds and leaves it zeroed; user is borrowed. */
struct request *request_create(const struct k3_id *id, struct message_submit *submit, struct user *user);
/* Erases.  It must be in no list. */
void request_destroy(struct request *r);

enum request_state request_state(const struct request *r);
/* Make the move and log it.  -1 and a log line when the table has none: the caller carries on, nothing has changed. */
int request_move(struct request *r, enum request_event event);

/* DONE, FAILED, CANCELLED or EXPIRED. */
bool request_is_final(const struct request *r);
size_t request_prompt_bytes(const struct request *r);
/* Answers that are asked for. */
uint32_t request_choices(const struct request *r);
/* Tokens of prompt and answer together that an engine must have room for, as far as they are known here: a prompt that
 * is still text counts nothing. */
uint64_t request_context(const struct request *r);
/* Overwrite and free: id, times and usage stay. */
void request_erase_prompt(struct request *r);
void request_erase_answer(struct request *r);

#endif
