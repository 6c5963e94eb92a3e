# X_AC_AVX2: whether the compiler builds for x86-64 and knows AVX2 and FMA, the instructions of a faster CPU backend that
# is chosen when the program runs.  Sets the conditional HAVE_AVX2.
AC_DEFUN([X_AC_AVX2], [
    AC_MSG_CHECKING([for AVX2 and FMA])
    x_ac_saved_CFLAGS=$CFLAGS CFLAGS="$CFLAGS -mavx2 -mfma"
    AC_COMPILE_IFELSE([AC_LANG_PROGRAM([[#include <immintrin.h>]],
        [[__m256 a = _mm256_setzero_ps(); a = _mm256_fmadd_ps(a, a, a); return __builtin_cpu_supports("avx2") && _mm256_cvtss_f32(a) > 0;]])],
        [have_avx2=yes
         AC_DEFINE([HAVE_AVX2], [1], [Define when the AVX2 variant of the CPU backend is built])],
        [have_avx2=no])
    CFLAGS=$x_ac_saved_CFLAGS
    AC_MSG_RESULT([$have_avx2])
    AM_CONDITIONAL([HAVE_AVX2], [test $have_avx2 = yes])
])
