# X_AC_CUDA: the CUDA Toolkit (13 or newer).  DIR is its prefix, as in --with-cuda=/usr/local/cuda; "guess" and
# "yes" look there and on PATH.  --with-cuda-arch lists the GPUs to build for: 90 for H100 and H200, 121a for GB10.  Sets
# have_cuda, NVCC, NVCC_ARCH_FLAGS, CUDA_CFLAGS, CUDA_LIBS and the conditional HAVE_CUDA.
AC_DEFUN([X_AC_CUDA], [
    AC_ARG_WITH([cuda], [AS_HELP_STRING([--with-cuda=yes|no|DIR|guess], [CUDA Toolkit, for the GPU backend (default: guess)])],
        [], [with_cuda=guess])
    AC_ARG_WITH([cuda-arch], [AS_HELP_STRING([--with-cuda-arch="N ..."], [compute capabilities to build for (default: "90 121a")])],
        [], [with_cuda_arch="90 121a"])
    NVCC_ARCH_FLAGS=
    for x_ac_arch in $with_cuda_arch; do
        NVCC_ARCH_FLAGS="$NVCC_ARCH_FLAGS -gencode arch=compute_$x_ac_arch,code=sm_$x_ac_arch"
    done
    have_cuda=no x_ac_cuda_summary=no
    AS_IF([test "x$with_cuda" != xno], [
        AS_CASE([$with_cuda],
            [yes|guess], [
                AC_PATH_PROG([NVCC], [nvcc], [], [$PATH:/usr/local/cuda/bin])
                AS_IF([test -n "$NVCC"], [x_ac_cuda_dir=`dirname "$NVCC"`/..], [x_ac_cuda_dir=/usr/local/cuda])],
            [NVCC=$with_cuda/bin/nvcc x_ac_cuda_dir=$with_cuda])
        x_ac_cuda_lib=$x_ac_cuda_dir/lib64
        AS_IF([test -d "$x_ac_cuda_lib"], [], [x_ac_cuda_lib=$x_ac_cuda_dir/lib])
        CUDA_CFLAGS="-I$x_ac_cuda_dir/include"
        CUDA_LIBS="-L$x_ac_cuda_lib -Wl,-rpath,$x_ac_cuda_lib -lcudart -lstdc++"
        x_ac_saved_CPPFLAGS=$CPPFLAGS x_ac_saved_LIBS=$LIBS
        CPPFLAGS="$CPPFLAGS $CUDA_CFLAGS" LIBS="$CUDA_LIBS $LIBS"
        AC_MSG_CHECKING([for the CUDA Toolkit])
        AS_IF([test -x "$NVCC"], [
            AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <cuda_runtime_api.h>]], [[int n; return cudaGetDeviceCount(&n);]])],
                [have_cuda=yes])])
        AC_MSG_RESULT([$have_cuda])
        CPPFLAGS=$x_ac_saved_CPPFLAGS LIBS=$x_ac_saved_LIBS
        AS_IF([test $have_cuda = yes], [
            x_ac_cuda_summary="yes ($NVCC, for $with_cuda_arch)"
            AC_DEFINE([HAVE_CUDA], [1], [Define when built with the CUDA Toolkit])
        ], [test "x$with_cuda" != xguess],
            [AC_MSG_ERROR([--with-cuda=$with_cuda: nvcc and libcudart were not found there; give the toolkit's prefix, or --without-cuda])],
            [CUDA_CFLAGS= CUDA_LIBS=])])
    AC_SUBST([NVCC])
    AC_SUBST([NVCC_ARCH_FLAGS])
    AC_SUBST([CUDA_CFLAGS])
    AC_SUBST([CUDA_LIBS])
    AM_CONDITIONAL([HAVE_CUDA], [test $have_cuda = yes])
])
