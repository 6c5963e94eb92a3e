#!/bin/bash
# The model on a GPU: its logits as near to fp32 as a run in BF16 is expected to be, each layer as the CPU's, the same bits
# every time and in any company.
. "${top_srcdir:-$(dirname "$0")/..}/tests/tap.sh"

grep -q '^#define HAVE_CUDA 1' "$top_builddir/config.h" || skip_all "built without CUDA"
gpus=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU') || skip_all "this machine shows no GPU"
. "$top_srcdir/tests/vectors.sh"

k3mkmodel "$top_srcdir/etc/models/tiny-b.json" "$tmp/tiny-b" >/dev/null || exit 1

# The recorded run in BF16 is off by so much; half as much again is allowed.
bf16=$("$compare" relative 1 "$vectors" short.logits_bf16_run "$vectors" short.logits 2>&1 | grep -oE '[0-9.]+e[-+]?[0-9]+|[0-9]+\.[0-9]+' | head -1)
most=$(awk -v x="$bf16" 'BEGIN { print 1.5 * x }')
diag "the recorded BF16 run differs by $bf16; up to $most is allowed"

# agrees TITLE COMMAND...
agrees() {
    local title=$1
    shift
    ok "$title: runs the short prompt" "$@" --model "$model" --prompt-tokens "$short" \
        --dump-logits "$tmp/short"
    close_to "$title: short logits" relative "$most" "$tmp/short" logits "$vectors" short.logits
    ok "$title: runs the long prompt" "$@" --model "$model" --prompt-tokens "$long" --dump-logits "$tmp/long"
}

# layers TITLE MODEL IDS : every layer, given what the CPU's layer before it gave, is off by a few roundings to BF16 (2^-8),
# each of which may also put one expert in the place of another.
check_layers() { k3run --backend cuda --check-layers cpu --model "$1" --prompt-tokens "$2" >"$tmp/layers"; }
layers() {
    ok "$1: every layer is compared" check_layers "$2" "$3"
    diag "$1: $(sort -g -k4 "$tmp/layers" | tail -n 1), the worst of $(wc -l <"$tmp/layers")"
    is "$(awk '!($4 < 16 / 256)' "$tmp/layers")" "" "$1: layer by layer as the CPU's"
}
layers "tiny-a" "$model" "$long"

agrees "cuda" k3run --backend cuda
cp "$tmp/long" "$tmp/first"
for _ in 1 2 3; do
    k3run --backend cuda --model "$model" --prompt-tokens "$long" --dump-logits "$tmp/again"
    ok "the same bits again" cmp "$tmp/first" "$tmp/again"
done
for chunk in 1 64 200; do
    agrees "prefill in steps of $chunk" k3run --backend cuda --prefill-chunk $chunk
done
while read -r line; do
    [[ $line == "ok "* ]]
    result $? "${line#*ok }"
done < <("$top_builddir/src/model/test/steps" "$model" cuda "$long" "$most" || echo "not ok steps ended with $?")

# tiny-b against the CPU backend, whose exactness other tests show.
ids=$(seq -s, 1 150)
layers "tiny-b" "$tmp/tiny-b" "$ids"

if ((gpus > 1)) && command -v mpirun >/dev/null; then
    agrees "tp 2 over NCCL" mpi 2 k3run --backend cuda
else
    skip 1 "one GPU, or no mpirun: NCCL is not tried"
fi
done_testing
