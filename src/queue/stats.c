#include "queue/stats.h"

#include <inttypes.h>

#include "common/log.h"

void stats_log(const struct stats *s, double up_sec)
{
    log_info("in %.0f s: %" PRIu64 " requests accepted, %" PRIu64 " refused, %" PRIu64 " answered, %" PRIu64
             " failed, %" PRIu64 " cancelled, %" PRIu64 " expired; %" PRIu64 " tokens; %" PRIu64
             " engines gone; %" PRIu64 " frames refused",
             up_sec, s->accepted, s->refused, s->ended[DONE_STOP] + s->ended[DONE_LENGTH], s->ended[DONE_FAILED],
             s->ended[DONE_CANCELLED], s->ended[DONE_EXPIRED], s->tokens, s->engines_gone, s->frames_refused);
}
