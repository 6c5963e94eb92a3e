#!/bin/bash
# Every kernel takes the registers and shared memory that kernels/cuda/resources.txt records, and spills next to
# nothing.
. "${top_srcdir:-$(dirname "$0")/..}/tests/tap.sh"

export NVCC=${NVCC:-$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)}
[[ -x $NVCC ]] || skip_all "nvcc is not installed"
recorded=$top_srcdir/kernels/cuda/resources.txt

compile() { "$top_srcdir/contrib/cuda-resources" >"$tmp/now"; }
ok "all kernels compile for every GPU" compile
diag "$(grep -vc '^#' "$tmp/now") kernels"
is "$(awk '!/^#/ && $5 > 16' "$tmp/now")" "" "none spills more than four registers"
is "$(awk '!/^#/ && $6 > 99 * 1024' "$tmp/now")" "" "none asks for more shared memory than GB10 has"
if [[ $(head -n 1 "$tmp/now") == "$(head -n 1 "$recorded")" ]]; then
    diff "$recorded" "$tmp/now" | sed 's/^/# /'
    ok "registers and shared memory are as recorded" cmp -s "$recorded" "$tmp/now"
else
    skip 1 "recorded with another nvcc: $(head -n 1 "$recorded")"
fi
done_testing
