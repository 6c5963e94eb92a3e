#!/bin/bash
# k3run --bench: what it prints, and the part of it that does not depend on the machine.
. "${top_srcdir:-$(dirname "$0")/..}/tests/tap.sh"

model=$tmp/tiny-a
k3mkmodel "$top_srcdir/etc/models/tiny-a.json" "$model" >/dev/null || exit 1

ok "--bench runs" bash -c "k3run --model '$model' --threads 1 --bench >'$tmp/table'"
like "$(grep '^# machine:' "$tmp/table")" "reads [0-9.]+ GB/s .*, fp32 FMA [0-9.]+ GFLOP/s" "the machine's rates"
is "$(awk '/^#phase/ { part++ } part == 1 && /^[a-z]/ { print $1, $2 }' "$tmp/table" | xargs)" \
    "prefill 1 decode 1 decode 2 decode 4 decode 8" "a line for the prompt and each batch"
is "$(awk '/^[a-z]/ { for (i = 4; i <= NF; i++) if ($i !~ /^[0-9]+([.][0-9]+)?$/) print }' "$tmp/table")" "" "of numbers"
# 8 layers have experts, 4 of them a token, each 3 matrices of 128 x 64 at 17/32 bytes.
is "$(awk '$1 == "decode" && $2 == 1 && $3 == "experts" { print $7 }' "$tmp/table")" 0.418 \
    "one token reads the experts it chose"
is "$(awk '$1 == "decode" && $3 == "linear" { print $7 }' "$tmp/table" | sort -u | wc -l)" 1 \
    "every batch reads the dense weights once"

says_json() { k3run --model "$model" --threads 1 --bench --json; }
like "$(says_json | tr -d ' \n')" \
    '^\{"version":.*"machine":\{"read_bytes_per_second":[0-9.e+]+,.*"batch_gain":.*"phases":\[\{"phase":"prefill".*\]\}$' \
    "--json"
fails 2 "--json alone is a usage error" k3run --model "$model" --json Hello
fails 2 "--bench takes no prompt" k3run --model "$model" --bench Hello


# --- loading

k3pack -q --model "$model" --out "$tmp/pack" --tp 2 >/dev/null
ok "k3bench load" bash -c "k3bench load --model '$tmp/pack' --rank 1 --rounds 3 --json '$tmp/load.json' >'$tmp/load'"
like "$(head -n 1 "$tmp/load")" "pack/rank1.k3pack: 0.007 GB, backend cpu" "says what it loads"
like "$(awk '/^ *[123] / { r = $3 / $2; print ($4 - r < 0.02 * r && r - $4 < 0.02 * r) }' "$tmp/load" | tr '\n' ' ')" "^1 1 1 $" \
    "a row a round, whose share is the ratio of both speeds"
like "$(tr -d ' \n' <"$tmp/load.json")" '^\{"backend":"cpu.*"beside_bytes":[0-9.e+]+,"bytes":7.45011e6,.*"share":[0-9.e-]+,"threads":1' "--json"
fails 1 "a rank that is not there" k3bench load --model "$tmp/pack" --rank 2
fails 1 "a checkpoint is no pack" k3bench load --model "$model"
fails 2 "no directory is a usage error" k3bench load

if command -v mpirun >/dev/null && grep -q '^#define HAVE_MPI 1' "$top_builddir/config.h"; then
    mpi 2 k3run --model "$model" --threads 1 --bench >"$tmp/table"
    is "$?, $(grep -c '^# machine' "$tmp/table"), $(grep -c 'ranks 2, tp=2, threads 1' "$tmp/table")" "0, 1, 1" \
        "two ranks measure together, and one prints"
else
    skip 1 "no MPI"
fi
done_testing
