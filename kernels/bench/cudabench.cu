/* cudabench.cu - matrix products of one rank of 16 on the GPU, beside cuBLAS and the bandwidth of a copy; those with
 * FP8 and MXFP8 weights beside BF16
 *
 * usage: cudabench [linear | fp8 | experts]
 *
 * Shapes are those of a rank of K3 split over 16 (docs/k3-model.md, sections 2 and 11).  Each time is that of a CUDA
 * graph of as many calls as read 256 MB or more of weights, every call another copy of them, so that they come from
 * memory.  Ours are chained by programmatic dependent launch, as in a step; cuBLAS launches as it likes. */
#include <cublas_v2.h>
#include <cuda_runtime.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <functional>

extern "C" {
#include "kernels/kernels.h"
}

static const size_t arena_bytes = (size_t)3 << 30, rotated_bytes = (size_t)256 << 20, room_bytes = (size_t)512 << 20;

static struct k3_stream *stream;
static cudaStream_t native;
static cublasHandle_t blas;
static char *arena, *room; /* weights; activations and lists */
static uint8_t *scales;

static void need(bool ok, const char *what)
{
    if (ok)
        return;
    fprintf(stderr, "cudabench: %s: %s\n", what, cudaGetErrorString(cudaGetLastError()));
    exit(1);
}

/* BF16 numbers near 2^-7; codes of many kinds, none of them NaN. */
static __global__ void fill(uint32_t *p, size_t n)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x) {
        uint32_t h = (uint32_t)i * 2654435761u;
        h ^= h >> 15;
        p[i] = ((h * 2246822519u) & 0x80778077u) | 0x3c003c00u;
    }
}

static __global__ void fill_floats(float *p, size_t n)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x)
        p[i] = (float)((uint32_t)i * 2654435761u >> 8) * 0x1p-24f - 0.5f;
}

/* Microseconds of one of `calls` calls in a graph: the best of seven runs. */
static double time_graph(int calls, const std::function<void(int)> &call)
{
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    cudaEvent_t begin, end;
    float best = 1e30f;

    need(cudaStreamBeginCapture(native, cudaStreamCaptureModeThreadLocal) == cudaSuccess, "record");
    for (int i = 0; i < calls; i++)
        call(i);
    need(cudaStreamEndCapture(native, &graph) == cudaSuccess, "record");
    need(cudaGraphInstantiate(&exec, graph, 0) == cudaSuccess, "graph");
    cudaEventCreate(&begin);
    cudaEventCreate(&end);
    for (int i = 0; i < 8; i++) {
        float ms;
        cudaEventRecord(begin, native);
        cudaGraphLaunch(exec, native);
        cudaEventRecord(end, native);
        need(cudaEventSynchronize(end) == cudaSuccess, "run");
        cudaEventElapsedTime(&ms, begin, end);
        best = i > 0 ? std::min(best, ms) : best;
    }
    cudaEventDestroy(begin);
    cudaEventDestroy(end);
    cudaGraphExecDestroy(exec);
    cudaGraphDestroy(graph);
    return best * 1e3 / calls;
}

static struct k3_tensor tensor(void *data, enum k3_dtype dtype, int64_t rows, int64_t cols)
{
    void *scale = dtype == K3_F32 || dtype == K3_BF16 ? NULL : scales;
    return (struct k3_tensor){data, scale, dtype, K3_ROW_MAJOR, rows, cols, cols};
}

/* Microseconds of a product with weights of `bytes` bytes. */
static double time_linear(enum k3_dtype dtype, size_t bytes, int rows, int out, int in)
{
    size_t step = (bytes + 4095) / 4096 * 4096;
    int calls = (int)std::min<size_t>(std::max<size_t>(rotated_bytes / step, 4), 256);
    struct k3_tensor x = tensor(room, K3_F32, rows, in), y = tensor(room + room_bytes / 2, K3_F32, rows, out);

    return time_graph(calls, [&](int i) {
        struct k3_tensor w = tensor(arena + i * step, dtype, out, in);
        struct linear_args a = {&x, &w, &y, 0};
        if (w.scale)
            w.scale = scales + i * step / 16;
        need(kern_linear(&a, stream) == 0, "linear");
    });
}

