#!/bin/bash
# Every shell script of the tree is clean under shellcheck.
. "${top_srcdir:-$(dirname "$0")/..}/tests/tap.sh"
need shellcheck

cd "$top_srcdir" || exit 1
mapfile -t scripts < <(grep -lE '^(#!/bin/(ba)?sh|# shellcheck shell=)' autogen.sh .ci/* contrib/* etc/*/* slurm/* tests/*.t tests/*.sh tests/bench/* 2>/dev/null)
for script in "${scripts[@]}"; do
    ok "$script" shellcheck --external-sources "$script"
done
done_testing
