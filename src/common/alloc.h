/* alloc.h - memory for small bookkeeping
 *
 * The k3_ allocators stop the program with one line when memory is gone: use them where our own code decides the size.
 * Where a request or a file decides it, use k3_try_alloc() after checking the size against a limit, and refuse. */
#ifndef K3_COMMON_ALLOC_H
#define K3_COMMON_ALLOC_H

#include <stdbool.h>
#include <stddef.h>

/* Zeroed memory, freed with free(). */
void *k3_zalloc(size_t bytes) __attribute__((malloc, returns_nonnull));
/* Zeroed array; stops the program when count * bytes overflows. */
void *k3_calloc(size_t count, size_t bytes) __attribute__((malloc, returns_nonnull));
/* Resize an array to count elements; new elements are not zeroed. */
void *k3_reallocarray(void *old, size_t count, size_t bytes) __attribute__((returns_nonnull));
char *k3_strdup(const char *s) __attribute__((malloc, returns_nonnull));
/* Copy len bytes and a terminating NUL. */
char *k3_strndup(const char *s, size_t len) __attribute__((malloc, returns_nonnull));
char *k3_asprintf(const char *fmt, ...) __attribute__((malloc, returns_nonnull, format(printf, 1, 2)));

/* From here on this thread asks for no memory and gives none back, until it says false: the stretch between two tokens.
 * Says so and no more; a test with a malloc() of its own asks alloc_forbidden(). */
void alloc_forbid(bool forbid);
bool alloc_forbidden(void);

/* Zeroed count * bytes, or NULL with errno ENOMEM (also on overflow): the caller refuses the request or the file. */
void *k3_try_alloc(size_t count, size_t bytes) __attribute__((malloc));

#endif
