/* quantize_test.c - e4m3 against its definition: every code, every BF16 number, rows and blocks of both formats */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/alloc.h"
#include "model/quantize.h"

enum { CODES = 127 }; /* not negative, without NaN: their order is that of their numbers */

/* What the format says, without a look at bits of doubles. */
static double defined(int code)
{
    int exponent = code >> 3 & 15, mantissa = code & 7;
    double a = exponent ? ldexp(8 + mantissa, exponent - 10) : ldexp(mantissa, -9);

    return code & 0x80 ? -a : a;
}

/* The nearest of all codes; of two as near, the even one.  Differences of a number to its neighbours are exact. */
static uint8_t nearest(double x)
{
    double a = fabs(x);
    int best = 0;

    for (int code = 1; code < CODES; code++) {
        double here = fabs(a - defined(code)), there = fabs(a - defined(best));
        if (here < there || (here == there && code % 2 == 0))
            best = code;
    }
    return (uint8_t)(best | (signbit(x) ? 0x80 : 0));
}

static double number(uint16_t bits)
{
    uint32_t wide = (uint32_t)bits << 16;
    float x;

    memcpy(&x, &wide, sizeof x);
    return (double)x;
}

static int is_number(uint16_t bits)
{
    return (bits & 0x7f80) != 0x7f80;
}

static void every_code_has_its_number(void **state)
{
    (void)state;
    for (int code = 0; code < 256; code++) {
        if ((code & 0x7f) == 0x7f)
            continue;
        assert_true(quantize_value((uint8_t)code) == defined(code));
        assert_int_equal(quantize_e4m3(defined(code)), code);
    }
    assert_true(quantize_value(0x7e) == 448);
}

static void every_bf16_number_has_the_nearest_code(void **state)
{
    (void)state;
    for (int bits = 0; bits < 65536; bits++)
        if (is_number((uint16_t)bits) && quantize_e4m3(number((uint16_t)bits)) != nearest(number((uint16_t)bits)))
            fail_msg("%04x: code %02x, not %02x", bits, quantize_e4m3(number((uint16_t)bits)),
                     nearest(number((uint16_t)bits)));
}

/* Half way between two codes, and the least bit to both sides of it. */
static void ties_go_to_the_even_code(void **state)
{
    (void)state;
    for (int code = 0; code + 1 < CODES; code++) {
        double middle = (defined(code) + defined(code + 1)) / 2;
        assert_int_equal(quantize_e4m3(middle), code % 2 ? code + 1 : code);
        assert_int_equal(quantize_e4m3(nextafter(middle, 0)), code);
        assert_int_equal(quantize_e4m3(nextafter(middle, 1000)), code + 1);
    }
    assert_int_equal(quantize_e4m3(1e300), 0x7e);
    assert_int_equal(quantize_e4m3(-1e300), 0xfe);
}

/* Rows of random magnitude: the definition's scale and codes. */
static void rows_have_the_scale_of_their_maximum(void **state)
{
    enum { COLS = 96, ROWS = 3000 };
    uint16_t row[COLS];
    uint8_t code[COLS], part[COLS];
    float scale, again;
    (void)state;

    srandom(1);
    for (int r = 0; r < ROWS; r++) {
        int least = (int)(random() % 0x7f00);
        double most = 0;
        for (int i = 0; i < COLS; i++) {
            row[i] = (uint16_t)((random() % 2 << 15) | (least + random() % (0x7f80 - least > 2048 ? 2048 : 128)));
            most = fmax(most, fabs(number(row[i])));
        }
        assert_int_equal(quantize_row(K3_FP8_E4M3, row, COLS, 0, COLS, code, &scale), 0);
        assert_true(scale == (most > 0 ? (float)(most / 448) : 1));
        for (int i = 0; i < COLS; i++)
            assert_int_equal(code[i], nearest(number(row[i]) / (double)scale));

        /* some columns of it are the same numbers */
        assert_int_equal(quantize_row(K3_FP8_E4M3, row, COLS, 31, 70, part, &again), 0);
        assert_true(again == scale);
        assert_memory_equal(part, code + 31, 39);
    }
}

