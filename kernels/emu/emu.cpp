/* emu.cpp - fibers, blocks and the queue of kernels */
#undef _FORTIFY_SOURCE /* it takes a jump to another stack for a mistake */
#include "kernels/emu/emu.h"

#include <deque>
#include <errno.h>
#include <execinfo.h>
#include <link.h>
#include <memory>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>
#include <vector>

struct uint3 threadIdx, blockIdx;
struct dim3 blockDim, gridDim;

enum {
    STACK = 64 << 10,
    PAGE = 4096,
    RESIDENT = 2 * EMU_SMS, /* blocks that are under way at a time */
    EARLY = 2,              /* blocks of a kernel that start before their turn, */
    EARLY_KERNELS = 3,      /* and kernels that have such */
    PATIENCE = 100000,      /* turns in which all that can run only wait for each other */
};

/* --- random order --------------------------------------------------------------------------------------------------
 */

static uint32_t random_below(uint32_t n)
{
    static uint64_t state; /* xorshift64*: Vigna, "An experimental exploration of Marsaglia's xorshift generators" */

    if (state == 0) {
        const char *seed = getenv("K3_TEST_SEED");
        state = ((seed ? strtoull(seed, NULL, 0) : (uint64_t)time(NULL)) << 1 | 1) * 0x9e3779b97f4a7c15u;
    }
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    return (uint32_t)((state * 0x2545f4914f6cdd1du >> 32) * n >> 32);
}

/* --- the state of a block ------------------------------------------------------------------------------------------
 */

struct copy {
    void *to;
    const void *from; /* NULL: zeros */
    size_t group;
};

enum state { READY, SPINS, AT_BARRIER, IN_WARP, AT_WAIT, DONE };

struct fiber {
    ucontext_t context; /* for its start alone */
    jmp_buf at;
    char *stack;
    bool started;
    struct block *block;
    int index;
    enum state state;
    size_t groups;
    std::vector<struct copy> copies;
};

struct warp {
    struct emu_lanes in, out;
    const char *name; /* of the operation that lanes wait in */
    emu_operation *all;
    int arrived, lanes;
};

/* A kernel in the queue. */
struct kernel {
    struct emu_launch launch;
    bool released, next_first; /* cuda_next() came before cuda_wait() */
    std::vector<uint32_t> order;
    size_t begun; /* of order */
    std::vector<std::unique_ptr<struct block>> early;
};

struct block {
    struct kernel *kernel;
    struct uint3 at;
    std::vector<struct fiber *> fibers;
    std::vector<struct warp> warps;
    std::vector<int> ready, spinning;
    int alive, at_barrier, value;
    bool waited, said_next, released_barrier;
    char *dynamic;             /* ends at a page that nobody may touch */
    std::vector<char> statics; /* while other blocks run */
};

static struct {
    struct fiber *fiber; /* that runs; NULL: none */
    struct block *block; /* whose static shared memory is in place; NULL: the host's, unless */
    bool nobodys;        /* what lies there is done with */
    jmp_buf scheduler;
    std::deque<std::unique_ptr<struct kernel>> queue;
    std::vector<struct fiber *> idle;
    std::vector<char *> idle_dynamic;
    std::vector<char> host_statics;
    bool begun;
    pthread_t thread;
} gpu;

void emu_fail(const char *format, ...)
{
    va_list list;

    fflush(stdout);
    fprintf(stderr, "# emulator: ");
    if (gpu.block)
        fprintf(stderr, "%s, block (%u, %u, %u), ", gpu.block->kernel->launch.name, gpu.block->at.x, gpu.block->at.y,
                gpu.block->at.z);
    if (gpu.fiber)
        fprintf(stderr, "thread %d: ", gpu.fiber->index);
    va_start(list, format);
    vfprintf(stderr, format, list);
    va_end(list);
    fprintf(stderr, "\n");
    void *frames[16];
    backtrace_symbols_fd(frames, backtrace(frames, 16), 2);
    abort();
}

