#include "model/synthetic.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/alloc.h"
#include "kernels/kernels.h"
#include "model/safetensors.h"

enum { CHUNK = 1 << 18 }; /* elements made at a time */

static uint64_t hash_name(const char *name)
{
    uint64_t h = 0xcbf29ce484222325;

    for (; *name; name++)
        h = (h ^ (unsigned char)*name) * 0x100000001b3;
    return h;
}

/* Output i of splitmix64. */
static inline uint64_t splitmix(uint64_t seed, uint64_t i)
{
    uint64_t z = seed + (i + 1) * 0x9e3779b97f4a7c15;

    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
}

static inline float value(uint64_t seed, uint64_t i, double middle, double width)
{
    double r = (double)(int32_t)(splitmix(seed, i) >> 40) * 0x1p-23 - 1.0; /* exact */

    return (float)(middle + r * width);
}

static inline uint16_t to_bf16(float x)
{
    uint32_t u;

    memcpy(&u, &x, sizeof u);
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

/* Values are middle + r * width.  Either middle is 0 or r * width is exact, so a fused multiply-add changes nothing. */
static void distribution(const struct tensor_desc *t, double *middle, double *width)
{
    double in = (double)t->shape[t->dims - 1];

    *middle = 0;
    switch (t->kind) {
    case KIND_LINEAR:
    case KIND_CONV:
        *width = sqrt(3.0 / in);
        break;
    case KIND_OUT:
        *width = sqrt(3.0 / in) / 4;
        break;
    case KIND_MIX:
        *width = sqrt(3.0 / in) / 2;
        break;
    case KIND_EMBED:
        *width = sqrt(3.0);
        break;
    case KIND_NORM:
        *middle = 1;
        *width = 0.125;
        break;
    case KIND_A_LOG:
        *width = 0.5;
        break;
    case KIND_DT_BIAS:
        *middle = -3;
        *width = 1;
        break;
    default:
        *width = 0.125; /* KIND_ROUTER_BIAS */
        break;
    }
}

static void fill_scales(const struct tensor_desc *t, uint64_t seed, uint64_t first, size_t count, uint8_t *out)
{
    int64_t in = t->shape[1] * K3_MX_BLOCK;
    int e = 0;

    while (1LL << 2 * e < 9 * in)
        e++;
    for (size_t i = 0; i < count; i++)
        out[i] = (uint8_t)(127 - e - 1 + (int)(splitmix(seed, first + i) % 3));
}

void synthetic_fill(const struct k3_config *c, const struct tensor_desc *t, uint64_t first, size_t count, void *out)
{
    uint64_t seed = hash_name(t->name);
    double middle, width;

    if (t->kind == KIND_SCALE) {
        fill_scales(t, seed, first, count, out);
        return;
    }
    if (t->kind == KIND_PACKED) {
        for (size_t i = 0; i < count; i++)
            ((uint8_t *)out)[i] = (uint8_t)(splitmix(seed, first + i) >> 56);
        return;
    }
    distribution(t, &middle, &width);
    if (strcmp(t->dtype, "BF16") == 0)
        for (size_t i = 0; i < count; i++)
            ((uint16_t *)out)[i] = to_bf16(value(seed, first + i, middle, width));
    else
        for (size_t i = 0; i < count; i++)
            ((float *)out)[i] = value(seed, first + i, middle, width);
    if (t->kind == KIND_A_LOG)
        for (size_t i = 0; i < count; i++)
            if (first + i >= (uint64_t)c->kda_heads)
                ((float *)out)[i] = 0;
}

static int write_tensor(struct safetensors_writer *w, const struct k3_config *c, const struct tensor_desc *t,
                        void *chunk, struct k3_error *err)
{
    uint64_t element = (uint64_t)inventory_element_bytes(t->role), total = t->bytes / element;

    for (uint64_t first = 0; first < total; first += CHUNK) {
        size_t count = total - first < CHUNK ? (size_t)(total - first) : CHUNK;
        synthetic_fill(c, t, first, count, chunk);
        if (safetensors_writer_write(w, chunk, count * element, err) < 0)
            return -1;
    }
    return 0;
}

int synthetic_write(const struct k3_config *c, const char *path, struct k3_error *err)
{
    struct safetensors_writer *w = safetensors_writer_create(path, err);
    void *chunk = k3_calloc(CHUNK, sizeof(float));
    struct inventory_iter it;
    struct tensor_desc t;
    int rc = -1;

    if (!w)
        goto out;
    for (inventory_begin(&it, c); inventory_next(&it, &t);)
        if (safetensors_writer_declare(w, t.name, t.dtype, t.dims, t.shape, err) < 0)
            goto out;
    for (inventory_begin(&it, c); inventory_next(&it, &t);)
        if (write_tensor(w, c, &t, chunk, err) < 0)
            goto out;
    rc = safetensors_writer_finish(w, err);
out:
    safetensors_writer_destroy(w);
    free(chunk);
    return rc;
}
