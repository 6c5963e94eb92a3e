# shellcheck shell=bash disable=SC2154,SC2034 # tap.sh's variables, and ours for the script
# vectors.sh : what tiny-a was recorded to compute, for scripts that have sourced tap.sh.
#
# $vectors, the recorded tensors; $model, the checkpoint that they are of; $short and $long, two of their prompts.

vectors=$top_srcdir/tests/data/tiny-a.vectors.safetensors
compare=$top_builddir/src/model/test/compare
model=$tmp/tiny-a
k3mkmodel "$top_srcdir/etc/models/tiny-a.json" "$model" >/dev/null || exit 1

short=$("$compare" ids "$vectors" short.tokens) long=$("$compare" ids "$vectors" long.tokens)

# close_to TITLE ARGUMENT... : compare succeeds; the number goes to the log of the test.
close_to() {
    local title=$1 number status
    shift
    number=$("$compare" "$@" 2>&1)
    status=$?
    result $status "$title"
    diag "$title: $number"
}
