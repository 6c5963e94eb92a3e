#!/bin/bash
# The model computes what the recorded vectors say, on both backends, for every split over ranks and steps.
. "${top_srcdir:-$(dirname "$0")/..}/tests/tap.sh"
. "$top_srcdir/tests/vectors.sh"

most=1e-4
greedy_prompt=$("$compare" ids "$vectors" greedy.prompt)
greedy_tokens=$("$compare" ids "$vectors" greedy.tokens)

# agrees TITLE COMMAND... : k3run, started by COMMAND, gives everything that was recorded.
agrees() {
    local title=$1 l
    shift
    ok "$title: runs the short prompt" "$@" --model "$model" --prompt-tokens "$short" \
        --dump-logits "$tmp/short" --dump-hidden "$tmp/hidden"
    close_to "$title: short logits" relative $most "$tmp/short" logits "$vectors" short.logits
    for l in 0 1 2 3 4 5 6 7 8; do
        close_to "$title: hidden state after layer $l" relative $most "$tmp/hidden" hidden.$l "$vectors" short.hidden.$l
    done
    ok "$title: runs the long prompt" "$@" --model "$model" --prompt-tokens "$long" --dump-logits "$tmp/long"
    close_to "$title: long logits" rows $most "$tmp/long" logits "$vectors" long.last_logits long.last_positions
    close_to "$title: long likeliest tokens" argmax "$tmp/long" logits "$vectors" long.argmax
    close_to "$title: long logsumexp" logsumexp $most "$tmp/long" logits "$vectors" long.logsumexp
    is "$("$@" --model "$model" --prompt-tokens "$greedy_prompt" --max-tokens 64 --temperature 0 --ignore-eos \
        --output tokens)" "$greedy_tokens" "$title: 64 greedy tokens"
    rm -f "$tmp/short" "$tmp/hidden" "$tmp/long"
}

agrees "cpu" k3run
agrees "cpu, 3 threads" k3run --threads 3
agrees "ref" k3run --backend ref
for chunk in 1 7 64 128 200; do
    agrees "prefill in steps of $chunk" k3run --prefill-chunk $chunk
done

while read -r line; do
    [[ $line == "ok "* ]]
    result $? "${line#*ok }"
done < <("$top_builddir/src/model/test/steps" "$model" cpu "$long" || echo "not ok steps ended with $?")

check_layers() { k3run --check-layers ref --model "$model" --prompt-tokens "$short" >"$tmp/layers"; }
ok "layers are compared one by one" check_layers
is "$(awk '$1 == "layer" && $4 < 1e-5' "$tmp/layers" | wc -l)" 9 "each layer as the reference's"

fails 1 "rounding to BF16 would be noticed" \
    "$compare" relative $most "$vectors" short.logits_bf16_run "$vectors" short.logits

# A config without quantization_config: the experts are BF16, and backends and ranks agree on what they say.
sed 's/"quantization_config"/"nothing"/' "$top_srcdir/etc/models/tiny-a.json" >"$tmp/bf16.json"
k3mkmodel "$tmp/bf16.json" "$tmp/bf16" >/dev/null || exit 1
dump_bf16() { "${@:2}" --model "$tmp/bf16" --prompt-tokens "$short" --dump-logits "$tmp/$1"; }
ok "BF16 experts: ref" dump_bf16 bf16.ref k3run --backend ref
ok "BF16 experts: cpu" dump_bf16 bf16.cpu k3run
close_to "BF16 experts: both alike" relative $most "$tmp/bf16.cpu" logits "$tmp/bf16.ref" logits
fails 1 "and unlike those of MXFP4" "$compare" relative $most "$tmp/bf16.ref" logits "$vectors" short.logits

if command -v mpirun >/dev/null && grep -q '^#define HAVE_MPI 1' "$top_builddir/config.h"; then
    for ranks in 1 2 3 4; do
        agrees "tp $ranks" mpi $ranks k3run
    done
    agrees "tp 4, prefill in steps of 7" mpi 4 k3run --prefill-chunk 7
    # 4 heads and 4 blocks of inner width: two ranks get none.
    agrees "tp 6, more ranks than heads" mpi 6 k3run
    ok "BF16 experts: tp 3" dump_bf16 bf16.tp3 mpi 3 k3run
    close_to "BF16 experts: tp 3 as one rank" relative $most "$tmp/bf16.tp3" logits "$tmp/bf16.ref" logits
else
    skip 8 "no MPI"
fi
done_testing
