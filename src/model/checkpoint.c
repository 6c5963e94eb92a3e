#include "model/checkpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <sodium.h>

#include "common/alloc.h"
#include "common/log.h"

enum { LISTED_MAX = 200 };

struct checkpoint {
    struct k3_config config;
    struct safetensors *st;
    struct tensor_id *found; /* [tensors of the files]; role -1: not a text tensor */
};

static void print_shape(char *text, size_t room, int dims, const int64_t *shape)
{
    size_t n = (size_t)snprintf(text, room, "[");

    for (int d = 0; d < dims && n < room; d++)
        n += (size_t)snprintf(text + n, room - n, "%s%lld", d ? "," : "", (long long)shape[d]);
    if (n < room)
        snprintf(text + n, room - n, "]");
}

static int check_tensor(const struct safetensors *st, const struct safetensors_tensor *t,
                        const struct tensor_desc *want, struct k3_error *err)
{
    char is[128], should[128];

    if (strcmp(t->dtype, want->dtype) != 0)
        return k3_errorf(err, "%s: tensor %s has dtype %s, not %s", safetensors_file(st, t->file), t->name, t->dtype,
                         want->dtype);
    if (t->dims != want->dims || memcmp(t->shape, want->shape, (size_t)t->dims * sizeof *t->shape) != 0) {
        print_shape(is, sizeof is, t->dims, t->shape);
        print_shape(should, sizeof should, want->dims, want->shape);
        return k3_errorf(err, "%s: tensor %s has shape %s, not %s as config.json says", safetensors_file(st, t->file),
                         t->name, is, should);
    }
    return 0;
}

static int begins_with(const char *s, const char *start)
{
    return strncmp(s, start, strlen(start)) == 0;
}

static int is_passed_over(const char *name)
{
    static const char shape[] = ".weight_shape";
    size_t len = strlen(name);

    return begins_with(name, "vision_tower.") || begins_with(name, "mm_projector.") ||
           (len >= sizeof shape && strcmp(name + len - (sizeof shape - 1), shape) == 0);
}

/* What is in the files beside the text model; one rank lists it for all. */
static int check_others(const struct safetensors *st, const struct tensor_id *found, int list, struct k3_error *err)
{
    size_t passed = 0;

    for (size_t i = 0; i < safetensors_count(st); i++) {
        const struct safetensors_tensor *t = safetensors_at(st, i);
        if (found[i].role >= 0)
            continue;
        if (!is_passed_over(t->name))
            return k3_errorf(err, "%s: tensor %s is no part of the model that config.json describes",
                             safetensors_file(st, t->file), t->name);
        if (list && passed < LISTED_MAX)
            log_info("passed over: tensor %s", t->name);
        passed++;
    }
    if (list && passed)
        log_info("passed over %zu tensors of %zu that the text model does not use%s", passed, safetensors_count(st),
                 passed > LISTED_MAX ? ", the first of them listed above" : "");
    return 0;
}

static int check_inventory(const struct safetensors *st, const char *dir, const struct k3_config *c,
                           struct tensor_id *found, struct k3_error *err)
{
    struct inventory_iter it;
    struct tensor_desc want;

    for (size_t i = 0; i < safetensors_count(st); i++)
        found[i].role = -1;
    for (inventory_begin(&it, c); inventory_next(&it, &want);) {
        const struct safetensors_tensor *t = safetensors_find(st, want.name);
        if (!t)
            return k3_errorf(err, "%s: tensor %s is missing", dir, want.name);
        if (check_tensor(st, t, &want, err) < 0)
            return -1;
        found[safetensors_index(st, t)] = (struct tensor_id){(int16_t)want.role, (int16_t)want.layer, want.expert};
    }
    return 0;
}

/* --- the interface -------------------------------------------------------------------------------------------------
 */

struct checkpoint *checkpoint_open(const char *dir, const struct k3_config *c, int list, struct k3_error *err)
{
    struct checkpoint *cp = k3_zalloc(sizeof *cp), *opened = NULL;

