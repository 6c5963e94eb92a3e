# X_AC_SANITIZER
#
# --enable-sanitizer=LIST compiles and links everything with -fsanitize=LIST (address,undefined or thread).  TEST_SLOWNESS
# is how many times as long tests then wait at most: engines compute about ten times as slowly, most of the rest does not.
AC_DEFUN([X_AC_SANITIZER], [
    AC_ARG_ENABLE([sanitizer],
        [AS_HELP_STRING([--enable-sanitizer=LIST], [build with -fsanitize=LIST, such as address,undefined])],
        [], [enable_sanitizer=no])
    TEST_SLOWNESS=1
    AS_CASE([$enable_sanitizer],
        [no], [x_ac_sanitizer_summary=no],
        [yes], [enable_sanitizer=address,undefined])
    AS_IF([test "x$enable_sanitizer" != xno], [
        x_ac_sanitizer_summary=$enable_sanitizer
        TEST_SLOWNESS=5
        CFLAGS="$CFLAGS -fsanitize=$enable_sanitizer -fno-omit-frame-pointer -fno-sanitize-recover=all"
        LDFLAGS="$LDFLAGS -fsanitize=$enable_sanitizer"
        AC_MSG_CHECKING([whether programs link with -fsanitize=$enable_sanitizer])
        AC_LINK_IFELSE([AC_LANG_PROGRAM([], [])], [AC_MSG_RESULT([yes])],
            [AC_MSG_RESULT([no])
             AC_MSG_ERROR([--enable-sanitizer=$enable_sanitizer: this compiler cannot link it])])])
    AC_SUBST([TEST_SLOWNESS])
])