static void blocks_have_the_power_of_two_of_their_maximum(void **state)
{
    enum { COLS = 4 * K3_MX_BLOCK, ROWS = 3000 };
    uint16_t row[COLS];
    uint8_t code[COLS], scale[COLS / K3_MX_BLOCK], part[COLS], part_scale[2];
    (void)state;

    srandom(2);
    for (int r = 0; r < ROWS; r++) {
        int least = (int)(random() % 0x7700);
        for (int i = 0; i < COLS; i++)
            row[i] = (uint16_t)((random() % 2 << 15) | (least + random() % 2048));
        assert_int_equal(quantize_row(K3_MXFP8, row, COLS, 0, COLS, code, scale), 0);
        for (int b = 0; b < COLS / K3_MX_BLOCK; b++) {
            double most = 0;
            int e = -127;
            for (int i = 0; i < K3_MX_BLOCK; i++)
                most = fmax(most, fabs(number(row[b * K3_MX_BLOCK + i])));
            while (ldexp(256, e + 1) <= most) /* 256 is the power of two in 448 */
                e++;
            assert_int_equal(scale[b], most > 0 ? e + 127 : 127);
            for (int i = b * K3_MX_BLOCK; i < (b + 1) * K3_MX_BLOCK; i++)
                assert_int_equal(code[i], nearest(number(row[i]) / ldexp(1, e)));
        }
        assert_int_equal(quantize_row(K3_MXFP8, row, COLS, K3_MX_BLOCK, 3 * K3_MX_BLOCK, part, part_scale), 0);
        assert_memory_equal(part, code + K3_MX_BLOCK, 2 * K3_MX_BLOCK);
        assert_memory_equal(part_scale, scale + 1, 2);
    }
}

static void zeros_stay_zeros_and_others_are_refused(void **state)
{
    static const enum k3_dtype forms[] = {K3_FP8_E4M3, K3_MXFP8};
    uint16_t row[2 * K3_MX_BLOCK] = {0};
    uint8_t code[2 * K3_MX_BLOCK], scale[4];
    float one = 1;
    (void)state;

    row[1] = 0x8000;
    for (int f = 0; f < 2; f++) {
        memset(code, 0xaa, sizeof code);
        assert_int_equal(quantize_row(forms[f], row, 2 * K3_MX_BLOCK, 0, 2 * K3_MX_BLOCK, code, scale), 0);
        assert_int_equal(code[0], 0);
        assert_int_equal(code[1], 0x80);
        assert_int_equal(code[2 * K3_MX_BLOCK - 1], 0);
    }
    assert_int_equal(scale[0], 127);
    assert_int_equal(quantize_row(K3_FP8_E4M3, row, 2 * K3_MX_BLOCK, 0, 2, code, scale), 0);
    assert_memory_equal(scale, &one, sizeof one);
    for (int f = 0; f < 2; f++)
        for (int bits = 0x7f80; bits <= 0x7fff; bits += 0x40) { /* infinity, NaN */
            row[40] = (uint16_t)bits;
            assert_int_equal(quantize_row(forms[f], row, 2 * K3_MX_BLOCK, 0, K3_MX_BLOCK, code, scale), -1);
        }
}

static void errors_are_those_of_the_definition(void **state)
{
    enum { COLS = 64 };
    uint16_t row[COLS];
    uint8_t code[COLS], scale[4];
    struct quantize_error e = {0}, sum = {0};
    double error2 = 0, norm2 = 0, largest = 0;
    float s;
    (void)state;

    for (int i = 0; i < COLS; i++)
        row[i] = (uint16_t)(0x3f00 + 7 * i);
    assert_int_equal(quantize_row(K3_FP8_E4M3, row, COLS, 0, COLS, code, scale), 0);
    memcpy(&s, scale, sizeof s);
    quantize_compare(K3_FP8_E4M3, row, 0, COLS, code, scale, &e);
    for (int i = 0; i < COLS; i++) {
        double d = number(row[i]) - defined(code[i]) * (double)s;
        error2 += d * d;
        norm2 += number(row[i]) * number(row[i]);
        largest = fmax(largest, fabs(d));
    }
    assert_true(e.error2 == error2 && e.norm2 == norm2 && e.largest == largest);
    quantize_error_add(&sum, &e);
    quantize_error_add(&sum, &e);
    assert_true(fabs(quantize_relative(&sum) - sqrt(error2 / norm2)) < 1e-12);
    /* Of normal codes half a step is at most a sixteenth of the number. */
    assert_true(quantize_relative(&e) > 0 && quantize_relative(&e) < 0.0625);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_code_has_its_number),
        cmocka_unit_test(every_bf16_number_has_the_nearest_code),
        cmocka_unit_test(ties_go_to_the_even_code),
        cmocka_unit_test(rows_have_the_scale_of_their_maximum),
        cmocka_unit_test(blocks_have_the_power_of_two_of_their_maximum),
        cmocka_unit_test(zeros_stay_zeros_and_others_are_refused),
        cmocka_unit_test(errors_are_those_of_the_definition),
    };
    return cmocka_run_group_tests_name("quantize", tests, NULL, NULL);
}
