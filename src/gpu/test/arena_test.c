/* arena_test.c - counting and placing agree; absurd sizes are refused */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "gpu/arena.h"

struct three {
    char *a, *b, *c;
};

static struct three lay_out(struct arena *a)
{
    struct three t;

    arena_part(a, "state");
    t.a = arena_take(a, ARENA_ALIGN + 36);
    arena_part(a, "scratch");
    t.b = arena_take(a, 0);
    t.c = arena_take(a, ARENA_ALIGN);
    arena_part(a, "state");
    return t;
}

static void places_what_it_counted(void **state)
{
    struct arena *a = arena_create();
    struct k3_stream *stream = kern_stream_create("ref", 1);
    struct k3_error err;
    (void)state;

    struct three t = lay_out(a);
    assert_null(t.a);
    assert_null(t.c);
    assert_int_equal(arena_bytes(a, "state"), 2 * ARENA_ALIGN);
    assert_int_equal(arena_bytes(a, "scratch"), ARENA_ALIGN);
    assert_int_equal(arena_bytes(a, "other"), 0);

    assert_int_equal(arena_commit(a, stream, &err), 0);
    t = lay_out(a);
    assert_int_equal((uintptr_t)t.a % ARENA_ALIGN, 0);
    assert_ptr_equal(t.c, t.a + 2 * ARENA_ALIGN);
    for (int i = 0; i < 3 * ARENA_ALIGN; i++)
        assert_int_equal(t.a[i], 0);
    memset(t.a, 1, 3 * ARENA_ALIGN);
    assert_int_equal(arena_bytes(a, "state"), 2 * ARENA_ALIGN);
    arena_destroy(a);
    arena_destroy(NULL);
    kern_stream_destroy(stream);
}

static void refuses_what_no_machine_has(void **state)
{
    struct arena *a = arena_create();
    struct k3_stream *stream = kern_stream_create("ref", 1);
    struct k3_error err;
    (void)state;

    arena_part(a, "state");
    arena_take(a, UINT64_MAX - 10);
    arena_take(a, 1000);
    assert_int_equal(arena_commit(a, stream, &err), -1);
    assert_non_null(strstr(err.text, "no memory"));
    arena_destroy(a);
    kern_stream_destroy(stream);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(places_what_it_counted),
        cmocka_unit_test(refuses_what_no_machine_has),
    };
    return cmocka_run_group_tests_name("arena", tests, NULL, NULL);
}
