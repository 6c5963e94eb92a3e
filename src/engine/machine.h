/* machine.h - what this machine can do at best, as far as a decode or a prefill step on the CPU is bound by it
 *
 * Each rate is the best of MACHINE_RUNS, all threads working at once on memory or registers of their own. */
#ifndef K3_ENGINE_MACHINE_H
#define K3_ENGINE_MACHINE_H

#include "common/error.h"

enum { MACHINE_RUNS = 5, MACHINE_READ_MIB = 1024 };

struct machine_rates {
    double read_bytes;   /* a second, reading MACHINE_READ_MIB in order, in equal parts */
    double fma_flops;    /* a second, fp32 fused multiply-adds, two operations each */
    const char *fma_set; /* with these instructions: "AVX-512", "AVX2" or "plain C"; static */
};

/* threads counts the caller.  Takes about a second, and MACHINE_READ_MIB of memory meanwhile. */
int machine_measure(int threads, struct machine_rates *rates, struct k3_error *err);

#endif
