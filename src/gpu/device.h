/* device.h - the stream that a rank computes on */
#ifndef K3_GPU_DEVICE_H
#define K3_GPU_DEVICE_H

#include "common/error.h"
#include "kernels/kernels.h"

/* backend, threads: of kern_stream_create().  Plain "cuda" is the GPU that goes with this rank's number on its node, as
 * Slurm or Open MPI counts, modulo the GPUs that the rank sees: where Slurm shows each task one of its own
 * (--gpus-per-task), that is the one. */
struct k3_stream *device_stream_create(const char *backend, int threads, struct k3_error *err);

/* What a rank's device is and does, looked at for a moment: all zeros on CPU backends. */
struct device_health {
    struct kern_device device;
    double copy_gbs;         /* of a copy within its memory, read and written */
    int sm_mhz, sm_most_mhz; /* its clock under that load, and the highest; 0 where the driver does not say */
    int celsius;
};
int device_look(struct k3_stream *s, struct device_health *h, struct k3_error *err);

#endif
