/* device.h - what k3plan knows of a device: a file of values, each measured or assumed, with its source
 *
 * The rows are those of conf.h, three a value; k3plan(1) describes the file. */
#ifndef K3_TOOLS_DEVICE_H
#define K3_TOOLS_DEVICE_H

#include "common/error.h"

struct device_value {
    double value;
    char *basis;  /* "measured" or "assumed" */
    char *source; /* by whom, where, when */
};

/* GB = 10^9 bytes */
struct device {
    char *name;
    struct device_value memory_gb;     /* that the job can have */
    struct device_value reserve_gb;    /* ... of which this is left alone */
    struct device_value comm_gb;       /* buffers of the communication library */
    struct device_value bandwidth_gbs; /* of its memory, at best */
    struct device_value share;         /* of it that a large product reaches */
    struct device_value matrix_tflops; /* BF16 products with fp32 sums, at best */
    struct device_value matrix_share;  /* of it that large products reach */
    struct device_value expert_tflops; /* of routed experts' products while decoding */
    struct device_value step_rows;     /* of a decoding step that one pass over a dense weight serves */
    struct device_value layer_us;      /* a layer's launches and tails, whatever it reads */
    struct device_value cache_mb;      /* level 2: a residual stream that fits is not read from memory */
    struct device_value phase_us;      /* latency of one phase of an exchange */
    struct device_value link_gbs;      /* bytes that a rank sends at once */
    struct conf *conf;
};

/* NAME.conf of the installed devices, or a path with a slash in it. */
int device_load(struct device *d, const char *name, struct k3_error *err);
void device_clear(struct device *d);

/* What a person typed: "phase_us=73,link_gbs=25".  origin becomes the source. */
int device_override(struct device *d, const char *text, const char *origin, struct k3_error *err);
/* Replace a value; copies basis and source. */
void device_set(struct device_value *v, double value, const char *basis, const char *source);

struct device_row {
    const char *name, *unit;
    const struct device_value *value;
};
enum { DEVICE_ROWS = 13 };
/* All values, in the order of the struct; borrowed from d. */
void device_rows(const struct device *d, struct device_row row[DEVICE_ROWS]);

#endif
