/* stream.cu - the CUDA backend's stream: table of operations, memory, graphs */
#include "kernels/cuda/mma.h"

#include <stdio.h>
#include <stdlib.h>

enum { WORKSPACE_BYTES = 256 << 20 };

int cuda_failed(struct cuda_stream *c, const char *what, cudaError_t code)
{
    if (code == cudaSuccess)
        return 0;
    snprintf(c->error, sizeof c->error, "%s: %s", what, cudaGetErrorString(code));
    cudaGetLastError(); /* said once */
    errno = code == cudaErrorMemoryAllocation ? ENOMEM : EIO;
    return -1;
}

static void destroy(struct k3_stream *s)
{
    struct cuda_stream *c = cuda_of(s);

    cudaSetDevice(c->device);
    if (c->stream)
        cudaStreamDestroy(c->stream);
    cudaFree(c->workspace);
    cudaFree(c->counters);
    cudaFree(c->letters);
    free(c);
}

static int sync(struct k3_stream *s)
{
    return cuda_failed(cuda_of(s), "wait", cudaStreamSynchronize(cuda_of(s)->stream));
}

static int describe(const struct k3_stream *s, struct kern_device *d)
{
    struct cuda_stream *c = (struct cuda_stream *)(uintptr_t)s;
    cudaDeviceProp prop;
    size_t free_bytes = 0, total = 0;

    if (cuda_failed(c, "device", cudaGetDeviceProperties(&prop, c->device)) < 0 ||
        cuda_failed(c, "device", cudaMemGetInfo(&free_bytes, &total)) < 0)
        return -1;
    snprintf(d->name, sizeof d->name, "%.63s", prop.name);
    snprintf(d->id, sizeof d->id, "%08x:%02x:%02x.0", (unsigned)prop.pciDomainID, (unsigned)prop.pciBusID,
             (unsigned)prop.pciDeviceID);
    d->free = free_bytes;
    d->total = total;
    d->unified = prop.integrated;
    return 0;
}

static const char *error(const struct k3_stream *s)
{
    const struct cuda_stream *c = (const struct cuda_stream *)s;

    return *c->error ? c->error : strerror(errno);
}

static void *native(const struct k3_stream *s)
{
    return ((const struct cuda_stream *)s)->stream;
}

/* --- memory ------------------------------------------------------------------------------------------------------- */

static void *alloc(struct k3_stream *s, size_t bytes)
{
    void *p = NULL;

    if (cuda_failed(cuda_of(s), "device memory", cudaMalloc(&p, bytes ? bytes : 1)) < 0)
        return NULL;
    /* In the order of this stream: the legacy stream's memset would still run while the first operations write. */
    if (cuda_failed(cuda_of(s), "device memory", cudaMemsetAsync(p, 0, bytes, cuda_of(s)->stream)) < 0 || sync(s) < 0) {
        cudaFree(p);
        return NULL;
    }
    return p;
}

static void release(struct k3_stream *s, void *p, size_t bytes)
{
    (void)s, (void)bytes;
    cudaFree(p);
}

static void *alloc_host(struct k3_stream *s, size_t bytes)
{
    void *p = NULL;

    if (cuda_failed(cuda_of(s), "pinned memory", cudaHostAlloc(&p, bytes ? bytes : 1, cudaHostAllocPortable)) < 0)
        return NULL;
    memset(p, 0, bytes);
    return p;
}

static void release_host(struct k3_stream *s, void *p, size_t bytes)
{
    (void)s, (void)bytes;
    cudaFreeHost(p);
}

static int copy(struct k3_stream *s, void *to, size_t to_step, const void *from, size_t from_step, size_t bytes,
                size_t rows)
{
    struct cuda_stream *c = cuda_of(s);

    if (to_step == bytes && from_step == bytes)
        return cuda_failed(c, "copy", cudaMemcpyAsync(to, from, bytes * rows, cudaMemcpyDefault, c->stream));
    return cuda_failed(c, "copy",
                       cudaMemcpy2DAsync(to, to_step, from, from_step, bytes, rows, cudaMemcpyDefault, c->stream));
}

/* --- delay -------------------------------------------------------------------------------------------------------- */

__global__ static void wait_ns(uint64_t ns)
{
    cuda_wait();
    for (uint64_t start = cuda_now_ns(); cuda_now_ns() - start < ns;)
        ;
}

static int delay(struct k3_stream *s, double microseconds)
{
    if (microseconds <= 0)
        return 0;
    return cuda_launch(s, "delay", wait_ns, dim3(1), dim3(1), 0, (uint64_t)(microseconds * 1000));
}

