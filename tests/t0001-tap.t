#!/bin/bash
# The helpers of tap.sh themselves: a test that fails must say so.
# shellcheck disable=SC2016 # the scripts in single quotes expand their variables themselves
. "${top_srcdir:-$(dirname "$0")/..}/tests/tap.sh"

# script TEXT : run TEXT as a test script of its own; sets $output, $status.
script() {
    printf '. "%s/tests/tap.sh"\n%s\n' "$top_srcdir" "$1" >"$tmp/script"
    output=$(top_srcdir=$top_srcdir bash "$tmp/script" 2>&1)
    status=$?
    kept=$(sed -n 's/^# files are kept in //p' <<<"$output")
    [[ ! $kept ]] || rm -rf "$kept"
}

script 'ok one true; is a a two; like abc b three; fails 3 four bash -c "exit 3"; done_testing'
is "$status" 0 "a script whose tests pass ends with 0"
is "$output" $'ok 1 - one\nok 2 - two\nok 3 - three\nok 4 - four\n1..4' "its output is TAP with the plan last"

for bad in 'ok x false' 'is a b x' 'like abc z x' 'fails 3 x true'; do
    script "$bad; done_testing"
    like "$status $output" $'^1 not ok 1 - x\n' "'$bad' fails"
done

script 'plan 2; ok one true; done_testing'
is "$status" 1 "fewer tests than planned is a failure"

script 'need no-such-program; ok one false; done_testing'
is "$status $output" "0 1..0 # SKIP no-such-program is not installed" "a missing program skips the script"

script 'skip 2 "no reason"; done_testing'
is "$output" $'ok 1 # SKIP no reason\nok 2 # SKIP no reason\n1..2' "skip counts"

script 'start d echo "k3d[1]: err: boom"; wait $pid; done_testing'
like "$output" 'not ok 1 - no unexpected error' "an error in a log is found"

script 'start d echo "k3d[1]: err: boom"; wait $pid; expect_error boom; done_testing'
is "$status" 0 "an expected error in a log is none"

script 'plant_secret; start d echo "got $secret"; wait $pid; done_testing'
like "$output" 'not ok 2 - no log holds prompt text' "prompt text in a log is found"

script 'start d sleep 600; echo "# $pid"; echo "# $tmp"; ok one true; done_testing'
mapfile -t lines <<<"$output"
fails 1 "a process that was started is ended" kill -0 "${lines[0]#\# }"
fails 1 "the directory of a script that passed is removed" test -e "${lines[1]#\# }"

(sleep 0.2; touch "$tmp/late") &
ok "wait_for sees what comes later" wait_for 5 test -e "$tmp/late"
fails 1 "wait_for gives up" wait_for 0 test -e "$tmp/never"

done_testing
