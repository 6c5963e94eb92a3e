/* stats.h - what the daemon has done since it started */
#ifndef K3_QUEUE_STATS_H
#define K3_QUEUE_STATS_H

#include <stdint.h>

#include "wire/message.h"

struct stats {
    uint64_t accepted, refused;
    uint64_t ended[DONE_WHYS];
    uint64_t tokens;
    uint64_t engines_gone;
    uint64_t frames_refused; /* were no messages, or not the sender's to send */
};

/* One log line. */
void stats_log(const struct stats *s, double up_sec);

#endif