static void bench_fp8(const char *name, int rows, int out, int in)
{
    size_t n = (size_t)out * in;
    double bf16 = time_linear(K3_BF16, n * 2, rows, out, in), fp8 = time_linear(K3_FP8_E4M3, n, rows, out, in),
           mxfp8 = time_linear(K3_MXFP8, n, rows, out, in);

    printf("%-14s %5d x %5d %5d  %8.2f %8.2f %6.2f  %6.0f GB/s %8.2f %6.2f  %6.0f GB/s\n", name, out, in, rows, bf16,
           fp8, bf16 / fp8, (n + out * 4) / fp8 * 1e-3, mxfp8, bf16 / mxfp8, (n + n / K3_MX_BLOCK) / mxfp8 * 1e-3);
}

static void bench_linear(const char *name, int rows, int out, int in)
{
    size_t bytes = (size_t)out * in * 2, step = (bytes + 4095) / 4096 * 4096;
    int calls = (int)std::min<size_t>(std::max<size_t>(rotated_bytes / step, 4), 256);
    double ours = time_linear(K3_BF16, bytes, rows, out, in);
    double peer = time_graph(calls, [&](int i) {
        float one = 1, zero = 0;
        need(cublasGemmEx(blas, CUBLAS_OP_T, CUBLAS_OP_N, out, rows, in, &one, arena + i * step, CUDA_R_16BF, in, room,
                          CUDA_R_16BF, in, &zero, room + room_bytes / 2, CUDA_R_16BF, out, CUBLAS_COMPUTE_32F,
                          CUBLAS_GEMM_DEFAULT) == CUBLAS_STATUS_SUCCESS,
             "cuBLAS");
    });
    printf("%-14s %5d x %5d %5d  %8.2f %8.2f %6.2f  %6.0f GB/s", name, out, in, rows, ours, peer, peer / ours,
           bytes / ours * 1e-3);
    if (rows > 64)
        printf("  %5.0f TFLOP/s, cuBLAS %5.0f", 2e-6 * rows * out * in / ours, 2e-6 * rows * out * in / peer);
    printf("\n");
}

static void bench_experts(enum k3_dtype dtype, int rows, int experts, int topk, int width, int inner)
{
    size_t matrix = (size_t)width * inner / (dtype == K3_MXFP4 ? 2 : 1) * (dtype == K3_MXFP4 ? 1 : 2),
           pairs = (size_t)rows * topk;
    struct kern_expert_matrix w1, w2;
    struct k3_tensor z = tensor(room, K3_F32, rows, width), y = tensor(room + room_bytes / 2, K3_F32, rows, width);
    int calls = rows > 64 ? 2 : rows > 4 ? 8 : 64;
    int32_t *id = (int32_t *)(room + room_bytes / 4), *list = (int32_t *)malloc(pairs * calls * sizeof *list);
    float *weight = (float *)(room + room_bytes / 4 * 3);
    double distinct = 0;

    for (int c = 0; c < calls; c++) {
        bool *seen = (bool *)calloc(experts, 1);
        for (size_t p = 0; p < pairs; p++) {
            int e = (p % topk == 0 ? rand() : list[c * pairs + p - 1] + 1 + rand() % (experts / topk)) % experts;
            list[c * pairs + p] = e;
            distinct += !seen[e];
            seen[e] = true;
        }
        free(seen);
    }
    need(cudaMemcpy(id, list, pairs * calls * sizeof *list, cudaMemcpyHostToDevice) == cudaSuccess, "copy");
    w1.first = tensor(arena, dtype, inner, width);
    w2.first = tensor(arena, dtype, width, inner);
    w1.data_step = w2.data_step = (int64_t)matrix;
    w1.scale_step = w2.scale_step = dtype == K3_MXFP4 ? (int64_t)width * inner / K3_MX_BLOCK : 0;
    struct kern_expert_matrix w3 = w1;
    w3.first.data = arena + (size_t)experts * matrix;
    w2.first.data = arena + (size_t)experts * matrix * 2;
    double us = time_graph(calls, [&](int i) {
        struct experts_args a = {&z, id + i * pairs, weight, topk, experts, 0, experts, &w1, &w3, &w2, &y, 4, 25};
        need(kern_experts(&a, stream) == 0, "experts");
    });
    double bytes = distinct / calls * 3 * (double)(matrix + w1.scale_step);
    printf("experts %s %d of %d, %d wide %5d  %8.2f  %6.0f GB/s  %5.0f TFLOP/s\n", dtype == K3_MXFP4 ? "MXFP4" : "BF16",
           topk, experts, inner, rows, us, bytes / us * 1e-3, 6e-6 * pairs * width * inner / us);
    free(list);
}