/* Static shared memory is what this program has of thread-local variables: of one thread, saved and put back as blocks
 * take turns. */
struct region {
    char *data;
    size_t bytes;
};

static int find_region(struct dl_phdr_info *info, size_t, void *arg)
{
    struct region *r = (struct region *)arg;

    for (int i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_TLS)
            *r = (struct region){(char *)info->dlpi_tls_data, info->dlpi_phdr[i].p_memsz};
    return 1; /* the program itself comes first */
}

static const struct region &statics(void)
{
    static struct region r;

    if (!r.data)
        dl_iterate_phdr(find_region, &r);
    return r;
}

static void put_in_place(struct block *b)
{
    const struct region &r = statics();

    if (gpu.block == b && !gpu.nobodys)
        return;
    if (!gpu.nobodys)
        (gpu.block ? gpu.block->statics : gpu.host_statics).assign(r.data, r.data + r.bytes);
    gpu.nobodys = false;
    const std::vector<char> &next = b ? b->statics : gpu.host_statics;
    if (next.empty())
        memset(r.data, 0xff, r.bytes);
    else
        memcpy(r.data, next.data(), r.bytes);
    gpu.block = b;
    if (b) {
        blockIdx = b->at;
        blockDim = b->kernel->launch.block;
        gridDim = b->kernel->launch.grid;
    }
}

/* --- fibers --------------------------------------------------------------------------------------------------------
 */

static void to_scheduler(enum state s)
{
    gpu.fiber->state = s;
    if (_setjmp(gpu.fiber->at) == 0)
        _longjmp(gpu.scheduler, 1);
}

static void make_ready(struct block *b, enum state from)
{
    for (struct fiber *f : b->fibers)
        if (f->state == from) {
            f->state = READY;
            b->ready.push_back(f->index);
        }
}

/* Whether all that are left have come to the barrier. */
static bool release_barrier(struct block *b)
{
    if (b->alive == 0 || b->at_barrier < b->alive)
        return false;
    b->at_barrier = 0;
    b->released_barrier = true;
    make_ready(b, AT_BARRIER);
    return true;
}

static void run_fiber(void)
{
    for (;;) {
        struct block *b = gpu.fiber->block;
        b->kernel->launch.body();
        struct warp &w = b->warps[gpu.fiber->index / 32];
        w.lanes--;
        if (w.arrived > 0)
            emu_fail("returns while lanes of its warp wait in %s", w.name);
        gpu.fiber->copies.clear();
        gpu.fiber->groups = 0;
        b->alive--;
        release_barrier(b);
        to_scheduler(DONE);
    }
}

static struct fiber *make_fiber(void)
{
    struct fiber *f;

