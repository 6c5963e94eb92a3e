# X_AC_NCCL: GPU ranks add their partial sums over NCCL.  Only asked about in a CUDA build.
AC_DEFUN([X_AC_NCCL], [
    AS_IF([test "x$have_cuda" = xno && test "x${with_nccl-guess}" = xguess], [with_nccl=no])
    x_ac_nccl_CPPFLAGS=$CPPFLAGS
    CPPFLAGS="$CPPFLAGS $CUDA_CFLAGS"
    X_AC_WITH_LIBRARY([nccl], [NCCL], [NCCL, for several GPU ranks], [nccl], [nccl.h], [ncclCommInitRank], [nccl])
    CPPFLAGS=$x_ac_nccl_CPPFLAGS
])
