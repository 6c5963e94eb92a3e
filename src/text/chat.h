/* chat.h - a chat request rendered as K3's prompt (SPEC 8.1-8.5)
 *
 * The prompt is a list of segments, each encoded alone.  A control segment holds one marker and becomes its id; every
 * other segment is text in which nothing is special, so what a user writes never becomes a control token. */
#ifndef K3_TEXT_CHAT_H
#define K3_TEXT_CHAT_H

#include <stdbool.h>
#include <stddef.h>

#include "common/error.h"
#include "text/parser.h"
#include "text/tokens.h"
#include "text/vocab.h"

#define CHAT_BYTES_MAX (16u << 20) /* of the request */
#define CHAT_DEPTH_MAX 128         /* of its JSON, and of JSON within it */
#define CHAT_MESSAGES_MAX 16384
#define CHAT_PARTS_MAX 16384 /* of one content */
#define CHAT_TOOLS_MAX 4096  /* in one list */
#define CHAT_CALLS_MAX 1024  /* in one message */

struct chat_segment {
    const char *text; /* not terminated */
    size_t len;
    bool control;
};

struct chat_prompt;

/* Render a request: a JSON object of which these keys are read, any other ignored.
 *     messages               required; roles system, user, assistant, tool
 *     tools                  list of tool declarations
 *     thinking               default true
 *     thinking_effort        low, medium, high or max; without it, or with thinking off, no effort is mentioned
 *     tool_choice            auto, none, required, or an object that names a function (renders as auto)
 *     response_format        an object or its type alone: text, json_object, json_schema
 *     add_generation_prompt  default true
 * Arguments of tool calls given as text that is not JSON are kept verbatim.  Images are refused.  NULL with a
 * sentence that begins with the path of the offending key ("messages[2].role: ..."). */
struct chat_prompt *chat_render(const char *json, size_t len, struct k3_error *err);
void chat_destroy(struct chat_prompt *p);

size_t chat_segments(const struct chat_prompt *p);
/* Segment i < chat_segments(p); its text is borrowed from p. */
struct chat_segment chat_segment(const struct chat_prompt *p, size_t i);

/* Where the model's output begins: what the generation prompt opened. */
enum parser_start chat_start(const struct chat_prompt *p);

/* The exact prompt, markers spelled out; *len bytes, borrowed from p, not terminated. */
const char *chat_text(const struct chat_prompt *p, size_t *len);
/* Append the prompt's ids to out. */
int chat_tokens(const struct chat_prompt *p, const struct vocab *v, struct tokens *out, struct k3_error *err);

#endif
