#include "engine/layercheck.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/alloc.h"

struct layercheck {
    const struct k3_config *config;
    int64_t positions, at;
    float *kept;              /* [layers, positions, hidden] */
    double *difference, *sum; /* [layers]: squares */
};

struct layercheck *layercheck_create(const struct k3_config *c, int64_t positions)
{
    struct layercheck *k = k3_zalloc(sizeof *k);
    size_t layers = (size_t)c->layers;

    k->config = c;
    k->positions = positions;
    k->kept = k3_calloc(layers * (size_t)positions * (size_t)c->hidden, sizeof *k->kept);
    k->difference = k3_calloc(layers, sizeof *k->difference);
    k->sum = k3_calloc(layers, sizeof *k->sum);
    return k;
}

void layercheck_destroy(struct layercheck *k)
{
    if (!k)
        return;
    free(k->kept);
    free(k->difference);
    free(k->sum);
    free(k);
}

static float *place(struct layercheck *k, int layer)
{
    return k->kept + ((int64_t)layer * k->positions + k->at) * k->config->hidden;
}

static float *row(const struct k3_tensor *p, int64_t t)
{
    return (float *)p->data + t * p->stride;
}

int layercheck_keep(int layer, const struct k3_tensor *p, void *arg)
{
    float *to = place(arg, layer);

    for (int64_t t = 0; t < p->rows; t++)
        memcpy(to + t * p->cols, row(p, t), (size_t)p->cols * sizeof *to);
    return 0;
}

int layercheck_compare(int layer, const struct k3_tensor *p, void *arg)
{
    struct layercheck *k = arg;
    const float *wanted = place(k, layer);

    for (int64_t t = 0; t < p->rows; t++)
        for (int64_t i = 0; i < p->cols; i++, wanted++) {
            double d = (double)row(p, t)[i] - *wanted;
            k->difference[layer] += d * d;
            k->sum[layer] += (double)*wanted * *wanted;
            row(p, t)[i] = *wanted;
        }
    return 1;
}

void layercheck_rows(struct layercheck *k, int64_t rows)
{
    k->at = rows > 0 ? k->at + rows : 0;
}

double layercheck_difference(const struct layercheck *k, int layer)
{
    return sqrt(k->difference[layer] / k->sum[layer]);
}
