# X_AC_MPI: ranks without GPUs add their partial sums over MPI.
AC_DEFUN([X_AC_MPI],
    [X_AC_WITH_LIBRARY([mpi], [MPI], [MPI, for several ranks without GPUs], [ompi-c], [mpi.h], [MPI_Init_thread], [mpi])])
