/* cuda.h - what the operations of the CUDA backend share
 *
 * One file an operation: its kernels, and a host function of the same name as in kernels.h that launches them.  One
 * source is compiled for every GPU: mma.sync, at most 99 KB of shared memory a block, nothing that only one of them has.
 *
 * Kernels are launched with cuda_launch(), which lets the next kernel start while the one before it drains (programmatic
 * dependent launch).  Every block of every kernel therefore calls cuda_wait() before it reads what another kernel wrote
 * or writes what another may still read; weights, which no kernel writes, may be loaded before.  cuda_next() says that the
 * next kernel may be started; it will not pass its own cuda_wait() before all of this one has ended.
 *
 * The order of every sum depends on shapes only: never on the number of rows, never on which block ends first. */
#ifndef K3_KERNELS_CUDA_H
#define K3_KERNELS_CUDA_H

#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <errno.h>
#include <nvtx3/nvToolsExt.h>
#include <stdint.h>

extern "C" {
#include "kernels/backend.h"
}

enum { CUDA_COUNTERS = 1 << 16, CUDA_LETTERS = 1 << 18 };

struct cuda_stream {
    struct k3_stream base;
    cudaStream_t stream;
    int device, sms;
    size_t shared_most; /* bytes of shared memory that a block may opt in to */
    char *workspace;    /* for what lies between the kernels of one operation; an operation may use all of it */
    size_t workspace_bytes;
    unsigned *counters; /* CUDA_COUNTERS, for blocks that wait for each other; every kernel leaves them 0 */
    char *letters;      /* CUDA_LETTERS bytes, 0 at first, that attnres alone writes */
    char error[256];
};

static inline struct cuda_stream *cuda_of(struct k3_stream *s)
{
    return (struct cuda_stream *)s;
}

#define X(op) extern "C" int cuda_##op(const struct op##_args *a, struct k3_stream *s);
KERN_OPERATIONS(X)
#undef X
extern "C" int cuda_linears(const struct linears_args *a, struct k3_stream *s);
extern "C" int cuda_latent_tail(const struct latent_tail_args *a, struct k3_stream *s);
extern "C" int cuda_kda_block(const struct kda_block_args *a, struct k3_stream *s);

/* -1 with errno EIO and the sentence kept, unless code is success. */
int cuda_failed(struct cuda_stream *c, const char *what, cudaError_t code);

/* Queue a kernel.  shared: bytes of dynamic shared memory; above 48 KB it is asked for here. */
template <typename... P, typename... A>
static int cuda_launch(struct k3_stream *s, const char *what, void (*kernel)(P...), dim3 grid, dim3 block, size_t shared,
                       A &&...args)
{
    struct cuda_stream *c = cuda_of(s);
    cudaLaunchAttribute overlap = {};
    cudaLaunchConfig_t config = {};

    if (grid.x == 0 || grid.y == 0 || grid.z == 0)
        return 0;
    overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    overlap.val.programmaticStreamSerializationAllowed = 1;
    config.gridDim = grid;
    config.blockDim = block;
    config.dynamicSmemBytes = shared;
    config.stream = c->stream;
    config.attrs = &overlap;
    config.numAttrs = 1;
    if (shared > 48 << 10) {
        cudaError_t rc = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared);
        if (rc != cudaSuccess)
            return cuda_failed(c, what, rc);
    }
    nvtxRangePushA(what); /* for profilers; costs nothing without one */
    cudaError_t rc = cudaLaunchKernelEx(&config, kernel, P(args)...);
    nvtxRangePop();
    return cuda_failed(c, what, rc);
}

/* The emulator (kernels/emu) has its own. */
#ifndef CUDA_EMULATED
#define CUDA_SHARED(type, name) extern __shared__ type name[] /* dynamic shared memory */
#define CUDA_SPIN() ((void)0)                                 /* in a loop that waits for another block */
#endif

/* --- on the device ------------------------------------------------------------------------------------------------ */

#ifdef __CUDACC__

__device__ static inline void cuda_wait(void)
{
    cudaGridDependencySynchronize();
}

__device__ static inline void cuda_next(void)
{
    cudaTriggerProgrammaticLaunchCompletion();
}

/* The sum over the warp, the same in every lane, in one fixed order. */
__device__ static inline float cuda_warp_sum(float x)
{
    for (int d = 16; d > 0; d >>= 1)
        x += __shfl_xor_sync(0xffffffffu, x, d);
    return x;
}

__device__ static inline float cuda_warp_max(float x)
{
    for (int d = 16; d > 0; d >>= 1)
        x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, d));
    return x;
}

/* The sum over a block of whole warps, the same in every thread, in one fixed order.  `room`: shared, a float a warp. */
__device__ static inline float cuda_block_sum(float x, float *room)
{
    int warps = (int)(blockDim.x + 31) / 32;
    float sum = 0;

    x = cuda_warp_sum(x);
    __syncthreads(); /* room may still be read from the sum before */
    if (threadIdx.x % 32 == 0)
        room[threadIdx.x / 32] = x;
    __syncthreads();
    for (int i = 0; i < warps; i++)
        sum += room[i];
    return sum;
}

__device__ static inline float cuda_sigmoid(float x)
{
    return 1.0f / (1.0f + expf(-x));
}

/* Element i of a vector of weights, BF16 or F32. */
struct cuda_vector {
    const void *data;
    int bf16;
    __device__ float operator[](int64_t i) const
    {
        return bf16 ? __bfloat162float(((const __nv_bfloat16 *)data)[i]) : ((const float *)data)[i];
    }
};

#endif

static inline struct cuda_vector cuda_vector_of(const struct k3_tensor *t)
{
    return (struct cuda_vector){t->data, t->dtype == K3_BF16};
}

#endif
