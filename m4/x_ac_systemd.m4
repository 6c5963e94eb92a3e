# X_AC_SYSTEMD
#
# --with-systemdsystemunitdir=DIR|yes|no: where k3queued.service goes.  The default is below the prefix, so that nothing is
# written outside of it; "yes" asks pkg-config for systemd's own directories, "no" installs none.  The directories of
# sysusers.d and tmpfiles.d follow.
AC_DEFUN([X_AC_SYSTEMD], [
    AC_ARG_WITH([systemdsystemunitdir],
        [AS_HELP_STRING([--with-systemdsystemunitdir=DIR|yes|no],
            [where the systemd unit goes; yes: where systemd looks (default: PREFIX/lib/systemd/system)])],
        [], [with_systemdsystemunitdir='${prefix}/lib/systemd/system'])
    sysusersdir='${prefix}/lib/sysusers.d'
    tmpfilesdir='${prefix}/lib/tmpfiles.d'
    AS_IF([test "x$with_systemdsystemunitdir" = xyes], [
        with_systemdsystemunitdir=`$PKG_CONFIG --variable=systemdsystemunitdir systemd`
        sysusersdir=`$PKG_CONFIG --variable=sysusersdir systemd`
        tmpfilesdir=`$PKG_CONFIG --variable=tmpfilesdir systemd`
        AS_IF([test -z "$with_systemdsystemunitdir"],
            [AC_MSG_ERROR([--with-systemdsystemunitdir=yes: pkg-config knows no systemd; name the directory])])])
    AC_SUBST([systemdsystemunitdir], [$with_systemdsystemunitdir])
    AC_SUBST([sysusersdir])
    AC_SUBST([tmpfilesdir])
    AM_CONDITIONAL([WITH_SYSTEMD_UNITS], [test "x$with_systemdsystemunitdir" != xno])
])
