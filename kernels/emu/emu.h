/* emu.h - a GPU's threads on a CPU: what the stand-ins for CUDA's headers are made of
 *
 * The sources of kernels/cuda, compiled as C++ with this directory before CUDA's own headers, run here without a GPU.
 * A thread of a block is a fiber, which runs until it has to wait for others (a barrier, an operation of its warp,
 * emu_spin()); which one runs then is random, from K3_TEST_SEED.  A few blocks of a grid are under way at a time, in
 * random order, so that they may wait for each other.  It all happens on the thread that launches, one kernel after
 * the other, with one exception: a kernel's first blocks start early, as programmatic dependent launch allows, and run
 * up to their cuda_wait() before the kernels in front of it.
 *
 * What the rules forbid ends the program with a sentence: memory beside an allocation, addresses that are not
 * aligned, a barrier or an operation of a warp that some do not reach, a block that never calls cuda_wait().  Memory
 * that nobody wrote, shared and allocated, is NaN. */
#ifndef K3_KERNELS_EMU_H
#define K3_KERNELS_EMU_H

#include <functional>
#include <stddef.h>
#include <stdint.h>

enum { EMU_SMS = 4, EMU_SHARED_MOST = 99 << 10 };

struct uint3 {
    unsigned x, y, z;
};
struct dim3 {
    unsigned x, y, z;
    dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z)
    {
    }
};

/* Of the fiber that runs. */
extern struct uint3 threadIdx, blockIdx;
extern struct dim3 blockDim, gridDim;

/* --- by the host -------------------------------------------------------------------------------------------------- */

struct emu_launch {
    const char *name;
    std::function<void()> body; /* of one thread */
    struct dim3 grid, block;
    size_t shared;
};

/* Takes a kernel into the queue. */
void emu_submit(const struct emu_launch &l);
/* Until the queue is empty. */
void emu_finish(void);

/* NaN, with no memory in front of and behind it; NULL where there is none. */
void *emu_alloc(size_t bytes);
/* NULL is fine.  Says so where somebody wrote beside it. */
void emu_free(void *p);

/* --- by a thread -------------------------------------------------------------------------------------------------- */

/* Ends the program: kernel, block, thread, and the sentence. */
[[noreturn]] void emu_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

void emu_wait(void);
void emu_next(void);
void emu_barrier(void);
/* Of all threads' values. */
int emu_barrier_or(int value);
/* In a loop that waits for another thread. */
void emu_spin(void);
/* The block's dynamic shared memory. */
void *emu_dynamic(void);

/* An operation of the whole warp: the lanes' `in` lie side by side when `all` makes their `out` of them. */
enum { EMU_LANE_BYTES = 32 };
struct emu_lanes {
    alignas(16) char lane[32][EMU_LANE_BYTES];
};
typedef void emu_operation(const struct emu_lanes *in, struct emu_lanes *out);
void emu_warp(const char *name, emu_operation *all, const void *in, size_t in_bytes, void *out, size_t out_bytes);
/* The value that lane `from` gave. */
uint64_t emu_exchange(uint64_t value, int from);
/* A bit for each lane whose value is not 0. */
unsigned emu_ballot(int value);

/* cp.async: some copies are made at once, some as late as a thread may wait for them. */
void emu_copy16(void *to, const void *from, bool there);
void emu_copies_end(void);
void emu_copies_wait(size_t left);

/* Nothing but a sentence unless p is a multiple of bytes. */
void emu_aligned(const void *p, size_t bytes);

#endif
