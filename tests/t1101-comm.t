#!/bin/bash
# Collectives over 1 to 4 MPI ranks give exactly what each rank can predict alone.
. "${top_srcdir:-$(dirname "$0")/..}/tests/tap.sh"
need_mpi
ranks=$top_builddir/src/comm/test/ranks

for n in 1 2 3 4; do
    checks=$(mpi $n "$ranks" $n)
    is $? 0 "$n ranks end well"
    while read -r line; do
        [[ $line == "ok "* ]]
        result $? "$n ranks: ${line#*ok }"
    done <<<"$checks"
done
is $tap_count 76 "every check was made"
fails 7 "abort ends every rank with its exit code" mpi 3 "$ranks" abort
done_testing
