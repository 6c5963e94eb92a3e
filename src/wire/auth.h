/* auth.h - who sent this: MUNGE credentials bound to a message
 *
 * The credential's payload is SHA-256(header || body), so it proves the sender's uid for these bytes and no others.
 * munged accepts a credential once: a message that is sent again needs a fresh one.  Both calls talk to the local
 * munged and take about a tenth of a millisecond. */
#ifndef K3_WIRE_AUTH_H
#define K3_WIRE_AUTH_H

#include <stddef.h>
#include <sys/types.h>

#include "common/error.h"

enum { AUTH_CREDENTIAL = 4096 }; /* bytes of a credential, at most */

struct auth;

/* socket: munged's, copied; NULL or "" for libmunge's default.  munged is first asked when there is something to sign.
 */
struct auth *auth_create(const char *socket, struct k3_error *err);
void auth_destroy(struct auth *a);

/* The credential of a message, a string that the caller frees; NULL when munged does not answer. */
char *auth_sign(struct auth *a, const void *header, size_t header_len, const void *body, size_t body_len,
                struct k3_error *err);

/* Is the credential genuine, fresh, unused and made for these bytes?  0 and the sender's uid and gid, or -1 with errno
 * EACCES (the sender's fault) or EAGAIN (munged does not answer) and uid and gid untouched. */
int auth_verify(struct auth *a, const void *credential, size_t credential_len, const void *header, size_t header_len,
                const void *body, size_t body_len, uid_t *uid, gid_t *gid, struct k3_error *err);

#endif
