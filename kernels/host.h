/* host.h - memory of backends that compute in this process */
#ifndef K3_KERNELS_HOST_H
#define K3_KERNELS_HOST_H

#include <stddef.h>

/* Zeros that cost pages only where they are touched, page-aligned; NULL with errno ENOMEM. */
void *host_alloc(size_t bytes);
void host_free(void *p, size_t bytes);
void host_copy(void *to, size_t to_step, const void *from, size_t from_step, size_t bytes, size_t rows);
/* Spin, as a rank does that waits for another. */
void host_delay(double microseconds);

#endif
