# X_AC_WARNINGS
#
# Warnings are errors while we develop; --disable-werror is for compilers we have not met.
AC_DEFUN([X_AC_WARNINGS], [
    AC_ARG_ENABLE([werror], [AS_HELP_STRING([--disable-werror], [do not stop at compiler warnings])],
        [], [enable_werror=yes])
    K3_WARN_CFLAGS="-Wall -Wextra -Wmissing-prototypes -Wstrict-prototypes -Wvla"
    AS_IF([test "x$enable_werror" != xno], [K3_WARN_CFLAGS="$K3_WARN_CFLAGS -Werror"])
    AC_SUBST([K3_WARN_CFLAGS])
])