static __global__ void copy(uint4 *to, const uint4 *from, size_t n)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x)
        to[i] = from[i];
}

static void measure_copy(void)
{
    size_t bytes = (size_t)1 << 30;
    double us = 1e30;
    for (int blocks = 528; blocks <= 65536; blocks *= 2)
        us = std::min(us, time_graph(2, [&](int) {
                          copy<<<blocks, 512, 0, native>>>((uint4 *)(arena + bytes), (uint4 *)arena, bytes / 16);
                      }));
    printf("a copy reads and writes %.0f GB/s\n", 2 * bytes / us * 1e-3);
}

static const struct {
    const char *name;
    int out, in;
} shapes[] = {
    {"KDA q,k,v,g", 3072, 7168}, {"o_proj", 7168, 768},      {"latent down", 224, 7168}, {"latent up", 7168, 224},
    {"shared up", 768, 7168},    {"shared down", 7168, 384}, {"router", 896, 7168},      {"q_a", 1536, 7168},
    {"q_b", 1152, 1536},         {"kv_a", 576, 7168},        {"f_b", 768, 128},          {"head", 10240, 7168},
};

int main(int argc, char **argv)
{
    auto asked = [&](const char *what) { return argc < 2 || strcmp(argv[1], what) == 0; };
    bool linear = asked("linear"), fp8 = asked("fp8"), experts = asked("experts");
    struct cudaDeviceProp device;

    stream = kern_stream_create("cuda", 1);
    need(stream != NULL, "no GPU");
    native = (cudaStream_t)kern_stream_native(stream);
    arena = (char *)kern_alloc(stream, arena_bytes);
    room = (char *)kern_alloc(stream, room_bytes);
    scales = (uint8_t *)kern_alloc(stream, arena_bytes / 16);
    need(arena && room && scales, "memory");
    fill<<<1024, 256, 0, native>>>((uint32_t *)arena, arena_bytes / 4);
    fill_floats<<<1024, 256, 0, native>>>((float *)room, room_bytes / 4);
    need(cudaMemset(scales, 60, arena_bytes / 16) == cudaSuccess, "scales");
    need(cublasCreate(&blas) == CUBLAS_STATUS_SUCCESS, "cuBLAS");
    cublasSetStream(blas, native);
    void *blas_room = kern_alloc(stream, 32 << 20);
    cublasSetWorkspace(blas, blas_room, 32 << 20);
    need(kern_sync(stream) == 0 && cudaGetDeviceProperties(&device, 0) == cudaSuccess, "fill");
    printf("%s\n", device.name);
    measure_copy();
    printf("%-14s %13s %5s  %8s %8s %6s\n", "", "out x in", "rows", "us", "cuBLAS", "times");
    for (auto &s : shapes)
        for (int rows = 1; linear && rows <= 8; rows *= 2)
            bench_linear(s.name, rows, s.out, s.in);
    if (fp8)
        printf("%-14s %13s %5s  %8s %8s %6s %13s %8s %6s\n", "", "out x in", "rows", "BF16 us", "FP8 us", "times", "",
               "MXFP8 us", "times");
    for (auto &s : shapes)
        for (int rows : {1, 8, 2048})
            if (fp8)
                bench_fp8(s.name, rows, s.out, s.in);
    for (int rows = 1; experts && rows <= 32; rows *= 2)
        bench_experts(K3_MXFP4, rows, 896, 16, 3584, 192);
    for (auto &s : shapes)
        for (int rows = 16; linear && rows <= 2048; rows *= rows == 16 ? 2 : 64)
            bench_linear(s.name, rows, s.out, s.in);
    if (experts)
        bench_experts(K3_MXFP4, 2048, 896, 16, 3584, 192);
    cublasDestroy(blas);
    kern_free(stream, blas_room, 32 << 20);
    kern_free(stream, arena, arena_bytes);
    kern_free(stream, room, room_bytes);
    kern_free(stream, scales, arena_bytes / 16);
    kern_stream_destroy(stream);
    return 0;
}
