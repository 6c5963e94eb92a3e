/* pretok.h - where K3's pre-tokenizer cuts text, before BPE (SPEC 7.2)
 *
 * Two cuts.  Slices bound extreme input: at most PRETOK_SLICE_CHARS characters, no run of white or of other characters
 * longer than PRETOK_RUN_CHARS.  Each slice is then cut, alone, into the pieces of the SPEC's regular expression.  Both
 * cover every byte: slices and pieces concatenated are the text.
 *
 * Text need not be UTF-8: each ill-formed sequence (utf8.h) counts as one character without class, as U+FFFD would, and
 * keeps its bytes. */
#ifndef K3_TEXT_PRETOK_H
#define K3_TEXT_PRETOK_H

#include <stdbool.h>
#include <stddef.h>

#define PRETOK_SLICE_CHARS 400000
#define PRETOK_RUN_CHARS 25000

/* How far the slicing of one text has come; start from a zeroed struct. */
struct pretok_slices {
    size_t chars; /* since the last boundary at a multiple of PRETOK_SLICE_CHARS */
    size_t run;   /* length of the run that the next slice continues */
    bool run_is_white;
};

/* Bytes of the slice at the head of the len > 0 bytes that remain of the text. */
size_t pretok_slice(struct pretok_slices *s, const char *text, size_t len);

/* Bytes of the piece at the head of the len > 0 bytes that remain of a slice. */
size_t pretok_piece(const char *text, size_t len);

#endif
