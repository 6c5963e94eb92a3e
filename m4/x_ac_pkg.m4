# X_AC_PKG(VARIABLE, MODULES, DEBIAN-PACKAGE, WHAT-FOR)
#
# Find a required library by the first of the pkg-config MODULES that is there (the same library goes by
# several names on different systems).  Sets and substitutes VARIABLE_CFLAGS and VARIABLE_LIBS, or stops with
# the package to install.
AC_DEFUN([X_AC_PKG], [
    x_ac_pkg_found=no
    for x_ac_pkg_module in $2; do
        AS_IF([test $x_ac_pkg_found = no], [
            AC_MSG_CHECKING([for $x_ac_pkg_module])
            AS_IF([$PKG_CONFIG --exists $x_ac_pkg_module], [
                $1_CFLAGS=`$PKG_CONFIG --cflags $x_ac_pkg_module`
                $1_LIBS=`$PKG_CONFIG --libs $x_ac_pkg_module`
                x_ac_pkg_found=`$PKG_CONFIG --modversion $x_ac_pkg_module`])
            AC_MSG_RESULT([$x_ac_pkg_found])])
    done
    AS_IF([test $x_ac_pkg_found = no],
        [AC_MSG_ERROR([none of the pkg-config modules "$2" was found ($4): install $3, or set PKG_CONFIG_PATH])])
    AC_SUBST([$1_CFLAGS])
    AC_SUBST([$1_LIBS])
])
