/* dump.h - what the model computed for a prompt, written as safetensors
 *
 *     logits    F32 [positions, vocab]
 *     hidden.N  F32 [positions, H]: the running residual p after layer N (SPEC 4.3) */
#ifndef K3_ENGINE_DUMP_H
#define K3_ENGINE_DUMP_H

#include <stdint.h>

#include "common/error.h"
#include "kernels/kernels.h"
#include "model/config.h"

struct dump;

/* Room for the prompt's positions.  Either path may be NULL: not wanted.  Borrows config and paths. */
struct dump *dump_create(const struct k3_config *c, int64_t positions, const char *logits_path, const char *hidden_path,
                         struct k3_error *err);
void dump_destroy(struct dump *d);

/* For forward_trace(), arg is the dump: copies p after this layer for the rows that dump_rows() will count next. */
int dump_hidden(int layer, const struct k3_tensor *p, void *arg);
/* A step of so many rows is complete; copies its logits, where they are wanted. */
void dump_rows(struct dump *d, const float *logits, int32_t rows);

int dump_write(const struct dump *d, struct k3_error *err);

#endif
