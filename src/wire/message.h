/* message.h - every message of the protocol: a struct, and one encode/decode pair for all of them
 *
 * On the wire a message is a header of 28 bytes, a body (one msgpack map with short string keys, no ext types), and
 * where the sender has to prove who it is a MUNGE credential over the two (auth.h).  frame.h moves the three parts
 * through a ZeroMQ socket.  Header, big endian: "k3w1", u16 version, u16 type, u32 flags, id[16].
 *
 * message.c holds one table a type, one row a field; nobody else touches bytes.  The decoder assumes a hostile sender:
 * every length and count is checked against the bytes that are left and against its limit before memory is asked for,
 * strings are valid UTF-8, unknown keys are skipped, wrong types are refused by the name of the key.  The encoder
 * refuses what the decoder would refuse.
 *
 * A decoded message owns its copies until message_clear().  One that is about to be encoded may borrow. */
#ifndef K3_WIRE_MESSAGE_H
#define K3_WIRE_MESSAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"
#include "wire/id.h"

/* The version spoken here and the oldest one still understood.  An answer carries the version of its question.  What
 * came with a version (".since" in message.c) is only said to a peer that speaks it. */
enum { WIRE_VERSION = 2, WIRE_VERSION_OLDEST = 1 };
/* From this one on a request may ask for several answers. */
enum { WIRE_VERSION_CHOICES = 2 };

enum {
    MESSAGE_HEADER = 28,       /* bytes */
    MESSAGE_BODY = 8 << 20,    /* bytes of a body, at most */
    MESSAGE_REQUEST = 4 << 20, /* bytes of the user's JSON */
    MESSAGE_STRING = 1 << 20,  /* bytes of any other string */
    MESSAGE_SENTENCE = 1024,   /* bytes of a sentence, a reason, a name for people */
    MESSAGE_NAME = 256,        /* bytes of a job name, a node name */
    MESSAGE_IDS = 1 << 20,     /* token ids in an array */
    MESSAGE_PARTS = 64,        /* parts of a DELTA */
    MESSAGE_CACHE_KEY = 32,    /* bytes of a user's key to what an engine keeps of his prompts */
    MESSAGE_STOPS = 16,        /* stop strings */
    MESSAGE_STOP = 256,        /* bytes of one */
    MESSAGE_BIASES = 1024,     /* entries of a logit bias */
    MESSAGE_LOGPROBS = 20,     /* likeliest ids reported with a token */
    MESSAGE_CHOICES = 64,      /* answers to one prompt */
    MESSAGE_ROWS = 1024,       /* rows of a LISTING, engines of an INFO_REPLY, requests of a BATCH */
    MESSAGE_RANKS = 4096,      /* ranks of an engine */
    MESSAGE_ENTRIES = 64,      /* entries of a map */
    MESSAGE_DEPTH = 4,         /* nesting of maps and arrays */
    MESSAGE_OBJECTS = 2 << 20  /* values in a body: what unpacking may cost in memory (24 bytes each) */
};

enum message_type {
    /* client to daemon; each with a credential */
    WIRE_SUBMIT = 1,
    WIRE_ATTACH = 2,
    WIRE_CANCEL = 3, /* no fields: the header's id */
    WIRE_LIST = 4,
    WIRE_INFO = 5, /* no fields */
    WIRE_ACK = 6,  /* no fields: the answer to the header's id is written to its last byte */
    /* daemon to client */
    WIRE_ACCEPTED = 16,
    WIRE_REFUSED = 17,
    WIRE_STATE = 18,
    WIRE_DELTA = 19, /* engine to daemon to client */
    WIRE_DONE = 20,  /* engine to daemon to client */
    WIRE_LISTING = 21,
    WIRE_INFO_REPLY = 22,
    WIRE_OK = 23, /* no fields */
    /* engine to daemon; HELLO and LOST with a credential */
    WIRE_ENGINE_HELLO = 32,
    WIRE_ENGINE_LOAD = 33,
    WIRE_ENGINE_READY = 34,
    WIRE_CREDIT = 35,
    WIRE_HEARTBEAT = 36, /* both ways */
    WIRE_RETURNED = 37,  /* no fields: the lease on the header's id is given back */
    WIRE_ENGINE_BYE = 38,
    WIRE_ENGINE_LOST = 39,
    WIRE_ENGINE_HELD = 40, /* a lease as it was given, to a daemon that does not know it */
    /* daemon to engine */
    WIRE_ENGINE_WELCOME = 48,
    WIRE_BATCH = 49,
    WIRE_ENGINE_CANCEL = 50, /* no fields: the engine answers DONE cancelled */
    WIRE_DRAIN = 51          /* no fields: finish what can finish, return the rest */
};

