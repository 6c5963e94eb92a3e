/* guard.h - ends a rank before its host runs out of memory
 *
 * A machine whose GPU computes in the host's own memory may hang when that runs out, until somebody turns it off and
 * on. A thread looks at MemAvailable every GUARD_MS. */
#ifndef K3_GPU_GUARD_H
#define K3_GPU_GUARD_H

#include <stdint.h>

#include "common/error.h"

enum { GUARD_MS = 200 };

/* Memory that a host can give without swapping (MemAvailable); 0 when it does not say. */
uint64_t guard_available_bytes(void);

struct guard;

/* starve is called once, on the guard's thread, when fewer than `least` bytes are left; it is told how many.  NULL when
 * there are fewer already, or no thread could be had. */
struct guard *guard_create(uint64_t least, void (*starve)(uint64_t left, void *arg), void *arg, struct k3_error *err);
void guard_destroy(struct guard *g);

#endif
