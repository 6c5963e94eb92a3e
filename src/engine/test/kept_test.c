/* What an engine keeps of its answers: in order, each choice from a token that it names, and no more than it may. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "engine/kept.h"

static void add(struct kept *k, uint32_t choice, uint64_t off, const char *text)
{
    uint32_t id = (uint32_t)off + 100;
    struct message_part part = {.ch = CHANNEL_RESPONSE, .txt = {(char *)text, strlen(text)}};
    struct message_delta d = {.c = choice, .off = off, .ids = {&id, 1}, .parts = {&part, 1}};

    kept_add(k, &d);
}

static void deltas_are_kept_whole_and_in_order(void **state)
{
    const uint64_t first[] = {5, 0};
    struct kept *k = kept_create(first, 2, 1 << 20);
    const struct report *r;

    (void)state;
    assert_null(kept_after(k, NULL));
    add(k, 0, 5, "five");
    add(k, 1, 0, "zero");
    add(k, 0, 6, "six");
    r = kept_after(k, NULL);
    assert_int_equal(r->message.delta.off, 5);
    assert_int_equal(r->message.delta.ids.v[0], 105);
    r = kept_after(k, r);
    assert_int_equal(r->message.delta.c, 1);
    r = kept_after(k, r);
    assert_memory_equal(r->message.delta.parts.v[0].txt.data, "six", 3);
    assert_null(kept_after(k, r));
    assert_int_equal(kept_first(k).n, 2);
    assert_int_equal(kept_first(k).v[0], 5);
    kept_destroy(k);
}

static void the_oldest_are_forgotten(void **state)
{
    const uint64_t first[] = {0, 0};
    enum { MOST = 20000 };
    struct kept *k = kept_create(first, 2, MOST);
    size_t bytes = 0, n = 0;

    (void)state;
    for (uint64_t i = 0; i < 1000; i++)
        add(k, i % 2, i / 2, "some text that takes room");
    for (const struct report *r = NULL; (r = kept_after(k, r)); n++)
        bytes += report_bytes(r);
    assert_in_range(bytes, MOST / 2, MOST);
    /* What is there is the end of both, and where it begins is told. */
    assert_int_equal(kept_first(k).v[0] + kept_first(k).v[1], 1000 - n);
    const struct report *r = kept_after(k, NULL);
    assert_int_equal(r->message.delta.off, kept_first(k).v[r->message.delta.c]);
    kept_destroy(k);
}

static void one_that_is_too_large_is_forgotten_at_once(void **state)
{
    const uint64_t first[] = {0};
    struct kept *k = kept_create(first, 1, 100);

    (void)state;
    add(k, 0, 0, "text");
    assert_null(kept_after(k, NULL));
    assert_int_equal(kept_first(k).v[0], 1);
    add(k, 0, 1, "text");
    assert_int_equal(kept_first(k).v[0], 2);
    kept_destroy(k);
    kept_destroy(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(deltas_are_kept_whole_and_in_order),
        cmocka_unit_test(the_oldest_are_forgotten),
        cmocka_unit_test(one_that_is_too_large_is_forgotten_at_once),
    };
    return cmocka_run_group_tests_name("kept", tests, NULL, NULL);
}
