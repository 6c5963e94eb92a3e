# X_AC_PMIX: PMIx tells an engine's ranks who they are and lets them exchange addresses (4.2 and 5.0).
AC_DEFUN([X_AC_PMIX],
    [X_AC_WITH_LIBRARY([pmix], [PMIX], [PMIx, to start ranks under srun --mpi=pmix], [pmix], [pmix.h], [PMIx_Init], [pmix])])