/* Enumerations travel by name (message_*_name), so that a later version can add one. */
enum request_state {
    REQUEST_QUEUED,
    REQUEST_RUNNING,
    REQUEST_ENDING,
    REQUEST_DONE,
    REQUEST_FAILED,
    REQUEST_CANCELLED,
    REQUEST_EXPIRED,
    REQUEST_HELD,
    REQUEST_SUSPENDED,
    REQUEST_STATES
};
enum engine_state { ENGINE_STARTING, ENGINE_LOADING, ENGINE_SERVING, ENGINE_DRAINING, ENGINE_FENCED, ENGINE_STATES };
enum done_why { DONE_STOP, DONE_LENGTH, DONE_CANCELLED, DONE_FAILED, DONE_EXPIRED, DONE_WHYS };
enum delta_channel { CHANNEL_THINK, CHANNEL_RESPONSE, CHANNEL_TOOL, CHANNELS };

/* What REFUSED carries, and what the commands exit with. */
enum exit_code {
    EXIT_CODE_OK = 0,
    EXIT_CODE_FAILED = 1,
    EXIT_CODE_USAGE = 2,
    EXIT_CODE_DENIED = 3,
    EXIT_CODE_QUOTA = 4,
    EXIT_CODE_DEADLINE = 5,
    EXIT_CODE_CANCELLED = 6,
    EXIT_CODE_UNREACHABLE = 7
};

struct message_bytes { /* opaque; data NULL when len is 0 */
    uint8_t *data;
    size_t len;
};
struct message_text { /* UTF-8 that may hold NUL; a NUL also follows it */
    char *data;
    size_t len;
};
struct message_u32s {
    uint32_t *v;
    size_t n;
};
struct message_u64s {
    uint64_t *v;
    size_t n;
};
struct message_f32s {
    float *v;
    size_t n;
};
struct message_strings {
    char **v;
    size_t n;
};

struct message_header {
    uint16_t version; /* 0 when encoding: WIRE_VERSION */
    uint16_t type;    /* enum message_type */
    uint32_t flags;   /* none so far: 0 */
    struct k3_id id;
};

/* What a user asks of the model; part of SUBMIT and of every request of a BATCH. */
struct message_ask {
    struct message_bytes req; /* the chat request as JSON, opaque here; or ... */
    struct message_u32s tok;  /* ... the prompt as token ids.  Exactly one of the two is there. */
    uint32_t max;             /* most tokens of the answer, 0: as many as fit */
    double temp;              /* 0 (greedy) to 10; required */
    double topp;              /* 0 to 1; required */
    uint32_t topk;            /* 0: off */
    bool sd;                  /* seed was given; always so in a BATCH */
    uint64_t seed;
    struct message_strings stop;
    bool ieos;              /* go on after an end-of-sequence token */
    double minp;            /* 0 to 1; 0: off */
    double rep;             /* repetition penalty, 0 or 1: none */
    double pres, freq;      /* presence and frequency penalty, -2 to 2 */
    struct message_u32s bi; /* logit bias: these ids ... */
    struct message_f32s bv; /* ... get these added, -100 to 100; as many */
    uint32_t lp;            /* log-probabilities of so many likeliest ids with each token; 0: none */
    uint32_t n;             /* answers ("choices"), each with a seed of its own; 0 or 1: one */
};

