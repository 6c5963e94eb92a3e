/* safetensors.h - a checkpoint's tensors, mapped; and a writer
 *
 * Format: 8 bytes little-endian header length, that much JSON {name: {dtype, shape, data_offsets}}, then the data.
 * Everything a file claims is checked before the first tensor is given out: header length, JSON depth, names, dtypes,
 * shapes, offsets (no overlap, nothing past the end), and for several files the index in both directions. */
#ifndef K3_MODEL_SAFETENSORS_H
#define K3_MODEL_SAFETENSORS_H

#include <stddef.h>
#include <stdint.h>

#include "common/error.h"

enum { SAFETENSORS_DIMS_MAX = 8 };

struct safetensors;

struct safetensors_tensor {
    const char *name;
    const char *dtype; /* as the format spells it: "BF16" ... */
    int dims;
    int64_t shape[SAFETENSORS_DIMS_MAX];
    const void *data; /* in the mapping, row-major, little-endian, not necessarily aligned */
    uint64_t bytes;
    int file; /* for safetensors_file() and safetensors_drop() */
};

/* Whether dir has either of the files that safetensors_open_dir() begins with. */
int safetensors_is_in(const char *dir);
/* Open dir/model.safetensors, or else the files that dir/model.safetensors.index.json names. */
struct safetensors *safetensors_open_dir(const char *dir, struct k3_error *err);
/* Open one file. */
struct safetensors *safetensors_open(const char *path, struct k3_error *err);
/* Unmaps: every pointer handed out ends here. */
void safetensors_close(struct safetensors *st);

/* The tensors must fill their files.  Asked for last: a gap is often a tensor that the header lost, and whoever knows
 * what should be there has named it by then. */
int safetensors_check_gaps(const struct safetensors *st, struct k3_error *err);

/* Tensors are numbered file by file, in the order of their data. */
size_t safetensors_count(const struct safetensors *st);
const struct safetensors_tensor *safetensors_at(const struct safetensors *st, size_t i);
/* NULL when there is none of that name. */
const struct safetensors_tensor *safetensors_find(const struct safetensors *st, const char *name);
size_t safetensors_index(const struct safetensors *st, const struct safetensors_tensor *t);
const char *safetensors_file(const struct safetensors *st, int file);

/* Page cache advice: these bytes of a tensor's data will be read soon; t will not be read again. */
void safetensors_will_read(const void *data, uint64_t bytes);
void safetensors_drop(const struct safetensors *st, const struct safetensors_tensor *t);

/* Bytes of a tensor of this dtype, -1 when it is unknown or the shape too large. */
int64_t safetensors_bytes(const char *dtype, int dims, const int64_t *shape);

/* Write a file: declare every tensor, then write their data in the same order in pieces of any size.  The file appears
 * under its name at safetensors_writer_finish(); until then it is PATH.partial, which a writer that is destroyed
 * unfinished removes. */
struct safetensors_writer;
struct safetensors_writer *safetensors_writer_create(const char *path, struct k3_error *err);
int safetensors_writer_declare(struct safetensors_writer *w, const char *name, const char *dtype, int dims,
                               const int64_t *shape, struct k3_error *err);
int safetensors_writer_write(struct safetensors_writer *w, const void *data, size_t bytes, struct k3_error *err);
int safetensors_writer_finish(struct safetensors_writer *w, struct k3_error *err);
void safetensors_writer_destroy(struct safetensors_writer *w);

/* The same in one call: name, dtype, shape and data of each tensor are used. */
int safetensors_write(const char *path, const struct safetensors_tensor *tensors, size_t count, struct k3_error *err);

#endif
