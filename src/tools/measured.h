/* measured.h - runs of one rank that were measured, to calibrate predictions and to check them */
#ifndef K3_TOOLS_MEASURED_H
#define K3_TOOLS_MEASURED_H

#include "model/cost.h"
#include "tools/predict.h"

/* One rank of tp, its exchanges replaced by a delay. */
struct measured_run {
    int tp, rank, batch;
    int prefill; /* tokens of a prompt's chunk; 0: decoding */
    int64_t context;
    enum k3_dtype dense;
    double exchange_us;
    double ms_per_step;
    double copy_gbs;    /* of a copy on the same device in the same run */
    double bytes_ideal; /* that it counted; 0: not said, as is the next */
    int exchanges;
};

enum { MEASURED_RUNS_MAX = 1024 };

struct measured {
    char *file;
    struct measured_run *run;
    int runs;
};

/* A JSON object that k3plan(1) describes: a run, or "runs", whose members take what they do not say from the object. */
int measured_load(struct measured *m, const char *file, struct k3_error *err);
void measured_clear(struct measured *m);

/* Predict a run on device d, whose bandwidth is that of the run's own copy. */
void measured_predict(const struct measured_run *r, const struct k3_config *c, const struct device *d,
                      const struct predict_options *o, struct prediction *p);

/* Set `share` and `layer_us` of d so that the run is predicted as it was measured: the share stays as it is while the
 * rest of the step can be the layers' time, since one run cannot tell them apart.  source is copied. */
int measured_calibrate(const struct measured_run *r, const struct k3_config *c, struct device *d,
                       const struct predict_options *o, const char *source, struct k3_error *err);

#endif
