/* cuda_runtime.h - stand-in: CUDA C++ and its runtime as far as the kernels use them */
#ifndef K3_KERNELS_EMU_CUDA_RUNTIME_H
#define K3_KERNELS_EMU_CUDA_RUNTIME_H

#include "kernels/emu/emu.h"

#include <math.h>
#include <string.h>
#include <type_traits>

/* --- the language ------------------------------------------------------------------------------------------------- */

#define __global__
#define __device__
#define __host__
#define __grid_constant__
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
#define __shared__ static __thread /* see emu.cpp: nothing else of a program that runs kernels is thread-local */
#define CUDA_SHARED(type, name) type *name = (type *)emu_dynamic()
#define CUDA_SPIN() emu_spin()

struct alignas(8) float2 {
    float x, y;
};
struct alignas(16) float4 {
    float x, y, z, w;
};
struct alignas(8) uint2 {
    unsigned x, y;
};
struct alignas(16) uint4 {
    unsigned x, y, z, w;
};

static inline struct float2 make_float2(float x, float y)
{
    return {x, y};
}

static inline struct float4 make_float4(float x, float y, float z, float w)
{
    return {x, y, z, w};
}

static inline struct uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w)
{
    return {x, y, z, w};
}

template <class A, class B> static inline typename std::common_type<A, B>::type min(A a, B b)
{
    typename std::common_type<A, B>::type x = a, y = b;
    return y < x ? y : x;
}

template <class A, class B> static inline typename std::common_type<A, B>::type max(A a, B b)
{
    typename std::common_type<A, B>::type x = a, y = b;
    return x < y ? y : x;
}

static inline float __uint_as_float(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static inline uint32_t __float_as_uint(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

static inline float __fmul_rn(float a, float b)
{
    return a * b;
}

/* --- loads and atomics ---------------------------------------------------------------------------------------------
 */

template <class T> static inline T emu_load(const T *p)
{
    emu_aligned(p, sizeof *p);
    return *p;
}
#define __ldg emu_load
#define __ldcs emu_load
#define __ldcg emu_load

template <class T, class V> static inline T atomicAdd(T *p, V v)
{
    T before = *p; /* nothing comes between: fibers do not interrupt each other */
    *p = before + v;
    return before;
}

static inline void __threadfence(void)
{
}

/* --- blocks and warps ----------------------------------------------------------------------------------------------
 */

static inline void __syncthreads(void)
{
    emu_barrier();
}

static inline int __syncthreads_or(int value)
{
    return emu_barrier_or(value);
}

static inline void emu_full(unsigned mask)
{
    if (mask != 0xffffffffu)
        emu_fail("an operation of some lanes of a warp, %08x, cannot be emulated", mask);
}

template <class T> static inline T emu_shuffle(unsigned mask, T value, int from)
{
    uint64_t bits = 0;

    emu_full(mask);
    memcpy(&bits, &value, sizeof value);
    bits = emu_exchange(bits, from);
    memcpy(&value, &bits, sizeof value);
    return value;
}

template <class T> static inline T __shfl_sync(unsigned mask, T value, int lane)
{
    return emu_shuffle(mask, value, lane);
}

template <class T> static inline T __shfl_xor_sync(unsigned mask, T value, int d)
{
    return emu_shuffle(mask, value, (int)(threadIdx.x % 32) ^ d);
}

template <class T> static inline T __shfl_up_sync(unsigned mask, T value, int d)
{
    int lane = (int)(threadIdx.x % 32);
    return emu_shuffle(mask, value, lane >= d ? lane - d : lane);
}

static inline unsigned __ballot_sync(unsigned mask, int value)
{
    emu_full(mask);
    return emu_ballot(value);
}

static inline int __any_sync(unsigned mask, int value)
{
    return __ballot_sync(mask, value) != 0;
}

static inline void __syncwarp(void)
{
    emu_ballot(0);
}

static inline int __popc(unsigned x)
{
    return __builtin_popcount(x);
}

static inline int __ffs(int x)
{
    return __builtin_ffs(x);
}

static inline void cudaGridDependencySynchronize(void)
{
    emu_wait();
}

static inline void cudaTriggerProgrammaticLaunchCompletion(void)
{
    emu_next();
}

/* --- the runtime's calls -------------------------------------------------------------------------------------------
 */

enum cudaError_t { cudaSuccess, cudaErrorInvalidValue, cudaErrorMemoryAllocation, cudaErrorInvalidDevice };
enum cudaMemcpyKind { cudaMemcpyDefault };
enum cudaDeviceAttr { cudaDevAttrMultiProcessorCount, cudaDevAttrMaxSharedMemoryPerBlockOptin };
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize };
enum cudaLaunchAttributeID { cudaLaunchAttributeProgrammaticStreamSerialization };
enum cudaStreamCaptureMode { cudaStreamCaptureModeThreadLocal };
enum { cudaHostAllocPortable = 1, cudaStreamNonBlocking = 1 };

typedef struct emu_stream *cudaStream_t;
typedef struct emu_graph *cudaGraph_t, *cudaGraphExec_t;
typedef struct emu_node *cudaGraphNode_t;

struct cudaDeviceProp {
    char name[256];
    int pciDomainID, pciBusID, pciDeviceID, integrated;
};
struct cudaLaunchAttribute {
    enum cudaLaunchAttributeID id;
    struct {
        int programmaticStreamSerializationAllowed;
    } val;
};
struct cudaLaunchConfig_t {
    struct dim3 gridDim, blockDim;
    size_t dynamicSmemBytes;
    cudaStream_t stream;
    struct cudaLaunchAttribute *attrs;
    unsigned numAttrs;
};

const char *cudaGetErrorString(cudaError_t code);
cudaError_t cudaGetLastError(void);
cudaError_t cudaGetDeviceCount(int *count);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *prop, int device);
cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr what, int device);
cudaError_t cudaDeviceSynchronize(void);
cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total);
cudaError_t cudaMalloc(void **p, size_t bytes);
cudaError_t cudaHostAlloc(void **p, size_t bytes, unsigned flags);
cudaError_t cudaFree(void *p);
cudaError_t cudaFreeHost(void *p);
cudaError_t cudaMemset(void *p, int value, size_t bytes);
cudaError_t cudaMemsetAsync(void *p, int value, size_t bytes, cudaStream_t s);
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t s);
cudaError_t cudaMemcpy2DAsync(void *to, size_t to_step, const void *from, size_t from_step, size_t bytes, size_t rows,
                              enum cudaMemcpyKind kind, cudaStream_t s);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t s);
cudaError_t cudaStreamSynchronize(cudaStream_t s);
cudaError_t cudaStreamBeginCapture(cudaStream_t s, enum cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t *graph);
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *count);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned flags);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t s);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec);

template <class F> static inline cudaError_t cudaFuncSetAttribute(F *, enum cudaFuncAttribute, int bytes)
{
    return bytes <= EMU_SHARED_MOST ? cudaSuccess : cudaErrorInvalidValue;
}

/* On the stream, or into the graph that it records. */
cudaError_t emu_launch_on(cudaStream_t s, const struct cudaLaunchConfig_t *c, std::function<void()> body);

template <class... P, class... A>
static inline cudaError_t cudaLaunchKernelEx(const struct cudaLaunchConfig_t *c, void (*kernel)(P...), A &&...args)
{
    return emu_launch_on(c->stream, c, [=] { kernel(args...); });
}

#endif
