/* backend.h - what a backend is to kernels.c: one table of operations
 *
 * Private to kernels/.  A stream is the backend's own struct with struct k3_stream as its first member.  kernels.c has
 * checked every dtype and shape before an operation of the table runs; the backend checks what only reading the data
 * can tell (row and expert numbers) and what it cannot hold. */
#ifndef K3_KERNELS_BACKEND_H
#define K3_KERNELS_BACKEND_H

#include "kernels/kernels.h"

/* Every operation, in the order of kernels.h. */
#define KERN_OPERATIONS(X)                                                                                             \
    X(embed)                                                                                                           \
    X(gather)                                                                                                          \
    X(linear)                                                                                                          \
    X(add)                                                                                                             \
    X(rmsnorm)                                                                                                         \
    X(situ)                                                                                                            \
    X(attnres)                                                                                                         \
    X(conv)                                                                                                            \
    X(kda_gate)                                                                                                        \
    X(kda)                                                                                                             \
    X(gated_norm)                                                                                                      \
    X(mla_append)                                                                                                      \
    X(mla_attend)                                                                                                      \
    X(sigmoid_gate)                                                                                                    \
    X(router)                                                                                                          \
    X(experts)

struct kern_backend {
    const char *name;
    void (*destroy)(struct k3_stream *s);
    int (*sync)(struct k3_stream *s);
#define X(op) int (*op)(const struct op##_args *a, struct k3_stream *s);
    KERN_OPERATIONS(X)
#undef X
};

struct k3_stream {
    const struct kern_backend *backend;
};

/* NULL with errno set (ENOMEM, EAGAIN; ENOTSUP where this machine lacks the instructions). */
struct k3_stream *ref_stream_create(int threads);
struct k3_stream *cpu_select_best(int threads);
struct k3_stream *cpu_select_avx512(int threads);
struct k3_stream *cpu_select_avx2(int threads);
struct k3_stream *cpu_plain_stream_create(int threads);

/* For select.c alone: only where the build has them, on a machine that can run them. */
struct k3_stream *cpu_avx512_stream_create(int threads);
struct k3_stream *cpu_avx2_stream_create(int threads);

#endif
