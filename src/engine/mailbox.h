/* mailbox.h - a queue from one thread to another, with a descriptor to wait on
 *
 * The mail is a struct of the two threads' own that begins with a struct mail; posting hands it over. */
#ifndef K3_ENGINE_MAILBOX_H
#define K3_ENGINE_MAILBOX_H

#include "common/error.h"

struct mailbox;

struct mail {
    struct mail *next;
};

struct mailbox *mailbox_create(struct k3_error *err);
/* Frees the mail that nobody took with free_mail(). */
void mailbox_destroy(struct mailbox *b, void (*free_mail)(struct mail *m));

/* Readable as long as there is mail; for poll() only. */
int mailbox_fd(const struct mailbox *b);
/* Takes m.  From any thread. */
void mailbox_post(struct mailbox *b, struct mail *m);
/* The oldest mail, the caller's from now on, or NULL.  Does not wait. */
struct mail *mailbox_take(struct mailbox *b);

#endif