    cp->config = *c;
    if (!(cp->st = safetensors_open_dir(dir, err)))
        goto out;
    if (!(cp->found = k3_try_alloc(safetensors_count(cp->st), sizeof *cp->found))) {
        k3_errorf(err, "%s: no memory for a table of %zu tensors", dir, safetensors_count(cp->st));
        goto out;
    }
    if (check_inventory(cp->st, dir, c, cp->found, err) < 0 || check_others(cp->st, cp->found, list, err) < 0 ||
        safetensors_check_gaps(cp->st, err) < 0)
        goto out;
    opened = cp;
    cp = NULL;
out:
    checkpoint_close(cp);
    return opened;
}

void checkpoint_close(struct checkpoint *cp)
{
    if (!cp)
        return;
    safetensors_close(cp->st);
    free(cp->found);
    free(cp);
}

const struct safetensors *checkpoint_files(const struct checkpoint *cp)
{
    return cp->st;
}

const struct tensor_id *checkpoint_at(const struct checkpoint *cp, size_t i)
{
    return cp->found[i].role < 0 ? NULL : &cp->found[i];
}

const void *checkpoint_data(const struct checkpoint *cp, const struct tensor_id *id)
{
    struct tensor_desc t;

    inventory_describe(&cp->config, id->role, id->layer, id->expert, &t);
    return safetensors_find(cp->st, t.name)->data;
}

enum { SAMPLES = 64, SAMPLE_BYTES = 4096 }; /* of each file */

static int hash_file(crypto_generichash_state *hash, const char *path, struct k3_error *err)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    unsigned char sample[SAMPLE_BYTES];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat st;
    ssize_t n = 0;

    if (fd < 0 || fstat(fd, &st) < 0)
        goto out;
    crypto_generichash_update(hash, (const unsigned char *)name, strlen(name) + 1);
    crypto_generichash_update(hash, (const unsigned char *)&st.st_size, sizeof st.st_size);
    for (int i = 0; i < SAMPLES && n >= 0; i++)
        if ((n = pread(fd, sample, sizeof sample, st.st_size / SAMPLES * i)) > 0)
            crypto_generichash_update(hash, sample, (size_t)n);
out:;
    int rc = fd < 0 || n < 0 ? k3_errorf(err, "%s: %s", path, strerror(errno)) : 0;
    if (fd >= 0)
        close(fd);
    return rc;
}

int checkpoint_stamp(const struct checkpoint *cp, char text[CHECKPOINT_STAMP], struct k3_error *err)
{
    unsigned char bytes[(CHECKPOINT_STAMP - 1) / 2];
    crypto_generichash_state hash;
    int files = 0;

    for (size_t i = 0; i < safetensors_count(cp->st); i++) {
        int file = safetensors_at(cp->st, i)->file;
        files = file >= files ? file + 1 : files;
    }
    crypto_generichash_init(&hash, NULL, 0, sizeof bytes);
    for (int f = 0; f < files; f++)
        if (hash_file(&hash, safetensors_file(cp->st, f), err) < 0)
            return -1;
    crypto_generichash_final(&hash, bytes, sizeof bytes);
    sodium_bin2hex(text, CHECKPOINT_STAMP, bytes, sizeof bytes);
    return 0;
}

void checkpoint_read(const struct checkpoint *cp, const struct shard *sh, const struct tensor_id *id, uint64_t from,
                     uint64_t bytes, void *to)
{
    struct shard_part p = shard_of(&cp->config, sh, id->role);
    uint64_t element = (uint64_t)inventory_element_bytes(id->role);
    uint64_t row = (uint64_t)(p.col.end - p.col.begin) * element, step = (uint64_t)p.cols * element;

    const uint8_t *first = checkpoint_data(cp, id);
    first += (uint64_t)p.row.begin * step + (uint64_t)p.col.begin * element;
    if (bytes)
        safetensors_will_read(first + from / row * step, (bytes + row - 1) / row * step);
    for (uint64_t n, end = from + bytes; from < end; from += n, to = (char *)to + n) {
        uint64_t col = from % row;
        n = row == step ? end - from : row - col;
        n = n < end - from ? n : end - from;
        memcpy(to, first + from / row * step + col, n);
    }
}