struct message_submit { /* header id: the request's, drawn by the client */
    struct message_ask ask;
    bool watch; /* stream the answer to me */
    char *name; /* job name, or NULL */
    double dl;  /* deadline, seconds since 1970: what is not done by then is of no use; 0: none */
};
struct message_attach {
    uint64_t off;             /* first token wanted of every choice ... */
    struct message_u64s offs; /* ... or where they differ of each */
};
struct message_list {
    bool me;  /* only the asking user's */
    char *id; /* only ids that begin with these hex digits (finished ones too); NULL: all that are waiting or running */
};
struct message_accepted {
    uint32_t place; /* 1 is the next to go */
    char *reason;   /* why it waits, as squeue's reasons: Priority, EngineStarting, ... */
    char *eff;      /* reasoning effort used, or NULL */
};
struct message_refused {
    uint32_t code; /* enum exit_code; required */
    char *msg;     /* required */
    double retry;  /* seconds after which to try again (an answer that was being sent: to attach again); 0: no use */
};
struct message_state {
    enum request_state state; /* required */
    uint32_t place;
    char *reason;
    uint32_t job; /* Slurm job that runs it, 0: none */
    uint32_t n;   /* choices, 0: one */
};
struct message_part {        /* text of one channel */
    enum delta_channel ch;   /* required */
    struct message_text txt; /* whole characters only; CHANNEL_TOOL: of the arguments' JSON */
    uint32_t ti;             /* CHANNEL_TOOL: index of the call */
    char *tn;                /* CHANNEL_TOOL: name of the tool, with the call's first part */
};
/* All that a step brings to an answer, whole or not at all: where a token is its text is too, whoever dies and goes on.
 * Text that is held back (half a character, what may become a stop string) comes with a later token or with the last.
 */
struct message_delta {
    uint32_t c;              /* choice that it belongs to */
    uint64_t off;            /* offset of ids[0] in the answer; required */
    struct message_u32s ids; /* one at least */
    struct {
        struct message_part *v;
        size_t n;
    } parts; /* what the ids complete, in the answer's order; a token may end one channel and begin another */
    struct message_u32s lpi; /* where asked for, for each of ids: itself and the likeliest ... */
    struct message_f32s lpv; /* ... and the logarithms of their probabilities, -9999 at least */
};
struct message_choice {
    enum done_why why; /* required: stop or length */
    uint32_t ctok;
};
struct message_done {
    enum done_why why; /* required; length when one of the choices ended by it */
    char *msg;
    uint32_t ptok, ctok;            /* prompt and completion tokens, the latter of all choices */
    uint32_t cached;                /* of the prompt, taken over from an earlier request */
    double prompt_s, gen_s, wait_s; /* seconds of prefill, of decode (engine), of waiting (daemon) */
    struct {
        struct message_choice *v;
        size_t n;
    } cs; /* where several were asked for and all ended by themselves: how each did */
};
struct message_listing_row {
    struct k3_id id; /* required */
    char *user;
    char *name;
    enum request_state state; /* required */
    char *reason;
    uint32_t place;
    uint32_t job;
    uint32_t ptok, ctok, max;
    double submit_t, start_t; /* seconds since 1970; start_t 0: not yet */
};
struct message_listing {
    struct {
        struct message_listing_row *v;
        size_t n;
    } rows;
    bool more; /* another LISTING follows */
};
struct message_engine {
    uint32_t job; /* required */
    char *node;
    enum engine_state state; /* required */
    char *model;
    uint32_t ranks;
    char *layout;               /* "tp=4" */
    uint32_t slots, used;       /* answers at once */
    double rate;                /* tokens/s now */
    double since;               /* seconds since 1970 of the last change of state */
    struct message_u64s ld, lt; /* bytes loaded, bytes in all, per rank */
};
struct message_info_reply {
    char *ver;
    double up_s;
    uint32_t queued, running;
    char *model;
    struct {
        struct message_engine *v;
        size_t n;
    } engines;
};
struct message_held {
    struct k3_id id; /* required */
    uint64_t n;      /* HELLO: tokens of the answer so far */
    struct message_u64s
        offs; /* of each choice, HELLO: the first token that can be said again; WELCOME: the next wanted */
};
struct message_engine_hello {
    uint32_t job; /* required */
    uint64_t inc; /* random per start; required.  The same job with another one: the old incarnation is lost */
    char *node;
    char *model;
    uint32_t ranks;
    char *layout;
    char *key;           /* over tcp: the public key of this connection, hex digits */
    uint32_t vmin, vmax; /* protocol versions */
    struct {
        struct message_held *v;
        size_t n;
    } held; /* requests still held from before the daemon went away */
};
struct message_engine_load {
    struct message_u64s ld, lt; /* as in message_engine */
};
struct message_engine_ready {
    uint32_t slots;  /* answers at once; required */
    uint32_t ctx;    /* longest prompt + answer in tokens; required */
    uint32_t credit; /* answers it takes now */
};
struct message_credit {
    uint32_t n; /* answers it can take now beyond those leased; required */
};
struct message_heartbeat {
    double rate; /* tokens/s */
    uint32_t run;
    uint64_t steps; /* that the engine has computed since its start: it works, even when no token comes yet */
};
struct message_engine_bye {
    char *msg;
};
struct message_engine_lost { /* answered by OK */
    uint32_t job;            /* required */
    char *msg;
};
struct message_engine_welcome {
    uint32_t ver;
    double hb; /* seconds between heartbeats; required */
    struct {
        struct message_held *v;
        size_t n;
    } held; /* of those in HELLO the ones that are still this engine's: it goes on with them and drops the others ... */
    struct {
        struct message_held *v; /* only id */
        size_t n;
    } tell; /* ... but these, which the daemon does not know: ENGINE_HELD for each, then all of its answer */
};
struct message_lease {
    struct k3_id id; /* required */
    struct message_ask ask;
    struct message_u32s out;   /* produced under an earlier lease: to be continued after them */
    struct message_bytes ckey; /* of the user: under it, and no other, prompts may share what they begin with */
    struct message_u32s outn;  /* of several choices: so many of `out` are of each, one choice after the other */
    /* For ENGINE_HELD, should the daemon forget: */
    uint64_t own; /* the user's uid + 1; 0: not said */
    char *name;   /* as in SUBMIT */
    double dl;
    double sub; /* when it was asked, seconds since 1970 */
    bool again; /* ENGINE_HELD: parts of the answer are not there any more, so it has to be made again */
};
struct message_batch {
    struct {
        struct message_lease *v;
        size_t n;
    } reqs;
};

