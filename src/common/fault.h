/* fault.h - named places where a test can make something go wrong
 *
 * K3_FAULT holds names with commas between: "store-slow" fires every time its place is reached, "rank-dies:3" the third
 * time only.  Compiled in always; costs one comparison where K3_FAULT is not set.
 *
 *     if (fault("rank-dies"))
 *         raise(SIGKILL);
 */
#ifndef K3_COMMON_FAULT_H
#define K3_COMMON_FAULT_H

#include <stdbool.h>

/* Read K3_FAULT; called once, first thing in main().  Until then no fault fires. */
void fault_init(void);

extern bool fault_armed;
bool fault_reached(const char *name);

static inline bool fault(const char *name)
{
    return fault_armed && fault_reached(name);
}

#endif
