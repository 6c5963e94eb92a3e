# X_AC_FUZZING
#
# --enable-fuzzing compiles everything for clang's libFuzzer with the address and undefined behaviour sanitizers; the
# programs of tests/fuzz are then linked with FUZZ_LDFLAGS and look for inputs of their own (contrib/fuzz).
AC_DEFUN([X_AC_FUZZING], [
    AC_ARG_ENABLE([fuzzing],
        [AS_HELP_STRING([--enable-fuzzing], [build the programs of tests/fuzz with libFuzzer (needs CC=clang)])],
        [], [enable_fuzzing=no])
    AS_IF([test "x$enable_fuzzing" != xno], [
        CFLAGS="$CFLAGS -fsanitize=fuzzer-no-link,address,undefined -fno-omit-frame-pointer -fno-sanitize-recover=all"
        FUZZ_LDFLAGS="-fsanitize=fuzzer,address,undefined"
        x_ac_fuzzing_ldflags=$LDFLAGS
        LDFLAGS="$LDFLAGS $FUZZ_LDFLAGS"
        AC_MSG_CHECKING([whether programs link with libFuzzer])
        AC_LINK_IFELSE([AC_LANG_SOURCE([[
            #include <stddef.h>
            #include <stdint.h>
            int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
            int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) { return !data && size; }]])],
            [AC_MSG_RESULT([yes])],
            [AC_MSG_RESULT([no])
             AC_MSG_ERROR([--enable-fuzzing: $CC cannot link libFuzzer: use CC=clang and its libclang-rt-dev])])
        LDFLAGS=$x_ac_fuzzing_ldflags])
    AC_SUBST([FUZZ_LDFLAGS])
    AM_CONDITIONAL([FUZZING], [test "x$enable_fuzzing" != xno])
])
