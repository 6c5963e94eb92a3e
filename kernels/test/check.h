/* check.h - how an operation is held against its reference
 *
 * Inputs are random, from the seed in K3_TEST_SEED or the clock, printed so that a failure can be repeated.  Tensors
 * have rows wider than their columns, and everything that is not an input is NaN beforehand: what an operation forgets
 * to write, or writes or reads beside its columns, shows. */
#ifndef K3_KERNELS_TEST_CHECK_H
#define K3_KERNELS_TEST_CHECK_H

#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/ref/ref.h"

/* Unit round-off of fp32. */
#define U 0x1p-24

/* Start the random numbers; the first line of main(). */
void check_seed(void);
uint32_t random_bits(void);
double random_uniform(double low, double high);
int random_below(int n);

/* Memory that every backend reaches, a GPU where there is one included: what an operation of a test reads or writes
 * lies there, tensors of this header too.  Tests say malloc and free. */
void *check_malloc(size_t bytes);
void check_free(void *p);
#define malloc check_malloc
#define free check_free
/* A copy of a list there, good for the next few hundred calls. */
const int32_t *check_list(const int32_t *list, int64_t n);
/* Whether bounds are asked for what cuda computed, which rounds the factors of matrix products to BF16. */
int check_rounds_to_bf16(void);

/* An F32 tensor of NaN whose rows are pad elements wider than cols; free with tensor_free(). */
struct k3_tensor tensor_f32(int64_t rows, int64_t cols, int64_t pad);
/* The same, filled with uniform random numbers of [low, high). */
struct k3_tensor tensor_random(int64_t rows, int64_t cols, int64_t pad, double low, double high);
/* Random weights of any dtype, none of them NaN; F32 and BF16 are uniform in [-1, 1). */
struct k3_tensor tensor_weights(enum k3_dtype dtype, int64_t rows, int64_t cols, int64_t pad);
void tensor_free(struct k3_tensor *t);
/* Rows [begin, end) of t. */
struct k3_tensor tensor_rows(const struct k3_tensor *t, int64_t begin, int64_t end);
void tensor_copy(const struct k3_tensor *to, const struct k3_tensor *from);

/* An operation on units (rows or sequences) that must not know of each other. */
struct check {
    void *arg;
    int64_t units;
    const int32_t *begin; /* unit u is rows begin[u] ... begin[u + 1] - 1 of y; NULL: row u */
    int64_t cols;         /* of y */
    int64_t state;        /* floats that a unit leaves behind beside its rows of y, 0 for none */

    /* Run units [u0, u1); y holds their rows, `state` takes u1 - u0 times what they leave behind. */
    int (*run)(void *arg, struct k3_stream *s, int64_t u0, int64_t u1, const struct k3_tensor *y, float *state);
    /* Error allowed in y[t][c] and in float j of unit u's state. */
    double (*bound)(void *arg, int64_t t, int64_t c, double expected);
    double (*state_bound)(void *arg, int64_t u, int64_t j, double expected);
};

/* Whether the GPU is kernels/emu, which takes a second for what takes others a millisecond. */
int check_emulated(void);

/* Whether this build and this machine have a backend. */
int check_has(const char *backend);

/* Each CPU variant that there is, and cuda: all units at once on one thread is within the bound of ref; on 2 and 3
 * threads, and unit by unit, the bits are the same.  run() waits for the stream before it looks at a result. */
void check_operation(const struct check *c);

/* A sum of n fp32 products in lanes of eight or more is off by no more than this: the longest chain of roundings that a
 * product goes through, of U each, times the sum of the products' magnitudes. */
double bound_dot(int64_t n, double sum_of_magnitudes);

/* A latent cache of so many places for the stream's backend, holding `values` [places, K3_CACHE_DIM] F32, rounded where
 * the backend keeps BF16; free its data. */
struct kern_latents check_latents(const struct k3_stream *s, const float *values, int64_t places, int32_t page_tokens);
float check_latent(const struct kern_latents *c, int64_t place, int d);

/* The same rows and sequences of a step as a kern_batch over sequences [u0, u1), with lists as of check_list(). */
struct kern_batch batch_part(const struct kern_batch *b, int64_t u0, int64_t u1);

#endif
