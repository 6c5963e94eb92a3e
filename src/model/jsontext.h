/* jsontext.h - JSON that somebody else wrote, into memory with limits before use */
#ifndef K3_MODEL_JSONTEXT_H
#define K3_MODEL_JSONTEXT_H

#include <stddef.h>

#include <jansson.h>

#include "common/error.h"

/* Parse an object whose brackets nest at most max_depth deep (checked before the recursive parser sees it).  `file`
 * names the text in sentences.  A key that occurs twice is refused. */
json_t *jsontext_parse(const char *file, const char *text, size_t len, int max_depth, struct k3_error *err);

/* The whole file, NUL after *len bytes; refused when it is longer than max_bytes.  The caller frees. */
char *jsontext_load(const char *path, size_t max_bytes, size_t *len, struct k3_error *err);

#endif