struct message {
    struct message_header head;
    union {
        struct message_submit submit;
        struct message_attach attach;
        struct message_list list;
        struct message_accepted accepted;
        struct message_refused refused;
        struct message_state state;
        struct message_delta delta;
        struct message_done done;
        struct message_listing listing;
        struct message_info_reply info_reply;
        struct message_engine_hello engine_hello;
        struct message_lease engine_held;
        struct message_engine_load engine_load;
        struct message_engine_ready engine_ready;
        struct message_credit credit;
        struct message_heartbeat heartbeat;
        struct message_engine_bye engine_bye;
        struct message_engine_lost engine_lost;
        struct message_engine_welcome engine_welcome;
        struct message_batch batch;
    };
};

/* A zeroed message of this type; id NULL: none.  Write messages as  struct message m = message_of(WIRE_DONE, &r->id).
 */
struct message message_of(enum message_type type, const struct k3_id *id);

/* The header as MESSAGE_HEADER bytes, and the body, which the caller frees. */
int message_encode(const struct message *m, uint8_t header[MESSAGE_HEADER], struct message_bytes *body,
                   struct k3_error *err);

/* Only the header: magic, version and type are known ones.  errno EPROTO otherwise (EPROTONOSUPPORT: a version that is
 * not spoken here). */
int message_decode_header(struct message_header *head, const void *header, size_t len, struct k3_error *err);

/* Body of a message whose header is known.  On success *m is the caller's, until message_clear(); on failure (errno
 * EPROTO) it is untouched. */
int message_decode(struct message *m, const struct message_header *head, const void *body, size_t len,
                   struct k3_error *err);

/* Free what a decoded message owns and zero it.  Accepts NULL and a zeroed message. */
void message_clear(struct message *m);

/* How many answers it asks for: one at least. */
uint32_t message_ask_choices(const struct message_ask *ask);

/* "SUBMIT", or "unknown message". */
const char *message_type_name(unsigned int type);
/* "QUEUED", "loading", "stop": as on the wire. */
const char *request_state_name(enum request_state state);
const char *engine_state_name(enum engine_state state);
const char *done_why_name(enum done_why why);

#endif
