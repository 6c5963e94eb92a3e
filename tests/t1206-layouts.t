#!/bin/bash
# Stages of a pipeline and groups that share out experts compute what the ranks of one stage do.
. "${top_srcdir:-$(dirname "$0")/..}/tests/tap.sh"
need_mpi
. "$top_srcdir/tests/vectors.sh"

most=1e-4
greedy_prompt=$("$compare" ids "$vectors" greedy.prompt)
greedy_tokens=$("$compare" ids "$vectors" greedy.tokens)

# run LAYOUT OPTION... : k3run on as many ranks as the layout has.
run() {
    local layout=$1 tp=1 pp=1
    [[ $layout =~ tp=([0-9]+) ]] && tp=${BASH_REMATCH[1]}
    [[ $layout =~ pp=([0-9]+) ]] && pp=${BASH_REMATCH[1]}
    shift
    mpi $((tp * pp)) k3run --model "$model" --layout "$layout" "$@"
}
greedy() { run "$1" --prompt-tokens "$greedy_prompt" --max-tokens 64 --temperature 0 --ignore-eos --output tokens "${@:2}"; }

# The logits of tensor parallel ranks alone, for those of stages to be the same to the bit.
for tp in 1 2 3; do
    run tp=$tp --prompt-tokens "$long" --dump-logits "$tmp/tp=$tp" || exit 1
done

# agrees LAYOUT : everything that was recorded.
agrees() {
    local layout=$1 alone=${1%%,*}
    ok "$layout: runs the short prompt" run "$layout" --prompt-tokens "$short" --dump-logits "$tmp/short"
    close_to "$layout: short logits" relative $most "$tmp/short" logits "$vectors" short.logits
    ok "$layout: runs the long prompt" run "$layout" --prompt-tokens "$long" --dump-logits "$tmp/long"
    close_to "$layout: long logits" rows $most "$tmp/long" logits "$vectors" long.last_logits long.last_positions
    close_to "$layout: long likeliest tokens" argmax "$tmp/long" logits "$vectors" long.argmax
    [[ $layout == *ep* ]] || ok "$layout: the bits of $alone" cmp "$tmp/long" "$tmp/$alone"
    is "$(greedy "$layout")" "$greedy_tokens" "$layout: 64 greedy tokens"
    rm -f "$tmp/short" "$tmp/long"
}

# 9 layers, blocks of 4 of them between snapshots; 16 experts of 4 blocks of inner width.
for layout in tp=1,pp=2 tp=1,pp=3 tp=2,pp=2 tp=3,pp=2 tp=1,pp=6; do
    agrees "$layout"
done
for layout in tp=2,ep=2 tp=3,ep=3 tp=4,ep=2 tp=4,ep=4 tp=6,ep=2 tp=6,ep=3; do
    agrees "$layout"
done
for layout in tp=2,pp=2,ep=2 tp=2,pp=3,ep=2 tp=3,pp=2,ep=3; do
    agrees "$layout"
done

# The order of pp and ep does not matter, nor the size of a prompt's pieces to the tokens.
is "$(greedy pp=2,ep=2,tp=2 --prefill-chunk 7)" "$greedy_tokens" "prefill in steps of 7"
is "$(greedy tp=2,pp=2 -n 2 2>/dev/null)" "$greedy_tokens"$'\n'"$greedy_tokens" "two answers from one prompt"

# As t1201-model.t does for one rank: batch mates change no bit.
for layout in tp=2,ep=2 tp=2,pp=2 tp=3,ep=3; do
    ranks=$((${layout:3:1} * ($([[ $layout == *pp=2 ]] && echo 2 || echo 1))))
    while read -r line; do
        [[ $line == "ok "* ]]
        result $? "$layout: ${line#*ok }"
    done < <(mpi $ranks "$top_builddir/src/model/test/steps" "$model" cpu "$long" $most "$layout" ||
        echo "not ok steps ended with $?")
done

check_layers() { run tp=2,ep=2 --check-layers ref --prompt-tokens "$short" >"$tmp/layers"; }
ok "layers are compared one by one where each rank has all" check_layers
is "$(awk '$1 == "layer" && $4 < 1e-5' "$tmp/layers" | wc -l)" 9 "each layer as the reference's"

# --- what is refused

# refuses REGEX TITLE RANKS OPTION...
refuses() {
    fails 1 "$2" mpi "$3" k3run --model "$model" --prompt-tokens 1,2 "${@:4}"
    like "$(mpi "$3" k3run --model "$model" --prompt-tokens 1,2 "${@:4}" 2>&1)" "$1" "and says why"
}
refuses "layout tp=2,pp=2 is one of 4 ranks, but the job has 3" "other ranks than the layout has" 3 --layout tp=2,pp=2
refuses "ep=2: the 3 ranks of a stage do not form 2 groups" "groups of unlike size" 3 --layout tp=3,ep=2
refuses "pp=10: the model has only 9 layers" "more stages than layers" 1 --layout pp=10
refuses "layout 'tp=2;pp=2': tp=N, pp=N and ep=N" "what is no layout" 1 --layout 'tp=2;pp=2'
refuses "not with pp=2" "hidden states of stages" 2 --layout pp=2 --dump-hidden "$tmp/hidden"
refuses "not with pp=2" "layers of stages" 2 --layout pp=2 --check-layers ref
done_testing
