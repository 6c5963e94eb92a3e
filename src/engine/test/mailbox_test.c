/* mailbox_test.c - mail arrives once, in order, and can be waited for */
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "common/alloc.h"
#include "engine/mailbox.h"

enum { LETTERS = 20000 };

struct letter {
    struct mail mail;
    int number;
};

static int freed;

static void letter_free(struct mail *m)
{
    freed++;
    free(m);
}

static void *write_letters(void *arg)
{
    for (int i = 0; i < LETTERS; i++) {
        struct letter *l = k3_zalloc(sizeof *l);
        l->number = i;
        mailbox_post(arg, &l->mail);
    }
    return NULL;
}

static int is_readable(const struct mailbox *b, int timeout_ms)
{
    struct pollfd p = {.fd = mailbox_fd(b), .events = POLLIN};
    return poll(&p, 1, timeout_ms);
}

static void every_letter_arrives_once_and_in_order(void **state)
{
    struct k3_error err;
    struct mailbox *b = mailbox_create(&err);
    pthread_t writer;
    int got = 0;
    (void)state;
    assert_int_equal(pthread_create(&writer, NULL, write_letters, b), 0);
    while (got < LETTERS) {
        assert_int_equal(is_readable(b, 10000), 1);
        for (struct mail *m; (m = mailbox_take(b)); free(m))
            assert_int_equal(((struct letter *)m)->number, got++);
    }
    pthread_join(writer, NULL);
    assert_int_equal(is_readable(b, 0), 0);
    mailbox_destroy(b, letter_free);
}

static void letters_that_nobody_took_are_freed(void **state)
{
    struct k3_error err;
    struct mailbox *b = mailbox_create(&err);
    (void)state;
    for (int i = 0; i < 3; i++)
        mailbox_post(b, &((struct letter *)k3_zalloc(sizeof(struct letter)))->mail);
    free(mailbox_take(b));
    assert_int_equal(is_readable(b, 0), 1); /* two are left */
    freed = 0;
    mailbox_destroy(b, letter_free);
    assert_int_equal(freed, 2);
    mailbox_destroy(NULL, letter_free);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_letter_arrives_once_and_in_order),
        cmocka_unit_test(letters_that_nobody_took_are_freed),
    };
    return cmocka_run_group_tests_name("mailbox", tests, NULL, NULL);
}
