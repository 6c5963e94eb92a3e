/* detok_test.c - bytes to characters, for every way to cut the bytes */
#include "util.h"

#include "text/detok.h"

#define R "\xef\xbf\xbd"

/* What Python 3's bytes.decode("utf-8", errors="replace") says. */
static const char *const cases[][2] = {
    {"", ""},
    {"plain", "plain"},
    {"na\xc3\xafve \xe2\x82\xac \xf0\x9f\x8e\x89", "na\xc3\xafve \xe2\x82\xac \xf0\x9f\x8e\x89"},
    {"\xef\xbf\xbd\xef\xbf\xbf\xf4\x8f\xbf\xbf", "\xef\xbf\xbd\xef\xbf\xbf\xf4\x8f\xbf\xbf"},
    {"a\x80z", "a" R "z"},
    {"\xff\xfe", R R},
    {"\xc0\xaf", R R},
    {"\xc1\xbf", R R},
    {"\xe0\x80\xaf", R R R},
    {"\xe0\x9f\xbf", R R R},
    {"\xed\xa0\x80", R R R},
    {"\xed\xb0\x80z", R R R "z"},
    {"\xf0\x8f\xbf\xbf", R R R R},
    {"\xf4\x90\x80\x80", R R R R},
    {"\xf5\x80\x80\x80", R R R R},
    {"\xe2\x82", R},
    {"\xe2\x82z", R "z"},
    {"\xe2\xe2\x82\xac", R "\xe2\x82\xac"},
    {"\xf0\x9f\x8e", R},
    {"\xf0\x9f\x8e\xc3\xa9", R "\xc3\xa9"},
    {"\xf0\x9f\xf0\x9f\x8e\x89", R "\xf0\x9f\x8e\x89"},
    {"\xf0\x90\x80\xc0\xe1\x80\xc3", R R R R},
    {"\xc3", R},
};

static void assert_out(const struct buf *out, const char *want)
{
    assert_int_equal(out->n, strlen(want));
    if (out->n > 0)
        assert_memory_equal(out->s, want, out->n);
}

static void any_two_cuts_give_the_same_text(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *s = cases[i][0];
        size_t len = strlen(s);
        for (size_t a = 0; a <= len; a++)
            for (size_t b = a; b <= len; b++) {
                struct detok d = {0};
                struct buf out = {0};
                detok_feed(&d, s, a, &out);
                detok_feed(&d, s + a, b - a, &out);
                detok_feed(&d, s + b, len - b, &out);
                detok_flush(&d, &out);
                assert_out(&out, cases[i][1]);
                buf_free(&out);
            }
    }
}

static void a_character_comes_as_soon_as_it_is_whole(void **state)
{
    struct detok d = {0};
    struct buf out = {0};
    (void)state;

    detok_feed(&d, "a\xf0\x9f", 3, &out);
    assert_out(&out, "a");
    detok_feed(&d, "\x8e", 1, &out);
    assert_out(&out, "a");
    detok_feed(&d,
               "\x89"
               "b\xc3",
               3, &out);
    assert_out(&out, "a\xf0\x9f\x8e\x89"
                     "b");
    detok_flush(&d, &out);
    assert_out(&out, "a\xf0\x9f\x8e\x89"
                     "b" R);
    detok_flush(&d, &out);
    assert_out(&out, "a\xf0\x9f\x8e\x89"
                     "b" R);
    detok_feed(&d, "\xa9", 1, &out); /* nothing is left of the flushed tail */
    assert_out(&out, "a\xf0\x9f\x8e\x89"
                     "b" R R);
    buf_free(&out);
}

static void a_nul_is_a_character(void **state)
{
    struct detok d = {0};
    struct buf out = {0};
    (void)state;

    detok_feed(&d, "a\0b", 3, &out);
    assert_int_equal(out.n, 3);
    assert_memory_equal(out.s, "a\0b", 3);
    buf_free(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_two_cuts_give_the_same_text),
        cmocka_unit_test(a_character_comes_as_soon_as_it_is_whole),
        cmocka_unit_test(a_nul_is_a_character),
    };
    return cmocka_run_group_tests_name("detok", tests, NULL, NULL);
}
