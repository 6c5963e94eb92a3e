/* words.h - states, times and foreign text as people see them */
#ifndef K3_CLIENT_WORDS_H
#define K3_CLIENT_WORDS_H

#include <stddef.h>

#include <jansson.h>

#include "wire/message.h"

/* squeue's two letters (one for some): PD, R, CG, CD, F, CA, TO, H, S. */
const char *words_state(enum request_state state);

/* Seconds as M:SS, H:MM:SS or D-HH:MM:SS. */
const char *words_duration(double seconds, char text[32]);
/* Seconds since 1970 as local time, 2026-11-30T12:34:56; "N/A" for 0. */
const char *words_time(double when, char text[32]);
/* 97500000000 as "97.5 GB". */
const char *words_bytes(uint64_t bytes, char text[32]);

/* What another user chose, made safe for a terminal: control characters become '?', in a copy to be freed. */
char *words_safe(const char *s);
/* Columns of such text, a character one each. */
size_t words_width(const char *s);
/* Bytes of its first `columns` columns. */
size_t words_cut(const char *s, size_t columns);

/* As a JSON string; null for NULL. */
json_t *words_json(const char *s);

#endif
