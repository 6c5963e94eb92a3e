/* attend.h - queries that walk together through the positions of a sequence: what both forms of MLA are made of
 *
 *   score_s = scale (q . key_s);  p = softmax(score);  acc = sum_s p_s value_s
 *
 * Positions come in blocks of ATTEND_BLOCK, aligned to the sequence's position 0, with the running maximum and sum of
 * an online softmax.  Per query the order of every sum is fixed by absolute positions: it knows nothing of pages, of
 * the other queries, or of how a prompt was cut into steps.  All fp32. */
#ifndef K3_KERNELS_CPU_ATTEND_H
#define K3_KERNELS_CPU_ATTEND_H

#include "kernels/cpu/cpu.h"

enum { ATTEND_QUERIES = 32, ATTEND_BLOCK = 64 };

struct attend_query {
    const float *q;
    float *acc;        /* 0 before the first block */
    int64_t positions; /* it sees positions 0 ... positions - 1 */
    float max, sum;    /* -INFINITY and 0 before the first block */
};

struct attend_form {
    int key, value; /* widths, multiples of 2 LANES */
    int value_at;   /* where a position's value begins, counted from its key */
    float scale;
};

/* Let n <= ATTEND_QUERIES queries see a block: `count` positions from pos on, whose keys are at key[0 ... count - 1].
 * Every query adds the positions that it sees and no other, be what it does not see NaN.  p is scratch. */
void CPU(attend_block)(const struct attend_form *f, struct attend_query *q, int n, int64_t pos, int count,
                       const float *const *key, float p[][ATTEND_BLOCK]);

/* After the last block: acc is divided by its sum of weights. */
void CPU(attend_end)(const struct attend_form *f, const struct attend_query *q, int n);

#endif
