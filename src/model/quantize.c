#include "model/quantize.h"

#include <math.h>
#include <string.h>

enum { SIGN = 0x80, LARGEST = 0x7e };
enum { BIAS = 7, MANTISSA = 3, EMAX = 8 };         /* of e4m3 */
enum { DOUBLE_BIAS = 1023, DOUBLE_MANTISSA = 52 }; /* of a double */
enum { E8M0_BIAS = 127 };

static const double LEAST_NORMAL = 0x1p-6, STEP = 0x1p-9; /* of e4m3: below the first, numbers are STEP apart */

/* Codes of normal numbers are the upper bits of the double with another bias, so rounding may carry into the exponent.
 */
uint8_t quantize_e4m3(double x)
{
    enum { DROPPED = DOUBLE_MANTISSA - MANTISSA };
    double a = fabs(x);
    uint8_t sign = signbit(x) ? SIGN : 0;
    uint64_t bits;

    if (a < LEAST_NORMAL)
        return sign | (uint8_t)nearbyint(a / STEP);
    if (a > quantize_value(LARGEST))
        return sign | LARGEST;
    memcpy(&bits, &a, sizeof bits);
    bits += ((uint64_t)1 << (DROPPED - 1)) - 1 + (bits >> DROPPED & 1);
    return sign | (uint8_t)((bits >> DROPPED) - ((DOUBLE_BIAS - BIAS) << MANTISSA));
}

double quantize_value(uint8_t code)
{
    uint64_t bits = (uint64_t)(code & ~SIGN & 0xff);
    double a;

    if (bits >> MANTISSA == 0) {
        a = (double)bits * STEP;
    } else {
        bits = (bits + ((DOUBLE_BIAS - BIAS) << MANTISSA)) << (DOUBLE_MANTISSA - MANTISSA);
        memcpy(&a, &bits, sizeof a);
    }
    return code & SIGN ? -a : a;
}

/* --- rows ----------------------------------------------------------------------------------------------------------
 */

static uint16_t bits_at(const void *row, int64_t i)
{
    uint16_t bits;

    memcpy(&bits, (const char *)row + 2 * i, sizeof bits);
    return bits;
}

static double number_at(const void *row, int64_t i)
{
    uint32_t bits = (uint32_t)bits_at(row, i) << 16;
    float x;

    memcpy(&x, &bits, sizeof x);
    return (double)x;
}

/* The largest magnitude; that of infinity and NaN is the largest of all.  Magnitudes have the order of their bits. */
static double largest(const void *row, int64_t begin, int64_t end)
{
    uint32_t most = 0;
    float x;

    for (int64_t i = begin; i < end; i++) {
        uint32_t a = bits_at(row, i) & 0x7fffu;
        most = a > most ? a : most;
    }
    most <<= 16;
    memcpy(&x, &most, sizeof x);
    return (double)x;
}

static void encode(const void *row, int64_t begin, int64_t end, double scale, uint8_t *code)
{
    for (int64_t i = begin; i < end; i++)
        code[i - begin] = quantize_e4m3(number_at(row, i) / scale);
}

static uint8_t block_scale(double most)
{
    int e = most > 0 ? ilogb(most) - EMAX : 0;

    return (uint8_t)(e < -E8M0_BIAS ? 0 : e + E8M0_BIAS);
}

static double scale_of(enum k3_dtype form, const void *scale, int64_t column)
{
    float x;

    if (form == K3_MXFP8)
        return ldexp(1, ((const uint8_t *)scale)[column / K3_MX_BLOCK] - E8M0_BIAS);
    memcpy(&x, scale, sizeof x);
    return (double)x;
}

int quantize_row(enum k3_dtype form, const void *row, int64_t cols, int64_t begin, int64_t end, uint8_t *code,
                 void *scale)
{
    double most = largest(row, 0, cols);

    if (!isfinite(most))
        return -1;
    if (form == K3_FP8_E4M3) {
        float x = most > 0 ? (float)(most / quantize_value(LARGEST)) : 1;
        memcpy(scale, &x, sizeof x);
        encode(row, begin, end, (double)x, code);
        return 0;
    }
    for (int64_t at = begin; at < end; at += K3_MX_BLOCK) {
        ((uint8_t *)scale)[(at - begin) / K3_MX_BLOCK] = block_scale(largest(row, at, at + K3_MX_BLOCK));
        encode(row, at, at + K3_MX_BLOCK, scale_of(form, scale, at - begin), code + (at - begin));
    }
    return 0;
}

/* --- errors --------------------------------------------------------------------------------------------------------
 */

void quantize_compare(enum k3_dtype form, const void *row, int64_t begin, int64_t end, const uint8_t *code,
                      const void *scale, struct quantize_error *e)
{
    for (int64_t i = begin; i < end; i++) {
        double x = number_at(row, i), d = x - quantize_value(code[i - begin]) * scale_of(form, scale, i - begin);
        e->norm2 += x * x;
        e->error2 += d * d;
        e->largest = fmax(e->largest, fabs(d));
    }
}

void quantize_error_add(struct quantize_error *e, const struct quantize_error *more)
{
    e->norm2 += more->norm2;
    e->error2 += more->error2;
    e->largest = fmax(e->largest, more->largest);
}

double quantize_relative(const struct quantize_error *e)
{
    return e->norm2 > 0 ? sqrt(e->error2 / e->norm2) : 0;
}
