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
    X(sum)                                                                                                             \
    X(columns)                                                                                                         \
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

/* What a backend with memory of its own does beside operations; see kernels.h. */
struct kern_memory {
    enum k3_dtype latents;
    int (*device)(const struct k3_stream *s, struct kern_device *d);
    const char *(*error)(const struct k3_stream *s);
    void *(*native)(const struct k3_stream *s);
    void *(*alloc)(struct k3_stream *s, size_t bytes);
    void (*free)(struct k3_stream *s, void *p, size_t bytes);
    void *(*alloc_host)(struct k3_stream *s, size_t bytes);
    void (*free_host)(struct k3_stream *s, void *p, size_t bytes);
    int (*copy)(struct k3_stream *s, void *to, size_t to_step, const void *from, size_t from_step, size_t bytes,
                size_t rows);
    int (*delay)(struct k3_stream *s, double microseconds);
    int (*graph_begin)(struct k3_stream *s);
    struct kern_graph *(*graph_end)(struct k3_stream *s);
    int (*graph_run)(struct kern_graph *g, struct k3_stream *s);
    int (*graph_operations)(const struct kern_graph *g);
    void (*graph_destroy)(struct kern_graph *g);
};

struct kern_backend {
    const char *name;
    void (*destroy)(struct k3_stream *s);
    int (*sync)(struct k3_stream *s);
    const struct kern_memory *memory; /* NULL: this process' own */
#define X(op) int (*op)(const struct op##_args *a, struct k3_stream *s);
    KERN_OPERATIONS(X)
#undef X
    /* Several operations at once; NULL where the backend has no faster way than one after the other. */
    int (*linears)(const struct linears_args *a, struct k3_stream *s);
    int (*kda_block)(const struct kda_block_args *a, struct k3_stream *s);
    int (*latent_tail)(const struct latent_tail_args *a, struct k3_stream *s);
};

struct k3_stream {
    const struct kern_backend *backend;
};

/* First member of a backend's own. */
struct kern_graph {
    const struct kern_memory *memory;
};

/* NULL with errno set (ENOMEM, EAGAIN; ENOTSUP where this machine lacks the instructions). */
struct k3_stream *ref_stream_create(int threads);
struct k3_stream *cpu_select_best(int threads);
struct k3_stream *cpu_select_avx512(int threads);
struct k3_stream *cpu_select_avx2(int threads);
struct k3_stream *cpu_plain_stream_create(int threads);
/* device: of those that this process sees.  ENODEV where there is no such GPU, or none that this build has code for. */
struct k3_stream *cuda_stream_create(int device);
int cuda_devices(void);

/* For select.c alone: only where the build has them, on a machine that can run them. */
struct k3_stream *cpu_avx512_stream_create(int threads);
struct k3_stream *cpu_avx2_stream_create(int threads);

#endif
