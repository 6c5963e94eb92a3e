# X_AC_SIMD: whether the compiler builds for x86-64 and knows AVX2 with FMA, and AVX-512 with its parts F, VL, DQ and BW:
# the instructions of faster CPU backends that are chosen when the program runs.  Sets the conditionals HAVE_AVX2 and
# HAVE_AVX512.
AC_DEFUN([X_AC_SIMD], [
    X_AC_SIMD_SET([AVX2], [-mavx2 -mfma],
        [[__m256 a = _mm256_setzero_ps(); a = _mm256_fmadd_ps(a, a, a); return __builtin_cpu_supports("avx2") && _mm256_cvtss_f32(a) > 0;]])
    X_AC_SIMD_SET([AVX512], [-mavx512f -mavx512vl -mavx512dq -mavx512bw],
        [[__m512 a = _mm512_setzero_ps(); a = _mm512_fmadd_ps(a, a, a); return __builtin_cpu_supports("avx512bw") && _mm512_cvtss_f32(a) > 0;]])
])

# X_AC_SIMD_SET(NAME, FLAGS, PROGRAM)
AC_DEFUN([X_AC_SIMD_SET], [
    AC_MSG_CHECKING([for $1])
    x_ac_saved_CFLAGS=$CFLAGS CFLAGS="$CFLAGS $2"
    AC_COMPILE_IFELSE([AC_LANG_PROGRAM([[#include <immintrin.h>]], [$3])],
        [x_ac_simd=yes
         AC_DEFINE([HAVE_$1], [1], [Define when the $1 variant of the CPU backend is built])],
        [x_ac_simd=no])
    CFLAGS=$x_ac_saved_CFLAGS
    AC_MSG_RESULT([$x_ac_simd])
    AM_CONDITIONAL([HAVE_$1], [test $x_ac_simd = yes])
])
