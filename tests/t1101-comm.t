#!/bin/sh
# Collectives over 1 to 4 MPI ranks give exactly what each rank can predict alone.
ranks=../src/comm/test/ranks
checks=16

command -v mpirun >/dev/null || { echo "1..0 # SKIP mpirun is not installed"; exit 0; }
# Without MPI the program is a rank alone, and says so.
mpirun --version 2>/dev/null | grep -q 'Open MPI' || { echo "1..0 # SKIP mpirun is not Open MPI's"; exit 0; }
grep -q '^#define HAVE_MPI 1' ../config.h || { echo "1..0 # SKIP built without MPI"; exit 0; }
run() { OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 timeout 120 mpirun --oversubscribe "$@"; }

echo "1..$((4 * checks + 1))"
t=0
for n in 1 2 3 4; do
    out=$(run -n $n $ranks $n) || out="$out
not ok mpirun ended with $?"
    [ "$(echo "$out" | wc -l)" -eq $checks ] || echo "Bail out! $n ranks gave another number of checks: $out"
    while read -r line; do
        t=$((t + 1))
        case $line in
            "ok "*) echo "ok $t - $n ranks: ${line#ok }" ;;
            *) echo "not ok $t - $n ranks: ${line#not ok }" ;;
        esac
    done <<END
$out
END
done

run -n 3 $ranks abort >/dev/null 2>&1
status=$?
t=$((t + 1))
[ $status -eq 7 ] && echo "ok $t - abort ends every rank with its exit code" ||
    echo "not ok $t - abort ends every rank with its exit code (was $status)"
