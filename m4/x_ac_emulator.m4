# X_AC_EMULATOR: a C++17 compiler, for running the CUDA kernels' tests without a GPU (kernels/emu).  Sets CXX,
# EMULATOR_FLAGS and the conditional HAVE_EMULATOR; without a compiler, or with sanitizers, which take fibers for
# mistakes, these tests are not built.
AC_DEFUN([X_AC_EMULATOR], [
    AC_REQUIRE([X_AC_SANITIZER])
    have_emulator=no x_ac_emulator_summary=no
    EMULATOR_FLAGS=
    AC_LANG_PUSH([C++])
    x_ac_saved_CXXFLAGS=$CXXFLAGS
    CXXFLAGS="$CXXFLAGS -std=gnu++17"
    AC_MSG_CHECKING([for a C++17 compiler, to emulate a GPU in tests])
    AS_IF([test "x$enable_sanitizer" = xno], [
        AC_LINK_IFELSE([AC_LANG_PROGRAM([[
            #include <functional>
            #include <link.h>
            #include <ucontext.h>
            #include <sys/mman.h>
            template <class T> constexpr bool small() { if constexpr (sizeof(T) < 8) return true; else return false; }
            ]], [[std::function<int()> f = [] { return small<int>() ? memfd_create("x", 0) : 0; }; return f();]])],
            [have_emulator=yes x_ac_emulator_summary="yes ($CXX)"])])
    AC_MSG_RESULT([$have_emulator])
    AS_IF([test $have_emulator = yes], [
        AC_MSG_CHECKING([whether it finds places beside arrays and addresses that are not aligned])
        CXXFLAGS="$CXXFLAGS -fsanitize=bounds,alignment -fno-sanitize-recover=all"
        AC_LINK_IFELSE([AC_LANG_PROGRAM([], [[static int a[4]; return a[(long)&a % 4];]])],
            [AC_MSG_RESULT([yes])
             EMULATOR_FLAGS="-fsanitize=bounds,alignment -fno-sanitize-recover=all"],
            [AC_MSG_RESULT([no])])])
    CXXFLAGS=$x_ac_saved_CXXFLAGS
    AC_LANG_POP([C++])
    AC_SUBST([EMULATOR_FLAGS])
    AM_CONDITIONAL([HAVE_EMULATOR], [test $have_emulator = yes])
])
