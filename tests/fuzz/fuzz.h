/* fuzz.h - what the fuzz targets share
 *
 * A target is one C file that hands arbitrary bytes to one door of the program where strangers' bytes come in, and
 * checks what must hold whatever they are.  Linked with libFuzzer (--enable-fuzzing, contrib/fuzz) it looks for inputs
 * by itself; otherwise driver.c runs it over its corpus. */
#ifndef K3_FUZZ_H
#define K3_FUZZ_H

#include <stddef.h>
#include <stdint.h>

#include "common/error.h"
#include "text/tokens.h"
#include "text/vocab.h"

/* The target.  Returns 0. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Says where, and why (a printf format), and aborts when what must hold does not. */
#define require(holds, ...)                                                                                            \
    do {                                                                                                               \
        if (!(holds))                                                                                                  \
            fuzz_fail(__FILE__, __LINE__, __VA_ARGS__);                                                                \
    } while (0)
void fuzz_fail(const char *file, int line, const char *fmt, ...) __attribute__((format(printf, 3, 4), noreturn));

/* A refusal says why. */
void fuzz_require_sentence(const struct k3_error *err);

/* A directory of this process's own, in memory where the system has /dev/shm; removed at exit, so that after a crash
 * its files can be looked at. */
const char *fuzz_dir(void);
/* Write a file there.  Its path, to be freed. */
char *fuzz_file(const char *name, const void *data, size_t size);

/* The toy vocabulary of 768 base tokens, whose ids 0 to 255 are the single bytes. */
const struct vocab *fuzz_vocab(void);

/* What the ids stand for, control ids by their names.  NUL-terminated, *len bytes, to be freed. */
char *fuzz_spell(const struct vocab *v, const struct tokens *ids, size_t *len);

/* One input in several parts. */
struct fuzz_input {
    const uint8_t *at;
    size_t left;
};
/* Its next byte, 0 at its end. */
uint8_t fuzz_byte(struct fuzz_input *in);
/* Its next *len bytes; *len becomes smaller where fewer are left. */
const char *fuzz_take(struct fuzz_input *in, size_t *len);

#endif
