# X_AC_WITH_LIBRARY(NAME, VARIABLE, DESCRIPTION, PKG-CONFIG-MODULE, HEADER, FUNCTION, LIBRARY)
#
# --with-NAME=yes|no|DIR|guess for an optional library.  "guess" (the default) uses it when it is there; "yes" and
# DIR stop when it is not.  DIR is a prefix with include/ and lib/ (or lib64/).  With no DIR, pkg-config is asked
# first, then the compiler's own paths.  Sets have_NAME, x_ac_NAME_summary, VARIABLE_CFLAGS, VARIABLE_LIBS, the
# Automake conditional HAVE_VARIABLE and the macro HAVE_VARIABLE in config.h.
AC_DEFUN([X_AC_WITH_LIBRARY], [
    AC_ARG_WITH([$1], [AS_HELP_STRING([--with-$1=yes|no|DIR|guess], [$3 (default: guess)])], [], [with_$1=guess])
    have_$1=no
    x_ac_$1_summary=no
    AS_IF([test "x$with_$1" != xno], [
        x_ac_saved_CPPFLAGS=$CPPFLAGS x_ac_saved_LIBS=$LIBS
        AS_CASE([$with_$1],
            [yes|guess], [
                AS_IF([test -n "$4" && $PKG_CONFIG --exists $4], [
                    $2_CFLAGS=`$PKG_CONFIG --cflags $4`
                    $2_LIBS=`$PKG_CONFIG --libs $4`
                    x_ac_where="pkg-config $4 `$PKG_CONFIG --modversion $4`"
                ], [$2_CFLAGS= $2_LIBS="-l$7" x_ac_where="the compiler's paths"])],
            [   x_ac_lib=$with_$1/lib
                AS_IF([test -d "$with_$1/lib64"], [x_ac_lib=$with_$1/lib64])
                $2_CFLAGS="-I$with_$1/include"
                $2_LIBS="-L$x_ac_lib -Wl,-rpath,$x_ac_lib -l$7"
                x_ac_where=$with_$1])
        CPPFLAGS="$CPPFLAGS $$2_CFLAGS" LIBS="$$2_LIBS $LIBS"
        AC_MSG_CHECKING([for $6 of $1])
        # The compiler looks in its own paths too, so a DIR of which nothing is there would pass.
        AS_IF([test "x$with_$1" = xyes || test "x$with_$1" = xguess || test -d "$with_$1/include"], [
            AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <$5>]], [[void *volatile p = (void *)$6; (void)p;]])],
                [have_$1=yes])])
        AC_MSG_RESULT([$have_$1])
        CPPFLAGS=$x_ac_saved_CPPFLAGS LIBS=$x_ac_saved_LIBS
        AS_IF([test $have_$1 = yes], [
            x_ac_$1_summary="yes ($x_ac_where)"
            AC_DEFINE([HAVE_$2], [1], [Define when built with $1])
        ], [test "x$with_$1" != xguess],
            [AC_MSG_ERROR([--with-$1=$with_$1: <$5> and $6 were not found there; give its prefix, or --without-$1])],
            [$2_CFLAGS= $2_LIBS=])])
    AC_SUBST([$2_CFLAGS])
    AC_SUBST([$2_LIBS])
    AM_CONDITIONAL([HAVE_$2], [test $have_$1 = yes])
])
