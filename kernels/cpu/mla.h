/* mla.h - what the two forms of MLA share */
#ifndef K3_KERNELS_CPU_MLA_H
#define K3_KERNELS_CPU_MLA_H

#include "kernels/cpu/cpu.h"

enum { HEAD_ROWS = K3_NOPE_DIM + K3_V_DIM }; /* of kv_b */

static inline const uint16_t *mla_head_weights(const struct mla_attend_args *a, int64_t head)
{
    return (const uint16_t *)a->kv_b->data + head * HEAD_ROWS * a->kv_b->stride;
}

/* The rows of sequence i that take the expanded form, if any. */
void CPU(mla_attend_expanded)(const struct mla_attend_args *a, int i, struct k3_stream *s);

#endif
