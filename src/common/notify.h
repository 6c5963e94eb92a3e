/* notify.h - tell systemd how the service is
 *
 * A datagram to the socket that NOTIFY_SOCKET names, as sd_notify(3) describes; where there is none nobody is told. */
#ifndef K3_COMMON_NOTIFY_H
#define K3_COMMON_NOTIFY_H

void notify_ready(void);
/* notify_ready() follows when that is over. */
void notify_reloading(void);
void notify_stopping(void);

#endif
