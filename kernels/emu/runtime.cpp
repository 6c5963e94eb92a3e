/* runtime.cpp - memory, streams and graphs: what is asked for is done at once, but for kernels, which wait in a queue
 */
#include "kernels/emu/cuda_runtime.h"

#include <nvtx3/nvToolsExt.h>

#include <stdio.h>
#include <vector>

enum { MEMORY_GB = 16 };

const char *emu_name = "kernel";

struct emu_graph {
    std::vector<std::function<void()>> operations;
};
struct emu_stream {
    struct emu_graph *recording; /* NULL: none */
};

/* Now, in the order of the stream, or whenever the graph runs. */
static cudaError_t operation(cudaStream_t s, std::function<void()> work)
{
    if (s->recording)
        s->recording->operations.push_back(work);
    else
        work();
    return cudaSuccess;
}

cudaError_t emu_launch_on(cudaStream_t s, const struct cudaLaunchConfig_t *c, std::function<void()> body)
{
    struct emu_launch l = {emu_name, body, c->gridDim, c->blockDim, c->dynamicSmemBytes};

    return operation(s, [=] { emu_submit(l); });
}

/* --- the device ----------------------------------------------------------------------------------------------------
 */

const char *cudaGetErrorString(cudaError_t code)
{
    return code == cudaErrorMemoryAllocation ? "out of memory" : "not what the emulated GPU can do";
}

cudaError_t cudaGetLastError(void)
{
    return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int *count)
{
    *count = 1;
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device)
{
    return device == 0 ? cudaSuccess : cudaErrorInvalidDevice;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *prop, int device)
{
    *prop = (struct cudaDeviceProp){"emulated", 0, 0, 0, 0};
    return cudaSetDevice(device);
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr what, int device)
{
    *value = what == cudaDevAttrMultiProcessorCount ? (int)EMU_SMS : (int)EMU_SHARED_MOST;
    return cudaSetDevice(device);
}

cudaError_t cudaDeviceSynchronize(void)
{
    emu_finish();
    return cudaSuccess;
}

/* --- memory --------------------------------------------------------------------------------------------------------
 */

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total)
{
    *free_bytes = *total = (size_t)MEMORY_GB << 30;
    return cudaSuccess;
}

cudaError_t cudaMalloc(void **p, size_t bytes)
{
    *p = emu_alloc(bytes);
    return *p ? cudaSuccess : cudaErrorMemoryAllocation;
}

cudaError_t cudaHostAlloc(void **p, size_t bytes, unsigned)
{
    return cudaMalloc(p, bytes);
}

cudaError_t cudaFree(void *p)
{
    emu_finish();
    emu_free(p);
    return cudaSuccess;
}

cudaError_t cudaFreeHost(void *p)
{
    return cudaFree(p);
}

cudaError_t cudaMemset(void *p, int value, size_t bytes)
{
    emu_finish();
    memset(p, value, bytes);
    return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *p, int value, size_t bytes, cudaStream_t s)
{
    return operation(s, [=] { cudaMemset(p, value, bytes); });
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t s)
{
    return cudaMemcpy2DAsync(to, bytes, from, bytes, bytes, 1, kind, s);
}

cudaError_t cudaMemcpy2DAsync(void *to, size_t to_step, const void *from, size_t from_step, size_t bytes, size_t rows,
                              enum cudaMemcpyKind, cudaStream_t s)
{
    return operation(s, [=] {
        emu_finish();
        for (size_t i = 0; i < rows; i++)
            memcpy((char *)to + i * to_step, (const char *)from + i * from_step, bytes);
    });
}

/* --- streams and graphs --------------------------------------------------------------------------------------------
 */

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned)
{
    *s = new struct emu_stream();
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t s)
{
    emu_finish();
    delete s;
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t)
{
    return cudaDeviceSynchronize();
}

cudaError_t cudaStreamBeginCapture(cudaStream_t s, enum cudaStreamCaptureMode)
{
    s->recording = new struct emu_graph();
    return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t *graph)
{
    *graph = s->recording;
    s->recording = NULL;
    return cudaSuccess;
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *, size_t *count)
{
    *count = graph->operations.size();
    return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned)
{
    *exec = new struct emu_graph(*graph);
    return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    delete graph;
    return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t s)
{
    for (auto &work : exec->operations)
        operation(s, work);
    return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    return cudaGraphDestroy(exec);
}
