/* team.c - fork and join over two counters
 *
 * `round` grows by one for every piece of work and tells the members to start; `left` counts those still at it.  Both
 * are waited for by looking, then by looking between offers of the processor to others, then by futex: a thread that
 * sleeps takes some fifty microseconds to wake on a virtual machine, and a step has hundreds of operations. */
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "kernels/cpu/team.h"

enum {
    SPINS = 500,  /* some ten microseconds: the time between two operations of a step */
    YIELDS = 2000 /* a millisecond: longer than an operation that has one worker */
};

struct member {
    struct cpu_team *team;
    pthread_t thread;
    int index;
};

struct cpu_team {
    atomic_int round, left, asleep;
    void (*fn)(void *arg, int index);
    void *arg;
    int started; /* members whose thread runs; index 0 is the caller */
    int quit;
    struct member member[];
};

static void pause_cpu(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Until *word is no longer `old`. */
static void wait_change(struct cpu_team *t, atomic_int *word, int old)
{
    for (int i = 0; i < SPINS + YIELDS; i++) {
        if (atomic_load_explicit(word, memory_order_acquire) != old)
            return;
        if (i < SPINS)
            pause_cpu();
        else
            sched_yield();
    }
    atomic_fetch_add(&t->asleep, 1);
    while (atomic_load(word) == old)
        syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, old, NULL, NULL, 0);
    atomic_fetch_sub(&t->asleep, 1);
}

static void wake(struct cpu_team *t, atomic_int *word)
{
    if (atomic_load(&t->asleep) > 0)
        syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

static void *member_main(void *arg)
{
    struct member *m = arg;
    struct cpu_team *t = m->team;
    for (int round = 0;; round++) {
        wait_change(t, &t->round, round);
        if (t->quit)
            return NULL;
        t->fn(t->arg, m->index);
        if (atomic_fetch_sub(&t->left, 1) == 1)
            wake(t, &t->left);
    }
}

void cpu_team_run(struct cpu_team *t, void (*fn)(void *arg, int index), void *arg)
{
    int left;
    t->fn = fn;
    t->arg = arg;
    atomic_store(&t->left, t->started);
    atomic_fetch_add(&t->round, 1);
    wake(t, &t->round);
    fn(arg, 0);
    while ((left = atomic_load(&t->left)) > 0)
        wait_change(t, &t->left, left);
}

struct cpu_team *cpu_team_create(int threads)
{
    struct cpu_team *t = calloc(1, sizeof *t + (size_t)threads * sizeof t->member[0]);
    if (t == NULL)
        return NULL;
    for (int i = 1; i < threads; i++) {
        struct member *m = &t->member[i];
        m->team = t;
        m->index = i;
        int rc = pthread_create(&m->thread, NULL, member_main, m);
        if (rc != 0) {
            cpu_team_destroy(t);
            errno = rc;
            return NULL;
        }
        t->started++;
    }
    return t;
}

void cpu_team_destroy(struct cpu_team *t)
{
    if (t == NULL)
        return;
    t->quit = 1;
    atomic_fetch_add(&t->round, 1);
    wake(t, &t->round);
    for (int i = 1; i <= t->started; i++)
        pthread_join(t->member[i].thread, NULL);
    free(t);
}
