# X_AC_CMOCKA: unit tests need cmocka; without it "make check" runs the TAP scripts alone and the summary says so.
AC_DEFUN([X_AC_CMOCKA], [
    AC_MSG_CHECKING([for cmocka])
    have_cmocka=no x_ac_cmocka_summary="no (install libcmocka-dev)"
    AS_IF([$PKG_CONFIG --exists cmocka], [
        have_cmocka=yes x_ac_cmocka_summary="yes (cmocka `$PKG_CONFIG --modversion cmocka`)"
        CMOCKA_CFLAGS=`$PKG_CONFIG --cflags cmocka`
        CMOCKA_LIBS=`$PKG_CONFIG --libs cmocka`])
    AC_MSG_RESULT([$have_cmocka])
    AC_SUBST([CMOCKA_CFLAGS])
    AC_SUBST([CMOCKA_LIBS])
    AM_CONDITIONAL([HAVE_CMOCKA], [test $have_cmocka = yes])
])
