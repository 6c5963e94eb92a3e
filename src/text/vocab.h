/* vocab.h - the tokenizer: bytes of tokens, special slots, text to ids (SPEC 7)
 *
 * A vocabulary is n base tokens, ids 0..n-1 in the order of tiktoken.model, and 256 special slots n..n+255 at K3's
 * offsets, whatever n is (163,584 for K3; toy vocabularies have fewer).  Once loaded it never changes: threads may
 * share it. */
#ifndef K3_TEXT_VOCAB_H
#define K3_TEXT_VOCAB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"
#include "text/tokens.h"

#define VOCAB_SLOTS 256
#define VOCAB_FILE_MAX (64u << 20) /* bytes of tiktoken.model, of tokenizer_config.json */
#define VOCAB_BASE_MAX (1 << 20)   /* base tokens */
#define VOCAB_TOKEN_BYTES_MAX 4096 /* bytes of one token */
#define VOCAB_TEXT_MAX (32u << 20) /* bytes of one text to encode: a full context of 1,048,576 tokens and room */

/* Special slots by their offset from the base size (SPEC 7.1). */
enum vocab_special {
    VOCAB_BOS = 0,
    VOCAB_EOS = 1,
    VOCAB_END_OF_MSG = 2,
    VOCAB_OPEN = 3,
    VOCAB_CLOSE = 4,
    VOCAB_SEP = 5,
    VOCAB_START_HEADER_ID = 6,
    VOCAB_END_HEADER_ID = 7,
    VOCAB_EOT = 9,
    VOCAB_MEDIA_BEGIN = 18,
    VOCAB_MEDIA_CONTENT = 19,
    VOCAB_MEDIA_END = 20,
    VOCAB_MEDIA_PAD = 21,
    VOCAB_OSAGENT_MODE = 65,
    VOCAB_UNK = 254,
    VOCAB_PAD = 255,
};

struct vocab;

/* Read DIR/tiktoken.model and, where present, DIR/tokenizer_config.json, whose added_tokens_decoder may name slots that
 * K3 leaves unnamed but must agree about K3's.  NULL with a sentence that names the file and the line or key. */
struct vocab *vocab_load(const char *model_dir, struct k3_error *err);
void vocab_destroy(struct vocab *v);

int32_t vocab_base(const struct vocab *v); /* base tokens */
int32_t vocab_size(const struct vocab *v); /* base tokens and slots */

int32_t vocab_special(const struct vocab *v, enum vocab_special slot);
/* Is id one of the 256 slots?  None of them is ever printed. */
bool vocab_is_control(const struct vocab *v, int32_t id);

/* The bytes of a base token, not terminated; NULL for slots and for ids outside the vocabulary.  Borrowed from v. */
const char *vocab_bytes(const struct vocab *v, int32_t id, size_t *len);
/* The text of a slot ("<|open|>"); NULL for base tokens and for ids outside the vocabulary.  Borrowed from v. */
const char *vocab_name(const struct vocab *v, int32_t id);
/* K3's text of a slot; NULL where K3 has no name for it, which then is "<|reserved_token_ID|>". */
const char *vocab_slot_text(int offset);

/* Append the ids of len bytes of text to out.  Nothing in the text is special: "[EOS]" becomes ordinary tokens.  The
 * text need not be UTF-8; every byte is kept (pretok.h says where ill-formed text is cut).  Fails, before any work,
 * only when len exceeds VOCAB_TEXT_MAX.  O(n log n) for any text. */
int vocab_encode(const struct vocab *v, const char *text, size_t len, struct tokens *out, struct k3_error *err);
/* The same for raw prompts that may hold specials: the text of every slot becomes its id (SPEC 7.4). */
int vocab_encode_raw(const struct vocab *v, const char *text, size_t len, struct tokens *out, struct k3_error *err);

#endif
