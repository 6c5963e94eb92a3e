#include "tools/device.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "common/alloc.h"
#include "common/conf.h"

static const char *const bases[] = {"measured", "assumed", NULL};

/* Section name = { value = ...; basis = "..."; source = "..."; }; */
#define VALUE(name, initial, least, most, sentence)                                                                    \
    {#name, "value", CONF_REAL, offsetof(struct device, name.value), initial, least, most, NULL, sentence},            \
        {#name, "basis", CONF_TEXT, offsetof(struct device, name.basis), "assumed", 0, 0, bases, "Was it measured?"},  \
    {                                                                                                                  \
#name, "source", CONF_TEXT, offsetof(struct device, name.source), "built in", 0, 0, NULL,                      \
            "By whom, where and when."                                                                                 \
    }

static const struct conf_row rows[] = {
    {"device", "name", CONF_TEXT, offsetof(struct device, name), "", 0, 0, NULL, "What people call it."},
    VALUE(memory_gb, "128", 0.001, 1e5, "Memory that a rank can have."),
    VALUE(reserve_gb, "4", 0, 1e5, "Memory that is left alone."),
    VALUE(comm_gb, "0.5", 0, 1e3, "Buffers of the communication library."),
    VALUE(bandwidth_gbs, "240", 0.001, 1e6, "Bytes a second that its memory gives at best."),
    VALUE(share, "1", 0.001, 1, "Share of that which large products reach."),
    VALUE(matrix_tflops, "60", 0.001, 1e6, "BF16 products with fp32 sums at best."),
    VALUE(matrix_share, "1", 0.001, 1, "Share of that which large products reach."),
    VALUE(expert_tflops, "1000", 0.001, 1e6, "Products of routed experts for the few rows of a decoding step."),
    VALUE(step_rows, "1000", 1, 1e6, "Rows of a decoding step that one pass over a dense weight serves."),
    VALUE(layer_us, "0", 0, 1e6, "Time of a layer whatever it reads."),
    VALUE(cache_mb, "24", 0, 1e5, "Level 2 cache."),
    VALUE(phase_us, "10", 0, 1e6, "Latency of one phase of an exchange."),
    VALUE(link_gbs, "12.5", 0.001, 1e5, "Bytes that a rank sends at once."),
};

void device_rows(const struct device *d, struct device_row row[DEVICE_ROWS])
{
    const struct device_row all[DEVICE_ROWS] = {
        {"memory_gb", "GB", &d->memory_gb},
        {"reserve_gb", "GB", &d->reserve_gb},
        {"comm_gb", "GB", &d->comm_gb},
        {"bandwidth_gbs", "GB/s", &d->bandwidth_gbs},
        {"share", "", &d->share},
        {"matrix_tflops", "TFLOP/s", &d->matrix_tflops},
        {"matrix_share", "", &d->matrix_share},
        {"expert_tflops", "TFLOP/s", &d->expert_tflops},
        {"step_rows", "", &d->step_rows},
        {"layer_us", "us", &d->layer_us},
        {"cache_mb", "MB", &d->cache_mb},
        {"phase_us", "us", &d->phase_us},
        {"link_gbs", "GB/s", &d->link_gbs},
    };

    memcpy(row, all, sizeof all);
}

int device_load(struct device *d, const char *name, struct k3_error *err)
{
    const char *data = getenv("K3_DATADIR");
    char *path = strchr(name, '/') ? k3_strdup(name)
                                   : k3_asprintf("%s/devices/%s.conf", data && *data ? data : K3_DATADIR, name);

    d->conf = conf_create(rows, sizeof rows / sizeof *rows, d);
    int rc = conf_read(d->conf, path, err);
    if (rc < 0)
        device_clear(d);
    free(path);
    return rc;
}

void device_clear(struct device *d)
{
    conf_destroy(d->conf);
    d->conf = NULL;
}

static int override(struct device *d, const char *word, const char *origin, struct k3_error *err)
{
    const char *equals = strchr(word, '=');
    int name = (int)(equals ? equals - word : 0), rc = -1;
    char *value = k3_asprintf("%.*s.value", name, word), *basis = k3_asprintf("%.*s.basis", name, word);
    char *source = k3_asprintf("%.*s.source", name, word);

    if (!equals || strncmp(word, "device=", 7) == 0) {
        errno = EINVAL;
        k3_errorf(err, "%s: '%s' is not NAME=VALUE", origin, word);
    } else {
        rc = conf_set(d->conf, value, equals + 1, origin, err) < 0 ||
                     conf_set(d->conf, basis, "assumed", origin, err) < 0
                 ? -1
                 : conf_set(d->conf, source, origin, origin, err);
    }
    free(value);
    free(basis);
    free(source);
    return rc;
}

int device_override(struct device *d, const char *text, const char *origin, struct k3_error *err)
{
    char *words = k3_strdup(text), *next = words, *word;
    int rc = 0;

    while (rc == 0 && (word = strsep(&next, ",")))
        rc = override(d, word, origin, err);
    free(words);
    return rc;
}

void device_set(struct device_value *v, double value, const char *basis, const char *source)
{
    char *new_basis = k3_strdup(basis), *new_source = k3_strdup(source);

    free(v->basis);
    free(v->source);
    *v = (struct device_value){value, new_basis, new_source};
}
