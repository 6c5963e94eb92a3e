/* index.c - model.safetensors.index.json beside two files that hold "a", and "b" and "c" */
#include <stdbool.h>
#include <stdlib.h>

#include "common/alloc.h"
#include "fuzz.h"
#include "model/safetensors.h"

static void write_files(void)
{
    static const uint8_t zeros[8];
    const struct safetensors_tensor one[] = {{.name = "a", .dtype = "F32", .dims = 1, {2}, zeros, 8}};
    const struct safetensors_tensor two[] = {{.name = "b", .dtype = "U8", .dims = 2, {1, 3}, zeros, 3},
                                             {.name = "c", .dtype = "BF16", .dims = 0, {0}, zeros, 2}};
    char *path = k3_asprintf("%s/one.safetensors", fuzz_dir());

    require(safetensors_write(path, one, 1, NULL) == 0, "%s", path);
    free(path);
    path = k3_asprintf("%s/two.safetensors", fuzz_dir());
    require(safetensors_write(path, two, 2, NULL) == 0, "%s", path);
    free(path);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static bool written;
    struct k3_error err = {""};

    if (!written)
        write_files();
    written = true;
    free(fuzz_file("model.safetensors.index.json", data, size));
    struct safetensors *st = safetensors_open_dir(fuzz_dir(), &err);
    if (!st)
        fuzz_require_sentence(&err);
    for (size_t i = 0; st && i < safetensors_count(st); i++)
        require(safetensors_find(st, safetensors_at(st, i)->name) == safetensors_at(st, i), "a tensor is not found");
    safetensors_close(st);
    return 0;
}
