#!/bin/bash
# k3plan says what a layout takes and how fast it is, on what basis, and checks itself against runs.
. "${top_srcdir:-$(dirname "$0")/..}/tests/tap.sh"
need k3plan

# values KEY OPTION... : what --json says of KEY, wherever it occurs.
values() {
    local key=$1
    shift
    k3plan --json "$@" | grep -oE "\"$key\": [^,]+" | cut -d' ' -f2- | xargs
}

k3plan >"$tmp/table"
is "$?, $(grep -c '^tp=16, 16 of 16 ranks, dense part bf16$' "$tmp/table")" "0, 1" "the real model on 16 nodes by default"
is "$(awk '$1 == "experts" && NF == 2 { print $2 }' "$tmp/table")" 90.404 "a rank holds its part of the experts"
like "$(grep -A1 '^total' "$tmp/table" | tail -n 1)" "^ +fits in 119.000$" "and says whether it fits"
is "$(awk '/^(memory_gb|reserve_gb|comm_gb|bandwidth_gbs|share|matrix_tflops|matrix_share|expert_tflops|step_rows|layer_us|cache_mb|phase_us|link_gbs) / {
        print $4 == "measured" || $4 == "assumed" || $3 == "measured" || $3 == "assumed" }' "$tmp/table" | sort | uniq -c | xargs)" \
    "13 1" "each value that it rests on is measured or assumed"

is "$(values exchanges --batch 1 --chunk 64), $(values phases --batch 1 --chunk 64)" "372 372, 651 651" "--json"
is "$(values step_ms --batch 1,8 --context 4096,100000 --chunk 512 --dense bf16,fp8 | wc -w)" 12 \
    "batches, chunks, contexts and forms are combined"
read -r bf16 _ fp8 _ < <(values bytes --batch 1 --dense bf16,fp8)
ok "FP8 reads less than BF16" awk -v a="$fp8" -v b="$bf16" 'BEGIN { exit !(0 < a && a < b) }'
is "$(values latency_ms --batch 1 --chunk 1 --set phase_us=20)" "13.02 13.02" "--set: 651 phases of 20 us"
is "$(values latency_ms --batch 1 --chunk 1 --exchange-us 73)" "27.156 27.156" "--exchange-us: 372 of 73 us"

memory() { k3plan "$@" | grep -A20 '^memory' | sed '/^$/,$d'; }
like "$(memory --layout tp=8,pp=2)" "rank 0 +rank 1-7 +rank 8-15"$'\n' "ranks of a stage hold the same, but for the logits that come back to the first"
like "$(memory --layout tp=15)" " rank 0-5 .* rank 12-14"$'\n' "15 ranks share unevenly"
like "$(memory --layout tp=15 --set memory_gb=111 | tail -n 1)" "too much .* fits in 111.000" \
    "of which some have too much"
is "$(k3plan --compare --nodes 16 | grep -oE '^tp=[^ ]+' | xargs)" \
    "tp=16 tp=16,ep=16 tp=8,pp=2 tp=4,pp=4 tp=2,pp=8 tp=1,pp=16" "--compare sets all layouts beside each other"
is "$(k3plan --compare --layout tp=16 --layout tp=8,pp=2 --dense bf16,fp8 | grep -c '^tp=')" 4 "or those that are given"

# --- runs
runs=$top_srcdir/etc/devices/h200-runs.json
k3plan --check --calibrate "$runs" "$runs" "${runs%-runs.json}-fp8-runs.json" >"$tmp/table"
is "$(grep -cE '^(bf16|fp8) ' "$tmp/table")" 18 "what an H200 was measured at"
is "$(awk '/the largest error is/ { print ($NF + 0 > 15 ? $NF : "at most 15 %") }' "$tmp/table")" "at most 15 %" \
    "calibrated on the first of these runs, all others are predicted within 15 %"
run() { printf '{"tp": 16, "rank": 0, "dense": "bf16", "context": 4096, "copy_GBps": 4240, "runs": [%s]}' "$1"; }
run '{"batch": 1, "exchange_us": 0, "ms_per_step": 7}' >"$tmp/b1.json"
run '{"batch": 8, "exchange_us": 10, "ms_per_step": 20}, {"batch": 1, "exchange_us": 73, "ms_per_step": 34.156, "exchanges": 371, "bytes_ideal": 1.05e10}' >"$tmp/more.json"
is "$(values predicted_ms --check --calibrate "$tmp/b1.json" "$tmp/b1.json")" 7.0 "a run calibrates the prediction"
k3plan --check --calibrate "$tmp/b1.json" "$tmp/more.json" >"$tmp/table"
like "$(grep ' 73.0 ' "$tmp/table")" " 34.156 +34.156 +[+-]0.0% +9.5[0-9]+ +10.500 +372/371 " "and with it the others are predicted"
like "$(grep '^layer_us' "$tmp/table")" "measured +on H200, .*/b1.json" "which says where it is from"
k3plan --calibrate "$tmp/b1.json" >"$tmp/table"
like "$(sed -n '/^GB10:/,$p' "$tmp/table")" " assumed .*layer_us +[0-9.]+ us +measured +on H200, " \
    "what was measured on one device goes into the plan for another"

# --- mistakes
run '{"batch": 1, "exchange_us": 0, "ms_per_step": 1}' >"$tmp/fast.json"
like "$(k3plan --calibrate "$tmp/fast.json" 2>&1)" "1.000 ms a step is less than copying" "an impossible run is refused"
like "$(k3plan --layout tp=32 2>&1)" "takes 32 ranks, and there are 16" "more ranks than nodes are refused"
fails 1 "so is a device that is not there" k3plan --device gb11
fails 1 "so is a value that is none of its" k3plan --set speed=3
fails 2 "a layout that is none is a usage error" k3plan --layout cp=2
fails 2 "so are runs without --check" k3plan "$tmp/b1.json"
fails 2 "and --check without runs" k3plan --check
done_testing
