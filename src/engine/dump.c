#include "engine/dump.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/alloc.h"
#include "model/safetensors.h"

struct dump {
    const struct k3_config *c;
    const char *logits_path, *hidden_path;
    int64_t positions, done;
    float *logits; /* [positions, vocab] */
    float *hidden; /* [layers, positions, H] */
};

struct dump *dump_create(const struct k3_config *c, int64_t positions, const char *logits_path, const char *hidden_path,
                         struct k3_error *err)
{
    struct dump *d = k3_zalloc(sizeof *d);
    size_t rows = (size_t)positions;

    *d = (struct dump){.c = c, .logits_path = logits_path, .hidden_path = hidden_path, .positions = positions};
    if (logits_path)
        d->logits = k3_try_alloc(rows, (size_t)c->vocab * sizeof *d->logits);
    if (hidden_path)
        d->hidden = k3_try_alloc(rows, (size_t)c->layers * (size_t)c->hidden * sizeof *d->hidden);
    if ((logits_path && !d->logits) || (hidden_path && !d->hidden)) {
        k3_errorf(err, "no memory to keep %s of %lld positions until they are written",
                  logits_path ? "the logits" : "hidden states", (long long)positions);
        dump_destroy(d);
        return NULL;
    }
    return d;
}

void dump_destroy(struct dump *d)
{
    if (!d)
        return;

    int saved = errno;
    free(d->logits);
    free(d->hidden);
    free(d);
    errno = saved;
}

int dump_hidden(int layer, const struct k3_tensor *p, void *arg)
{
    struct dump *d = arg;
    float *to = d->hidden + ((int64_t)layer * d->positions + d->done) * d->c->hidden;

    memcpy(to, p->data, (size_t)(p->rows * p->cols) * sizeof *to);
    return 0;
}

void dump_rows(struct dump *d, const float *logits, int32_t rows)
{
    if (d->logits)
        memcpy(d->logits + d->done * d->c->vocab, logits, (size_t)rows * (size_t)d->c->vocab * sizeof *logits);
    d->done += rows;
}

static struct safetensors_tensor tensor(const char *name, const float *data, int64_t rows, int64_t cols)
{
    return (struct safetensors_tensor){
        .name = name,
        .dtype = "F32",
        .dims = 2,
        .shape = {rows, cols},
        .data = data,
        .bytes = (uint64_t)rows * (uint64_t)cols * sizeof *data,
    };
}

static int write_hidden(const struct dump *d, struct k3_error *err)
{
    size_t layers = (size_t)d->c->layers;
    struct safetensors_tensor *list = k3_calloc(layers, sizeof *list);
    char(*name)[32] = k3_calloc(layers, sizeof *name);

    for (size_t l = 0; l < layers; l++) {
        snprintf(name[l], sizeof name[l], "hidden.%zu", l);
        list[l] = tensor(name[l], d->hidden + (int64_t)l * d->positions * d->c->hidden, d->positions, d->c->hidden);
    }
    int rc = safetensors_write(d->hidden_path, list, layers, err);
    free(name);
    free(list);
    return rc;
}

int dump_write(const struct dump *d, struct k3_error *err)
{
    if (d->logits) {
        struct safetensors_tensor logits = tensor("logits", d->logits, d->positions, d->c->vocab);
        if (safetensors_write(d->logits_path, &logits, 1, err) < 0)
            return -1;
    }
    return d->hidden ? write_hidden(d, err) : 0;
}