/* --- graphs ------------------------------------------------------------------------------------------------------- */

extern const struct kern_memory cuda_memory;

struct cuda_graph {
    struct kern_graph base;
    cudaGraphExec_t exec;
    size_t operations;
};

static int graph_begin(struct k3_stream *s)
{
    struct cuda_stream *c = cuda_of(s);

    return cuda_failed(c, "record", cudaStreamBeginCapture(c->stream, cudaStreamCaptureModeThreadLocal));
}

static struct kern_graph *graph_end(struct k3_stream *s)
{
    struct cuda_stream *c = cuda_of(s);
    struct cuda_graph *g = (struct cuda_graph *)calloc(1, sizeof *g);
    cudaGraph_t graph = NULL;
    int rc = cuda_failed(c, "record", cudaStreamEndCapture(c->stream, &graph));

    if (rc == 0 && g)
        rc = cuda_failed(c, "graph", cudaGraphGetNodes(graph, NULL, &g->operations));
    if (rc == 0 && g)
        rc = cuda_failed(c, "graph", cudaGraphInstantiate(&g->exec, graph, 0));
    if (graph)
        cudaGraphDestroy(graph);
    if (rc < 0 || !g) {
        free(g);
        return NULL;
    }
    g->base.memory = &cuda_memory;
    return &g->base;
}

static int graph_run(struct kern_graph *g, struct k3_stream *s)
{
    struct cuda_stream *c = cuda_of(s);

    return cuda_failed(c, "graph", cudaGraphLaunch(((struct cuda_graph *)g)->exec, c->stream));
}

static int graph_operations(const struct kern_graph *g)
{
    return (int)((const struct cuda_graph *)g)->operations;
}

static void graph_destroy(struct kern_graph *g)
{
    cudaGraphExecDestroy(((struct cuda_graph *)g)->exec);
    free(g);
}

/* --- a stream ----------------------------------------------------------------------------------------------------- */

const struct kern_memory cuda_memory = {
    K3_BF16, describe, error, native, alloc, release, alloc_host, release_host, copy, delay, graph_begin, graph_end, graph_run,
    graph_operations, graph_destroy,
};

/* In the order of the struct: C++17 has no designators. */
static const struct kern_backend cuda_backend = {
    "cuda",
    destroy,
    sync,
    &cuda_memory,
#define X(op) cuda_##op,
    KERN_OPERATIONS(X)
#undef X
    cuda_linears,
    cuda_kda_block,
    cuda_latent_tail,
};

extern "C" int cuda_devices(void)
{
    int count = 0;

    return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

static int find_device(struct cuda_stream *c)
{
    int count = 0, most = 0;

    if (cuda_failed(c, "devices", cudaGetDeviceCount(&count)) < 0 || c->device >= count) {
        errno = ENODEV;
        return -1;
    }
    if (cuda_failed(c, "device", cudaSetDevice(c->device)) < 0 ||
        cuda_failed(c, "device", cudaDeviceGetAttribute(&c->sms, cudaDevAttrMultiProcessorCount, c->device)) < 0 ||
        cuda_failed(c, "device", cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, c->device)) < 0)
        return -1;
    c->shared_most = (size_t)most;
    return 0;
}

extern "C" struct k3_stream *cuda_stream_create(int device)
{
    struct cuda_stream *c = (struct cuda_stream *)calloc(1, sizeof *c);

    if (!c)
        return NULL;
    c->base.backend = &cuda_backend;
    c->device = device;
    c->workspace_bytes = WORKSPACE_BYTES;
    if (find_device(c) < 0 ||
        cuda_failed(c, "stream", cudaStreamCreateWithFlags(&c->stream, cudaStreamNonBlocking)) < 0 ||
        cuda_failed(c, "workspace", cudaMalloc((void **)&c->workspace, c->workspace_bytes)) < 0 ||
        cuda_failed(c, "workspace", cudaMalloc((void **)&c->counters, CUDA_COUNTERS * sizeof *c->counters)) < 0 ||
        cuda_failed(c, "workspace", cudaMemset(c->counters, 0, CUDA_COUNTERS * sizeof *c->counters)) < 0 ||
        cuda_failed(c, "workspace", cudaMalloc((void **)&c->letters, CUDA_LETTERS)) < 0 ||
        cuda_failed(c, "workspace", cudaMemset(c->letters, 0, CUDA_LETTERS)) < 0 ||
        cuda_failed(c, "workspace", cudaDeviceSynchronize()) < 0) {
        int saved = errno;
        destroy(&c->base);
        errno = saved;
        return NULL;
    }
    return &c->base;
}
