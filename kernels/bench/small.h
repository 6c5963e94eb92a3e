/* small.h - time of the operations that only move numbers along: what they read and write, a second */
#ifndef K3_KERNELS_BENCH_SMALL_H
#define K3_KERNELS_BENCH_SMALL_H

#include "kernels/kernels.h"

/* Each of them on `rows` rows of the full-size model, the shares of a rank of six (16 heads), with what is reported of
 * the fastest of many: its name and rows, seconds, bytes and multiply-adds. */
void small_bench(struct k3_stream *s, int rows, double (*now)(void),
                 void (*report)(const char *what, double seconds, double bytes, double fmas));

#endif
