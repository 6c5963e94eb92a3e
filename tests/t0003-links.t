#!/bin/bash
# Programs of the login node need no MPI, PMIx, CUDA or NCCL, neither themselves nor through a library.
. "${top_srcdir:-$(dirname "$0")/..}/tests/tap.sh"
need ldd

engine_libraries='libmpi|libpmix|libcuda|libnccl|libcublas'
# linked PROGRAM : which of them it loads.
linked() { ldd "$(command -v "$1")" | grep -oE "($engine_libraries)[^ ]*"; }

for program in k3submit k3attach k3queue k3cancel k3info k3queued k3mkmodel k3plan; do
    ok "$program is there" command -v "$program"
    is "$(linked "$program")" "" "$program links no library of the engine"
done

if grep -q '^#define HAVE_MPI 1' "$top_builddir/config.h"; then
    like "$(linked k3served)" "libmpi" "k3served does, so the look is a real one"
else
    skip 1 "built without MPI"
fi
done_testing
