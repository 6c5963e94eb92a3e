/* cache_test.c - slots and pages: reserved before they are used, used by one, given back whole */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "engine/cache.h"

static const struct cache_limits limits = {.slots = 3, .pages = 10, .page_tokens = 4};

/* A slot for one sequence, or -1. */
static int32_t reserve(struct cache *c, int64_t tokens, const int32_t *shared, int32_t n)
{
    int32_t slot;

    return cache_reserve(c, &(struct cache_need){tokens, 0, 0}, shared, n, &slot) < 0 ? -1 : slot;
}

static void pages_come_as_a_sequence_grows(void **state)
{
    struct cache *c = cache_create(&limits);
    int32_t count, slot = reserve(c, 9, NULL, 0); /* 3 pages */
    (void)state;
    assert_true(slot >= 0 && slot < 3);
    assert_int_equal(cache_free_pages(c), 7);
    cache_pages(c, slot, &count);
    assert_int_equal(count, 0);
    assert_int_equal(cache_grow(c, slot, 1), 1);
    assert_int_equal(cache_grow(c, slot, 4), 1);
    assert_int_equal(cache_grow(c, slot, 5), 2);
    int32_t first = cache_pages(c, slot, &count)[0];
    assert_int_equal(cache_grow(c, slot, 9), 3);
    assert_int_equal(cache_pages(c, slot, &count)[0], first);
    assert_int_equal(count, 3);
    assert_int_equal(cache_free_pages(c), 7); /* growing within the reservation takes nothing from the others */
    cache_release(c, slot);
    assert_int_equal(cache_free_pages(c), 10);
    assert_int_equal(cache_free_slots(c), 3);
    cache_destroy(c);
}

static void promised_pages_are_not_promised_twice(void **state)
{
    struct cache *c = cache_create(&limits);
    int32_t a = reserve(c, 24, NULL, 0), b; /* 6 pages */
    (void)state;
    assert_true(a >= 0);
    assert_int_equal(reserve(c, 17, NULL, 0), -1); /* 5 of the 4 that are left */
    b = reserve(c, 16, NULL, 0);
    assert_true(b >= 0 && b != a);
    assert_int_equal(reserve(c, 1, NULL, 0), -1);
    assert_int_equal(cache_free_slots(c), 1);
    cache_release(c, a);
    assert_int_equal(cache_free_pages(c), 6);
    assert_true(reserve(c, 24, NULL, 0) >= 0);
    cache_destroy(c);
}

static void slots_run_out_before_pages_do(void **state)
{
    struct cache *c = cache_create(&limits);
    (void)state;
    for (int i = 0; i < 3; i++)
        assert_true(reserve(c, 1, NULL, 0) >= 0);
    assert_int_equal(reserve(c, 1, NULL, 0), -1);
    assert_int_equal(cache_free_pages(c), 7);
    cache_destroy(c);
}

static void what_can_never_fit_is_known_beforehand(void **state)
{
    struct cache *c = cache_create(&limits);
    (void)state;
    assert_true(cache_can_hold(&limits, &(struct cache_need){40, 0, 0}));
    assert_false(cache_can_hold(&limits, &(struct cache_need){41, 0, 0}));
    assert_false(cache_can_hold(&limits, &(struct cache_need){INT64_C(1) << 40, 0, 0}));
    cache_destroy(c);
}

static void forks_share_what_they_have_in_common(void **state)
{
    struct cache *c = cache_create(&limits);
    /* Three of 14 tokens that begin with the same 10: 4 pages for the first and 2 for each of the others. */
    const struct cache_need need = {.tokens = 14, .forks = 2, .common = 10};
    int32_t slot[3], count;
    (void)state;
    assert_true(cache_can_hold(&limits, &need));
    assert_false(cache_can_hold(&limits, &(struct cache_need){14, 3, 10})); /* slots */
    assert_false(cache_can_hold(&limits, &(struct cache_need){17, 2, 10})); /* pages */
    assert_int_equal(cache_reserve(c, &need, NULL, 0, slot), 0);
    assert_int_equal(cache_free_slots(c), 0);
    assert_int_equal(cache_free_pages(c), 2);
    cache_grow(c, slot[0], 10);
    for (int i = 1; i < 3; i++) {
        assert_int_equal(cache_fork(c, slot[0], slot[i]), 2);
        const int32_t *page = cache_pages(c, slot[i], &count), *first = cache_pages(c, slot[0], &count);
        assert_memory_equal(page, first, 2 * sizeof *page);
        assert_int_not_equal(page[2], first[2]);
        assert_int_equal(cache_grow(c, slot[i], 14), 4);
    }
    assert_int_equal(cache_free_pages(c), 2);
    cache_release(c, slot[0]); /* the others keep the first two pages */
    assert_int_equal(cache_free_pages(c), 4);
    cache_release(c, slot[1]);
    cache_release(c, slot[2]);
    assert_int_equal(cache_free_pages(c), 10);
    /* One that is given up before it has forked. */
    assert_int_equal(cache_reserve(c, &need, NULL, 0, slot), 0);
    for (int i = 0; i < 3; i++)
        cache_release(c, slot[i]);
    assert_int_equal(cache_free_pages(c), 10);
    assert_int_equal(cache_free_slots(c), 3);
    cache_destroy(c);
}

