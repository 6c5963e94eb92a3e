/* pyjson.h - JSON written as Python's json.dumps(ensure_ascii=False) writes it, which is what K3 was trained on (SPEC
 * 8)
 *
 * Values are Jansson's, with one addition: integers beyond 64 bits survive.  pyjson_load() hands them to Jansson as
 * strings that no JSON text can spell, so look at strings and types through the functions here.  A real number beyond a
 * double and a lone surrogate are refused. */
#ifndef K3_TEXT_PYJSON_H
#define K3_TEXT_PYJSON_H

#include <stdbool.h>
#include <stddef.h>

#include <jansson.h>

#include "common/error.h"
#include "text/buf.h"

/* Read any JSON value nested at most max_depth deep.  A key given twice keeps its first place and its last value.  The
 * caller bounds len and releases the value with json_decref().  NULL with a sentence saying where and what. */
json_t *pyjson_load(const char *text, size_t len, int max_depth, struct k3_error *err);

/* The text of a string, borrowed; it may hold NUL bytes.  False for other values, NULL among them. */
bool pyjson_string(const json_t *value, const char **s, size_t *n);
/* JSON's name of a value's type: string, number, boolean, null, object or array. */
const char *pyjson_type(const json_t *value);

enum pyjson_style {
    PYJSON_SPACED, /* separators ", " and ": ", keys in their order */
    PYJSON_SORTED, /* separators "," and ":", keys sorted by code point at every level */
};

void pyjson_dump(struct buf *out, const json_t *value, enum pyjson_style style);

/* The part of a JSON string literal between its quotes; s is UTF-8. */
void pyjson_escape(struct buf *out, const char *s, size_t n);

/* A string without Python's white space on either side is empty: str.strip() == "". */
bool pyjson_blank(const char *s, size_t n);

#endif
