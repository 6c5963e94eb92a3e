/* safetensors.c - one file of tensors: every byte that is handed out lies in it */
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "model/safetensors.h"

static void check_tensor(const struct safetensors *st, size_t i)
{
    const struct safetensors_tensor *t = safetensors_at(st, i);
    volatile uint8_t sink;

    require(safetensors_find(st, t->name) == t && safetensors_index(st, t) == i, "%s is not found", t->name);
    require(t->dims >= 0 && t->dims <= SAFETENSORS_DIMS_MAX, "%s has %d dimensions", t->name, t->dims);
    require(safetensors_bytes(t->dtype, t->dims, t->shape) == (int64_t)t->bytes, "%s: wrong size", t->name);
    for (uint64_t b = 0; b < t->bytes; b++)
        sink = ((const uint8_t *)t->data)[b];
    (void)sink;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *path = fuzz_file("model.safetensors", data, size);
    struct k3_error err = {""};
    struct safetensors *st = safetensors_open(path, &err);
    uint64_t header = 0, bytes = 0;

    if (st) {
        for (int i = 7; i >= 0; i--)
            header = header << 8 | data[i];
        for (size_t i = 0; i < safetensors_count(st); i++) {
            check_tensor(st, i);
            bytes += safetensors_at(st, i)->bytes;
        }
        require(8 + header + bytes <= size, "the tensors overlap");
        require((safetensors_check_gaps(st, &err) == 0) == (8 + header + bytes == size), "a gap is missed or invented");
    } else {
        fuzz_require_sentence(&err);
    }
    safetensors_close(st);
    free(path);
    return 0;
}
