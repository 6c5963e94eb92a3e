/* stop_test.c - stop strings against a plain search, for every way to cut the text */
#include "util.h"

#include "text/stop.h"

static struct stop *create(const char *const *strings, size_t n)
{
    size_t len[STOP_STRINGS_MAX];

    for (size_t i = 0; i < n; i++)
        len[i] = strlen(strings[i]);
    struct stop *s = stop_create(strings, len, n, NULL);
    assert_non_null(s);
    return s;
}

/* Where the match begins by definition: the first end, the longest string there; -1 without a match. */
static long plain_search(const char *const *strings, size_t n, const char *text, size_t len)
{
    for (size_t end = 1; end <= len; end++) {
        size_t longest = 0;
        for (size_t i = 0; i < n; i++) {
            size_t k = strlen(strings[i]);
            if (k <= end && k > longest && memcmp(text + end - k, strings[i], k) == 0)
                longest = k;
        }
        if (longest > 0)
            return (long)(end - longest);
    }
    return -1;
}

/* How much may be shown by definition: all but the longest tail that begins some string. */
static size_t plain_release(const char *const *strings, size_t n, const char *text, size_t len)
{
    for (size_t from = 0; from < len; from++)
        for (size_t i = 0; i < n; i++)
            if (strncmp(strings[i], text + from, len - from) == 0)
                return from;
    return len;
}

static void assert_search(const char *const *strings, size_t n, const char *text)
{
    size_t len = strlen(text);
    long want = plain_search(strings, n, text, len);
    char head[64];

    for (size_t cut = 0; cut <= len; cut++) {
        struct stop *s = create(strings, n);
        uint64_t release;
        bool found = stop_feed(s, text, cut, &release);
        strcpy(head, text);
        head[cut] = '\0';
        long early = plain_search(strings, n, head, cut);
        assert_int_equal(found, early >= 0);
        assert_int_equal(release, early >= 0 ? (size_t)early : plain_release(strings, n, head, cut));
        found = stop_feed(s, text + cut, len - cut, &release);
        assert_int_equal(found, want >= 0);
        if (found)
            assert_int_equal(release, want);
        stop_destroy(s);
    }
}

static void finds_what_a_plain_search_finds(void **state)
{
    static const char *const sets[][3] = {
        {"abab", "b", "aa"}, {"aab", "abb", "bbb"}, {"abcd", "bc", "c"}, {"aaaa", "ab", "bab"}, {"ba", "aba", "cab"}};
    uint32_t seed = 7;
    (void)state;

    for (int round = 0; round < 400; round++) {
        char text[24] = {0};
        for (size_t i = 0; i < sizeof text - 1; i++) {
            seed = seed * 1664525 + 1013904223;
            text[i] = "abcd"[(seed >> 24) % (round % 2 ? 2 : 4)];
        }
        for (size_t set = 0; set < sizeof sets / sizeof *sets; set++)
            for (size_t n = 0; n <= 3; n++)
                assert_search(sets[set], n, text);
    }
}

static void holds_back_only_what_may_still_match(void **state)
{
    static const char *const strings[] = {"\n\nUser:", "</end>"};
    struct stop *s = create(strings, 2);
    uint64_t release;
    (void)state;

    assert_false(stop_feed(s, "one\n", 4, &release));
    assert_int_equal(release, 3);
    assert_false(stop_feed(s, "two </en", 8, &release));
    assert_int_equal(release, 8);
    assert_false(stop_feed(s, "\n\nUse", 5, &release));
    assert_int_equal(release, 12);
    assert_true(stop_feed(s, "r: three", 8, &release));
    assert_int_equal(release, 12);
    assert_true(stop_feed(s, "more", 4, &release));
    assert_int_equal(release, 12);
    stop_destroy(s);
}

static void limits_are_checked(void **state)
{
    static const char *strings[STOP_STRINGS_MAX + 1];
    static char big[STOP_BYTES_MAX + 2];
    size_t len[STOP_STRINGS_MAX + 1];
    struct k3_error err;
    uint64_t release;
    (void)state;

    memset(big, 'x', sizeof big - 1);
    for (size_t i = 0; i <= STOP_STRINGS_MAX; i++) {
        strings[i] = big;
        len[i] = STOP_BYTES_MAX;
    }
    assert_null(stop_create(strings, len, STOP_STRINGS_MAX + 1, &err));
    assert_string_equal(err.text, "stop: 17 strings; at most 16 are taken");
    struct stop *s = stop_create(strings, len, STOP_STRINGS_MAX, &err);
    assert_non_null(s);
    assert_false(stop_feed(s, big, STOP_BYTES_MAX - 1, &release));
    assert_int_equal(release, 0);
    assert_true(stop_feed(s, "x", 1, &release));
    assert_int_equal(release, 0);
    stop_destroy(s);
    len[3]++;
    assert_null(stop_create(strings, len, 4, &err));
    assert_string_equal(err.text, "stop[3]: has 257 bytes; 1 to 256 are taken");
    len[0] = 0;
    assert_null(stop_create(strings, len, 1, &err));
    assert_string_equal(err.text, "stop[0]: has 0 bytes; 1 to 256 are taken");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_what_a_plain_search_finds),
        cmocka_unit_test(holds_back_only_what_may_still_match),
        cmocka_unit_test(limits_are_checked),
    };
    return cmocka_run_group_tests_name("stop", tests, NULL, NULL);
}
