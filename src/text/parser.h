/* parser.h - from the ids a model emits to reasoning, answer and tool calls (SPEC 8.6)
 *
 * The output is blocks between markers: open TAG sep ... close TAG sep.  Markers are known by id alone, so "<|close|>"
 * written through ordinary tokens stays text.  Blocks have a place: message, then think, response or tools, then call,
 * then argument or json.  A model may skip closers: opening a block closes what stands open at its level or below,
 * closing one closes what stands open inside it, and the stop ids close everything; a closer of what is not open
 * means nothing.  Unknown tags are skipped up to their close.  Text between blocks, and control ids other than the
 * markers and the stops, are dropped.
 *
 * Text streams out as it comes; only an incomplete UTF-8 tail is held back, and the value of an argument that is not a
 * string, which must be whole to see whether it is JSON.  Memory is bounded by the limits below. */
#ifndef K3_TEXT_PARSER_H
#define K3_TEXT_PARSER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "text/vocab.h"

#define PARSER_HEADER_MAX 4096 /* bytes of a tag with its attributes; a longer one is an unknown tag */
#define PARSER_CALLS_MAX 1024  /* later calls are skipped as unknown tags */
/* Bytes of an argument held back; a longer one goes out as a string.  JSON may write a byte as six, and then it still
 * has to pass as one string of a message. */
#define PARSER_VALUE_MAX (128u << 10)

/* Where the output begins, by what the prompt opened last (chat_start()). */
enum parser_start {
    PARSER_IN_MESSAGE, /* nothing: the model opens its blocks itself */
    PARSER_IN_THINK,
    PARSER_IN_RESPONSE,
};

enum parser_event_type {
    PARSER_THINK,     /* text: reasoning */
    PARSER_RESPONSE,  /* text: answer */
    PARSER_CALL,      /* a tool call begins; text: the tool's name */
    PARSER_ARGUMENTS, /* text: more of the call's arguments, which concatenated are the text of one JSON object */
    PARSER_CALL_END,  /* the call is complete */
    PARSER_STOP,      /* the model ended its message */
};

struct parser_event {
    enum parser_event_type type;
    int call;         /* which tool call, from 0, for the three CALL types and ARGUMENTS */
    const char *text; /* whole UTF-8 characters, not terminated; good during the callback */
    size_t len;
};

/* Takes each event as it happens. */
typedef void parser_emit(void *arg, const struct parser_event *event);

struct parser;

/* Borrows v until parser_destroy(). */
struct parser *parser_create(const struct vocab *v, enum parser_start start);
void parser_destroy(struct parser *p);

/* Take the next id.  To continue an answer on another engine, feed what was delivered already with emit NULL: the
 * events are dropped and the state is as if they had been seen.  After a stop id everything is ignored. */
void parser_feed(struct parser *p, int32_t id, parser_emit *emit, void *arg);

/* The output ended, by a stop id or without one (length, cancel): emit what is still held.  A block that stands open is
 * left open: an incomplete call gets no PARSER_CALL_END, and its arguments may be cut JSON. */
void parser_finish(struct parser *p, parser_emit *emit, void *arg);

bool parser_stopped(const struct parser *p);
/* Complete tool calls so far. */
int parser_calls(const struct parser *p);

#endif
