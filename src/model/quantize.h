/* quantize.h - BF16 matrices in the dense formats K3_FP8_E4M3 and K3_MXFP8 (kernels.h)
 *
 * Both store e4m3 codes: 4 bits of exponent (bias 7), 3 of mantissa, at most 448, no infinity.  A number is divided by
 * its scale, exactly but for one rounding in double precision, and then rounded to the nearest code, ties to even; what
 * is above 448 becomes 448.
 *
 *   FP8    a float a row: max |row| / 448, so that the largest number is the largest code and the codes' whole range is
 *          used; half a step of the coarsest is 16 / 448 of the row's maximum
 *   MXFP8  a power of two a block of 32 columns, as OCP's Microscaling Formats (MX) v1.0, 6.3 have it:
 *          2^(floor(log2 max |block|) - 8), for 8 is the exponent of 448.  The block's maximum is then 256 to 512
 * scales large: where it is more than 448 of them it saturates, and loses up to an eighth.
 *
 * The scale of nothing but zeros is 1. */
#ifndef K3_MODEL_QUANTIZE_H
#define K3_MODEL_QUANTIZE_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/kernels.h"

/* Columns [begin, end) of a row of `cols` BF16 numbers (at any address): codes [end - begin], and a float or, of MXFP8,
 * which wants begin and end at its blocks, a byte a block.  The scale of FP8 is that of the whole row, so a number is
 * the same whatever columns are taken.  -1 when the row has a number that is not finite. */
int quantize_row(enum k3_dtype form, const void *row, int64_t cols, int64_t begin, int64_t end, uint8_t *code,
                 void *scale);

/* What became of numbers that were quantised. */
struct quantize_error {
    double error2, norm2; /* sums of squares: of the differences, of the numbers themselves */
    double largest;       /* difference */
};
void quantize_compare(enum k3_dtype form, const void *row, int64_t begin, int64_t end, const uint8_t *code,
                      const void *scale, struct quantize_error *e);
void quantize_error_add(struct quantize_error *e, const struct quantize_error *more);
/* Root of error2 / norm2: of matrices the relative error in the Frobenius norm.  0 of nothing. */
double quantize_relative(const struct quantize_error *e);

/* The code of a number that is not NaN, and the number of a code that is not NaN (0x7f and 0xff). */
uint8_t quantize_e4m3(double x);
double quantize_value(uint8_t code);

#endif
