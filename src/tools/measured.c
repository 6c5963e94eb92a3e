#include "tools/measured.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "common/alloc.h"
#include "model/jsontext.h"

enum { FILE_BYTES_MAX = 4 << 20, DEPTH_MAX = 8 };

/* --- the file -------------------------------------------------------------------------------------------------------
 */

/* A run's own value, or the one for all of them. */
static const json_t *find(const json_t *run, const json_t *all, const char *key)
{
    const json_t *own = json_object_get(run, key);

    return own ? own : json_object_get(all, key);
}

static int number(const char *file, const json_t *run, const json_t *all, const char *key, double least, double most,
                  double *value, struct k3_error *err)
{
    const json_t *found = find(run, all, key);

    *value = found ? json_number_value(found) : 0;
    if (!json_is_number(found) || *value < least || *value > most) {
        errno = EINVAL;
        return k3_errorf(err, "%s: %s is not a number from %.10g to %.10g", file, key, least, most);
    }
    return 0;
}

/* The same, 0 when it is not there. */
static int optional(const char *file, const json_t *run, const json_t *all, const char *key, double most, double *value,
                    struct k3_error *err)
{
    *value = 0;
    return find(run, all, key) ? number(file, run, all, key, 0, most, value, err) : 0;
}

static int parse_run(const char *file, const json_t *run, const json_t *all, struct measured_run *r,
                     struct k3_error *err)
{
    const char *dense = json_string_value(find(run, all, "dense"));
    double tp, rank, batch, context, prefill, exchanges;

    if (number(file, run, all, "tp", 1, LAYOUT_RANKS_MAX, &tp, err) < 0 ||
        number(file, run, all, "rank", 0, tp - 1, &rank, err) < 0 ||
        number(file, run, all, "batch", 1, 1 << 20, &batch, err) < 0 ||
        number(file, run, all, "context", 0, 1 << 30, &context, err) < 0 ||
        number(file, run, all, "exchange_us", 0, 1e6, &r->exchange_us, err) < 0 ||
        number(file, run, all, "ms_per_step", 1e-6, 1e9, &r->ms_per_step, err) < 0 ||
        number(file, run, all, "copy_GBps", 1e-3, 1e6, &r->copy_gbs, err) < 0 ||
        optional(file, run, all, "prefill", 1 << 20, &prefill, err) < 0 ||
        optional(file, run, all, "exchanges", 1e6, &exchanges, err) < 0 ||
        optional(file, run, all, "bytes_ideal", 1e15, &r->bytes_ideal, err) < 0)
        return -1;
    if (!dense || !(r->dense = inventory_dense_parse(dense))) {
        errno = EINVAL;
        return k3_errorf(err, "%s: dense is not \"bf16\", \"fp8\", \"mxfp8\" or \"mxfp4\"", file);
    }
    r->tp = (int)tp;
    r->rank = (int)rank;
    r->batch = (int)batch;
    r->context = (int64_t)context;
    r->prefill = (int)prefill;
    r->exchanges = (int)exchanges;
    return 0;
}

int measured_load(struct measured *m, const char *file, struct k3_error *err)
{
    size_t len;
    char *text = jsontext_load(file, FILE_BYTES_MAX, &len, err);
    json_t *all = text ? jsontext_parse(file, text, len, DEPTH_MAX, err) : NULL;
    const json_t *list = json_object_get(all, "runs");
    size_t runs = list ? json_array_size(list) : 1;
    int rc = -1;

    *m = (struct measured){.file = k3_strdup(file)};
    if (!all)
        goto out;
    if (runs < 1 || runs > MEASURED_RUNS_MAX) {
        errno = EINVAL;
        k3_errorf(err, "%s: runs is not a list of 1 to %d", file, MEASURED_RUNS_MAX);
        goto out;
    }
    m->run = k3_calloc(runs, sizeof *m->run);
    for (; m->runs < (int)runs; m->runs++)
        if (parse_run(file, list ? json_array_get(list, (size_t)m->runs) : all, all, &m->run[m->runs], err) < 0)
            goto out;
    rc = 0;
out:
    if (rc < 0)
        measured_clear(m);
    json_decref(all);
    free(text);
    return rc;
}

void measured_clear(struct measured *m)
{
    free(m->file);
    free(m->run);
    *m = (struct measured){NULL, NULL, 0};
}

/* --- against predictions --------------------------------------------------------------------------------------------
 */

void measured_predict(const struct measured_run *r, const struct k3_config *c, const struct device *d,
                      const struct predict_options *o, struct prediction *p)
{
    struct device same = *d;
    struct predict_options options = *o;

    same.bandwidth_gbs.value = r->copy_gbs;
    options.cost.dense = r->dense;
    options.exchange_us = r->exchange_us;
    predict_rank(c, &(struct layout){r->tp, 1, 1}, r->rank, &same, &options,
                 &(struct predict_step){.seqs = r->batch, .prefill = r->prefill, .context = r->context}, p);
}

/* The share that lets the step be as fast as it was, or d's own where that is enough; beyond 1 there is none.  Faster
 * memory leaves more of the computing to be waited for, so it is found step by step. */
static double raised(const struct measured_run *r, const struct k3_config *c, const struct device *d,
                     const struct predict_options *o)
{
    enum { STEPS = 100 };
    struct device faster = *d;

    for (int i = 0; i < STEPS && faster.share.value <= 1; i++) {
        struct prediction p;
        measured_predict(r, c, &faster, o, &p);
        double own = r->ms_per_step - p.latency_ms;
        if (own >= p.memory_ms + p.compute_ms)
            break;
        faster.share.value *= own > p.compute_ms ? p.memory_ms / (own - p.compute_ms) : INFINITY;
    }
    return faster.share.value;
}

int measured_calibrate(const struct measured_run *r, const struct k3_config *c, struct device *d,
                       const struct predict_options *o, const char *source, struct k3_error *err)
{
    struct prediction p;

    errno = EINVAL;
    if (r->prefill)
        return k3_errorf(err, "%s: decoding calibrates, not a prompt's chunk of %d tokens", source, r->prefill);
    measured_predict(r, c, d, o, &p);
    double own = r->ms_per_step - p.latency_ms, busy = p.memory_ms + p.compute_ms, share = raised(r, c, d, o);
    if (share > 1)
        return k3_errorf(err, "%s: %.3f ms a step is less than copying %.3f GB at %.0f GB/s and %d exchanges take",
                         source, r->ms_per_step, p.bytes / 1e9, r->copy_gbs, p.exchanges);
    device_set(&d->share, share, own >= busy ? d->share.basis : "measured", own >= busy ? d->share.source : source);
    device_set(&d->layer_us, fmax(own - busy, 0) * 1e3 / c->layers, "measured", source);
    return 0;
}