    if (!gpu.idle.empty()) {
        f = gpu.idle.back();
        gpu.idle.pop_back();
        return f;
    }
    f = new struct fiber();
    f->stack =
        (char *)mmap(NULL, STACK + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (f->stack == MAP_FAILED || mprotect(f->stack, PAGE, PROT_NONE) != 0)
        emu_fail("no memory for a thread's stack: %s", strerror(errno));
    getcontext(&f->context);
    f->context.uc_stack.ss_sp = f->stack + PAGE;
    f->context.uc_stack.ss_size = STACK;
    makecontext(&f->context, run_fiber, 0);
    return f;
}

static void resume(struct block *b, int index)
{
    struct fiber *f = b->fibers[index];

    gpu.fiber = f;
    threadIdx = (struct uint3){(unsigned)index, 0, 0};
    if (_setjmp(gpu.scheduler) == 0) {
        if (f->started)
            _longjmp(f->at, 1);
        f->started = true;
        setcontext(&f->context);
    }
    gpu.fiber = NULL;
}

/* --- blocks --------------------------------------------------------------------------------------------------------
 */

enum { DYNAMIC = (EMU_SHARED_MOST + PAGE - 1) / PAGE * PAGE };

static char *make_dynamic(void)
{
    char *p;

    if (!gpu.idle_dynamic.empty()) {
        p = gpu.idle_dynamic.back();
        gpu.idle_dynamic.pop_back();
        return p;
    }
    p = (char *)mmap(NULL, DYNAMIC + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED || mprotect(p + DYNAMIC, PAGE, PROT_NONE) != 0)
        emu_fail("no memory for a block's shared memory: %s", strerror(errno));
    return p;
}

static std::unique_ptr<struct block> begin_block(struct kernel *k)
{
    std::unique_ptr<struct block> b(new struct block());
    const struct emu_launch &l = k->launch;
    uint32_t number = k->order[k->begun++];

    b->kernel = k;
    b->at = (struct uint3){number % l.grid.x, number / l.grid.x % l.grid.y, number / l.grid.x / l.grid.y};
    b->alive = (int)l.block.x;
    b->warps.resize((l.block.x + 31) / 32);
    for (int i = 0; i < b->alive; i++) {
        struct fiber *f = make_fiber();
        f->block = b.get();
        f->index = i;
        f->state = READY;
        b->fibers.push_back(f);
        b->ready.push_back(i);
        b->warps[i / 32].lanes++;
    }
    b->dynamic = make_dynamic();
    memset(b->dynamic, 0xff, DYNAMIC);
    return b;
}

static void end_block(struct block *b)
{
    if (!b->waited)
        emu_fail("the block ends and never called cuda_wait()");
    gpu.block = NULL;
    gpu.nobodys = true;
    gpu.idle.insert(gpu.idle.end(), b->fibers.begin(), b->fibers.end());
    gpu.idle_dynamic.push_back(b->dynamic);
}

static int count(const struct block *b, enum state s)
{
    int n = 0;

    for (const struct fiber *f : b->fibers)
        n += f->state == s;
    return n;
}

static void check_stuck(const struct block *b)
{
    int at_barrier = b->at_barrier, in_warp = count(b, IN_WARP), at_wait = count(b, AT_WAIT);
    const char *name = "none";

    if (b->alive == 0 || !b->spinning.empty() || at_wait > 0)
        return;
    for (const struct warp &w : b->warps)
        name = w.arrived > 0 ? w.name : name;
    emu_fail(
        "%d of the block's threads are left: %d of them wait at __syncthreads, %d for lanes of their warp (in %s), "
        "and none can go on",
        b->alive, at_barrier, in_warp, name);
}

/* Until nothing can run, or for a while.  Whether anything happened but spinning. */
static bool run_block(struct block *b)
{
    bool moved = false;

    put_in_place(b);
    for (int i : b->spinning) {
        b->fibers[i]->state = READY;
        b->ready.push_back(i);
    }
    b->spinning.clear();
    while (!b->ready.empty()) {
        uint32_t i = random_below((uint32_t)b->ready.size());
        int index = b->ready[i];
        b->ready[i] = b->ready.back();
        b->ready.pop_back();
        resume(b, index);
        if (b->fibers[index]->state == SPINS)
            b->spinning.push_back(index);
        else
            moved = true;
        if (b->released_barrier) {
            b->released_barrier = false;
            if (random_below(8) == 0)
                return true;
        }
    }
    check_stuck(b);
    return moved;
}

/* --- the queue -----------------------------------------------------------------------------------------------------
 */

static void release(struct block *b)
{
    make_ready(b, AT_WAIT);
}

static void run_kernel(struct kernel *k)
{
    std::vector<std::unique_ptr<struct block>> resident = std::move(k->early);
    int idle = 0;

    k->released = true;
    for (auto &b : resident)
        release(b.get());
    while (!resident.empty() || k->begun < k->order.size()) {
        while (resident.size() < RESIDENT && k->begun < k->order.size())
            resident.push_back(begin_block(k));
        uint32_t i = random_below((uint32_t)resident.size());
        struct block *b = resident[i].get();
        idle = run_block(b) ? 0 : idle + 1;
        if (idle > PATIENCE)
            emu_fail("all blocks that fit the GPU wait for what none of them does");
        if (b->alive == 0) {
            end_block(b);
            std::swap(resident[i], resident.back());
            resident.pop_back();
        }
    }
}

static struct sigaction before[2];
static const int caught[2] = {SIGSEGV, SIGBUS};

static void on_signal(int, siginfo_t *info, void *)
{
    for (int i = 0; i < 2; i++)
        sigaction(caught[i], &before[i], NULL);
    if (gpu.fiber && (char *)info->si_addr >= gpu.fiber->stack && (char *)info->si_addr < gpu.fiber->stack + PAGE)
        emu_fail("its stack of %d KB is full", STACK >> 10);
    emu_fail("reads or writes at %p, beside all memory that it may touch", info->si_addr);
}

/* Faults are the emulator's while kernels run. */
static void catch_faults(bool on)
{
    struct sigaction ours = {};

    if (!gpu.begun) {
        stack_t other = {};
        other.ss_size = 256 << 10;
        other.ss_sp = malloc(other.ss_size);
        sigaltstack(&other, NULL);
        gpu.thread = pthread_self();
        gpu.begun = true;
    }
    if (!pthread_equal(gpu.thread, pthread_self()))
        emu_fail("kernels are launched by one thread of a program only");
    ours.sa_sigaction = on_signal;
    ours.sa_flags = SA_SIGINFO | SA_ONSTACK;
    for (int i = 0; i < 2; i++)
        sigaction(caught[i], on ? &ours : &before[i], on ? &before[i] : NULL);
}

static void run_first(void)
{
    run_kernel(gpu.queue.front().get());
    gpu.queue.pop_front();
}

void emu_finish(void)
{
    if (gpu.queue.empty())
        return;
    catch_faults(true);
    while (!gpu.queue.empty())
        run_first();
    put_in_place(NULL);
    catch_faults(false);
}

/* Blocks that run up to cuda_wait() while kernels before theirs have not begun. */
static void begin_early(struct kernel *k)
{
    k->next_first = true; /* unless one has not */
    for (int i = 0; i < EARLY && k->begun < k->order.size(); i++) {
        k->early.push_back(begin_block(k));
        struct block *b = k->early.back().get();
        do
            run_block(b);
        while (!b->ready.empty());
        k->next_first &= b->said_next;
    }
}

void emu_submit(const struct emu_launch &l)
{
    std::unique_ptr<struct kernel> k(new struct kernel());
    uint64_t blocks = (uint64_t)l.grid.x * l.grid.y * l.grid.z;

    k->launch = l;
    if (l.block.y != 1 || l.block.z != 1 || l.block.x > 1024 || l.shared > EMU_SHARED_MOST || blocks > 1 << 24)
        emu_fail("%s: a launch that this GPU cannot do: %u threads a block, %zu bytes of shared memory", l.name,
                 l.block.x * l.block.y * l.block.z, l.shared);
    for (uint32_t i = 0; i < blocks; i++) {
        k->order.push_back(i);
        std::swap(k->order[i], k->order[random_below(i + 1)]);
    }
    catch_faults(true);
    /* It may start once all blocks of the kernel before it have said cuda_next(). */
    size_t most = gpu.queue.empty() || gpu.queue.back()->next_first ? EARLY_KERNELS : 1;
    while (gpu.queue.size() > most)
        run_first();
    begin_early(k.get());
    gpu.queue.push_back(std::move(k));
    put_in_place(NULL);
    catch_faults(false);
}

/* --- what a thread does --------------------------------------------------------------------------------------------
 */

void emu_wait(void)
{
    gpu.fiber->block->waited = true;
    if (!gpu.fiber->block->kernel->released)
        to_scheduler(AT_WAIT);
}

void emu_next(void)
{
    gpu.fiber->block->said_next = true;
}

void emu_barrier(void)
{
    struct block *b = gpu.fiber->block;
    struct warp &w = b->warps[gpu.fiber->index / 32];

    if (w.arrived > 0)
        emu_fail("comes to __syncthreads while lanes of its warp wait in %s", w.name);
    b->at_barrier++;
    gpu.fiber->state = AT_BARRIER;
    release_barrier(b);
    to_scheduler(gpu.fiber->state);
}

int emu_barrier_or(int value)
{
    struct block *b = gpu.fiber->block;
    int result;

    emu_barrier(); /* the value before is read */
    b->value = 0;
    emu_barrier();
    b->value |= value != 0;
    emu_barrier();
    result = b->value;
    return result;
}

void emu_spin(void)
{
    to_scheduler(SPINS);
}

void *emu_dynamic(void)
{
    const struct block *b = gpu.fiber->block;
    size_t bytes = b->kernel->launch.shared;

    return b->dynamic + DYNAMIC - (bytes + 15) / 16 * 16;
}

void emu_warp(const char *name, emu_operation *all, const void *in, size_t in_bytes, void *out, size_t out_bytes)
{
    struct block *b = gpu.fiber->block;
    int index = gpu.fiber->index, lane = index % 32;
    struct warp &w = b->warps[index / 32];

    if (w.lanes < 32)
        emu_fail("%s in a warp of %d lanes", name, w.lanes);
    if (w.arrived > 0 && w.all != all)
        emu_fail("comes to %s while lanes of its warp wait in %s", name, w.name);
    w.name = name;
    w.all = all;
    memcpy(w.in.lane[lane], in, in_bytes);
    if (++w.arrived < 32) {
        to_scheduler(IN_WARP);
    } else {
        w.arrived = 0;
        all(&w.in, &w.out);
        for (int i = index - lane; i < index - lane + 32; i++)
            if (i != index) {
                if (b->fibers[i]->state != IN_WARP)
                    emu_fail("%s: lane %d does not wait", name, i % 32);
                b->fibers[i]->state = READY;
                b->ready.push_back(i);
            }
    }
    memcpy(out, w.out.lane[lane], out_bytes);
}

struct exchange {
    uint64_t value;
    int from;
};

static void exchange_all(const struct emu_lanes *in, struct emu_lanes *out)
{
    for (int i = 0; i < 32; i++)
        memcpy(out->lane[i], in->lane[((const struct exchange *)in->lane[i])->from & 31], sizeof(uint64_t));
}

uint64_t emu_exchange(uint64_t value, int from)
{
    struct exchange e = {value, from};

    emu_warp("__shfl_sync", exchange_all, &e, sizeof e, &value, sizeof value);
    return value;
}

static void ballot_all(const struct emu_lanes *in, struct emu_lanes *out)
{
    unsigned bits = 0;

    for (int i = 0; i < 32; i++)
        bits |= (unsigned)(*(const int *)in->lane[i] != 0) << i;
    for (int i = 0; i < 32; i++)
        *(unsigned *)out->lane[i] = bits;
}

unsigned emu_ballot(int value)
{
    unsigned bits;

    emu_warp("__ballot_sync, __any_sync or __syncwarp", ballot_all, &value, sizeof value, &bits, sizeof bits);
    return bits;
}

void emu_aligned(const void *p, size_t bytes)
{
    if ((uintptr_t)p % bytes != 0)
        emu_fail("%p is not a multiple of %zu", p, bytes);
}

static void make_copy(const struct copy &c)
{
    if (c.from)
        memcpy(c.to, c.from, 16);
    else
        memset(c.to, 0, 16);
}

void emu_copy16(void *to, const void *from, bool there)
{
    struct copy c = {to, there ? from : NULL, gpu.fiber->groups};

    emu_aligned(to, 16);
    emu_aligned(from, 16);
    if (random_below(2))
        make_copy(c);
    else
        gpu.fiber->copies.push_back(c);
}

void emu_copies_end(void)
{
    gpu.fiber->groups++;
}

void emu_copies_wait(size_t left)
{
    struct fiber *f = gpu.fiber;
    size_t done = 0;

    for (; done < f->copies.size() && f->copies[done].group + left < f->groups; done++)
        make_copy(f->copies[done]);
    f->copies.erase(f->copies.begin(), f->copies.begin() + (long)done);
}