static void no_page_has_two_owners(void **state)
{
    struct cache *c = cache_create(&limits);
    int32_t slot[3], count, seen[10] = {0};
    (void)state;
    for (int i = 0; i < 3; i++)
        slot[i] = reserve(c, 12, NULL, 0);
    for (int64_t tokens = 1; tokens <= 12; tokens++)
        for (int i = 0; i < 3; i++)
            cache_grow(c, slot[i], tokens);
    for (int i = 0; i < 3; i++) {
        const int32_t *page = cache_pages(c, slot[i], &count);
        assert_int_equal(count, 3);
        for (int32_t k = 0; k < count; k++) {
            assert_in_range(page[k], 0, 9);
            assert_int_equal(seen[page[k]]++, 0);
        }
    }
    cache_destroy(c);
}

/* A page is free when no slot uses it and no checkpoint keeps it. */
static void pages_may_be_shared_and_kept(void **state)
{
    struct cache *c = cache_create(&limits);
    int32_t count, kept[2], a = reserve(c, 12, NULL, 0);
    (void)state;
    cache_grow(c, a, 12);
    memcpy(kept, cache_pages(c, a, &count), sizeof kept);
    cache_keep(c, kept, 2);
    cache_release(c, a);
    assert_int_equal(cache_free_pages(c), 8);
    assert_int_equal(reserve(c, 36, NULL, 0), -1); /* 9 pages */
    assert_true(cache_could_reserve(c, &(struct cache_need){36, 0, 0}, NULL, 0));
    assert_true(cache_could_reserve(c, &(struct cache_need){40, 0, 0}, kept, 2)); /* those two and all the others */
    assert_false(cache_could_reserve(c, &(struct cache_need){41, 0, 0}, kept, 2));
    int32_t b = reserve(c, 12, kept, 2), d = reserve(c, 12, kept, 2);
    assert_int_equal(cache_free_pages(c), 6);
    cache_grow(c, b, 12);
    cache_grow(c, d, 12);
    assert_memory_equal(cache_pages(c, b, &count), kept, sizeof kept);
    assert_memory_equal(cache_pages(c, d, &count), kept, sizeof kept);
    assert_true(cache_pages(c, b, &count)[2] != cache_pages(c, d, &count)[2]);
    assert_true(cache_could_reserve(c, &(struct cache_need){24, 0, 0}, NULL, 0));
    assert_false(
        cache_could_reserve(c, &(struct cache_need){25, 0, 0}, NULL, 0)); /* what a slot uses is not to be had */
    cache_let_go(c, kept, 2);
    assert_int_equal(cache_free_pages(c), 6);
    cache_release(c, b);
    assert_int_equal(cache_free_pages(c), 7);
    cache_release(c, d);
    assert_int_equal(cache_free_pages(c), 10);
    cache_destroy(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pages_come_as_a_sequence_grows),
        cmocka_unit_test(promised_pages_are_not_promised_twice),
        cmocka_unit_test(slots_run_out_before_pages_do),
        cmocka_unit_test(what_can_never_fit_is_known_beforehand),
        cmocka_unit_test(forks_share_what_they_have_in_common),
        cmocka_unit_test(no_page_has_two_owners),
        cmocka_unit_test(pages_may_be_shared_and_kept),
    };
    return cmocka_run_group_tests_name("cache", tests, NULL, NULL);
}
