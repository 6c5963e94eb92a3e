/* clock.h - time in seconds as a double */
#ifndef K3_COMMON_CLOCK_H
#define K3_COMMON_CLOCK_H

/* Never steps back; only differences mean anything.  For time-outs and rates. */
double clock_monotonic(void);
/* Since 1970, as the host's clock has it.  For people and for other hosts. */
double clock_wall(void);

#endif
