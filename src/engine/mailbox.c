#include "engine/mailbox.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "common/alloc.h"

struct mailbox {
    pthread_mutex_t lock;
    struct mail *first, **last;
    int fd; /* counts 1 while there is mail, else 0 */
};

struct mailbox *mailbox_create(struct k3_error *err)
{
    struct mailbox *b = k3_zalloc(sizeof *b);

    if ((b->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) < 0) {
        k3_errorf(err, "eventfd: %s", strerror(errno));
        free(b);
        return NULL;
    }
    pthread_mutex_init(&b->lock, NULL);
    b->last = &b->first;
    return b;
}

void mailbox_destroy(struct mailbox *b, void (*free_mail)(struct mail *m))
{
    if (!b)
        return;

    int saved = errno;
    for (struct mail *m; (m = mailbox_take(b));)
        free_mail(m);
    pthread_mutex_destroy(&b->lock);
    close(b->fd);
    free(b);
    errno = saved;
}

int mailbox_fd(const struct mailbox *b)
{
    return b->fd;
}

void mailbox_post(struct mailbox *b, struct mail *m)
{
    m->next = NULL;
    pthread_mutex_lock(&b->lock);
    if (!b->first)
        eventfd_write(b->fd, 1);
    *b->last = m;
    b->last = &m->next;
    pthread_mutex_unlock(&b->lock);
}

struct mail *mailbox_take(struct mailbox *b)
{
    eventfd_t count;

    pthread_mutex_lock(&b->lock);
    struct mail *m = b->first;
    if (m && !(b->first = m->next)) {
        b->last = &b->first;
        eventfd_read(b->fd, &count);
    }
    pthread_mutex_unlock(&b->lock);
    return m;
}
