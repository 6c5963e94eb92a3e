#!/bin/bash
# k3pack and what loads its packs: the same tokens as the checkpoint, stopped and gone on with, damaged and mended, FP8.
. "${top_srcdir:-$(dirname "$0")/..}/tests/tap.sh"

compare=$top_builddir/src/model/test/compare
model=$tmp/tiny-a
k3mkmodel "$top_srcdir/etc/models/tiny-a.json" "$model" >/dev/null || exit 1

# says CODE REGEX TITLE COMMAND... : COMMAND ends with CODE, and its last line on stderr matches.
says() {
    local code=$1 regex=$2 title=$3 status
    shift 3
    "$@" >"$tmp/stdout" 2>"$tmp/stderr"
    status=$?
    [[ $status == "$code" && $(tail -n 1 "$tmp/stderr") =~ $regex ]]
    result $? "$title" || diag "'$*' ended with $status: $(cat "$tmp/stdout" "$tmp/stderr")"
}
# tokens DIRECTORY [COMMAND...] : what the model there says, greedily.
tokens() { "${@:2}" k3run --model "$1" --temperature 0 --max-tokens 24 --output tokens --prompt-tokens 768,72,101,108,382,610; }

# --- usage

like "$(k3pack --help)" "--dense=FORM" "--help shows the options"
like "$(k3pack --usage)" "^Usage: k3pack" "--usage"
like "$(k3pack -V)" "^k3pack [0-9]" "-V"
says 2 "Try 'k3pack --help'" "no directory is a usage error" k3pack --model "$model" --tp 1
says 2 "Try 'k3pack --help'" "nor is a layout guessed" k3pack --model "$model" --out "$tmp/p"
says 2 "--rank '2x'|Try" "a rank that is no number" k3pack --model "$model" --out "$tmp/p" --tp 2 --rank 2x
says 2 "Try 'k3pack --help'" "a rank that the layout does not have" k3pack --model "$model" --out "$tmp/p" --tp 2 --rank 2
says 2 "--dense 'int8': bf16, fp8 or mxfp8" "a form that there is not" k3pack --model "$model" --out "$tmp/p" --tp 2 --dense int8
says 1 "/nowhere/config.json: " "a checkpoint that is not there" k3pack --model /nowhere --out "$tmp/p" --tp 1
says 1 "tiny-a: has a checkpoint: choose another directory" "its own directory" k3pack --model "$model" --out "$model" --tp 1

# --- the same tokens, without the checkpoint

wanted=$(tokens "$model")
like "$(k3pack -q --model "$model" --out "$tmp/one" --tp 1 --verify)" \
    "^rank 0 of tp=1: 14086656 bytes, 0 of them were there"$'\n'"rank 0 of tp=1: 14086656 bytes are what their hashes say$" \
    "a pack is written and read back"
mv "$model" "$tmp/away"
is "$(tokens "$tmp/one")" "$wanted" "k3run takes the directory alone, and says what it says of the checkpoint"
is "$(k3run --model "$tmp/one" --tokenize <<<Hello)" "$(k3run --model "$tmp/away" --tokenize <<<Hello)" "its tokenizer is there"
mv "$tmp/away" "$model"
says 1 "k3pack.json: is of another model, layout or form" "another layout takes another directory" \
    k3pack --model "$model" --out "$tmp/one" --tp 2

if command -v mpirun >/dev/null && grep -q '^#define HAVE_MPI 1' "$top_builddir/config.h"; then
    is "$(mpi 2 k3pack -q --model "$model" --out "$tmp/two" --tp 2 | sort)" \
        "rank 0 of tp=2: 7450112 bytes, 0 of them were there"$'\n'"rank 1 of tp=2: 7450112 bytes, 0 of them were there" \
        "two processes pack a rank each"
    is "$(tokens "$tmp/two" mpi 2)" "$(tokens "$model" mpi 2)" "two ranks say the same from their packs"
    is "$(mpi 2 k3pack -q --model "$model" --out "$tmp/three" --tp 3 | sed 's/:.*//' | sort | tr '\n' ' ')" \
        "rank 0 of tp=3 rank 1 of tp=3 rank 2 of tp=3 " "two processes share three ranks out"
    like "$(mpi 2 k3run --model "$tmp/three" --prompt-tokens 1 --max-tokens 1 2>&1)" \
        "three/k3pack.json: layout is tp=3, not tp=2: start 3 ranks with it, or run k3pack --layout tp=2 into another directory" \
        "which two cannot load"
else
    k3pack -q --model "$model" --out "$tmp/two" --tp 2 >/dev/null
    skip 4 "no MPI"
fi

# --- stages and groups of experts

k3pack -q --model "$model" --out "$tmp/four" --layout tp=2,pp=2,ep=2 >/dev/null
if command -v mpirun >/dev/null && grep -q '^#define HAVE_MPI 1' "$top_builddir/config.h"; then
    is "$(mpi 4 k3run --layout tp=2,pp=2,ep=2 --model "$tmp/four" --temperature 0 --max-tokens 24 --output tokens \
        --prompt-tokens 768,72,101,108,382,610)" "$wanted" "four ranks say the same from theirs"
    like "$(mpi 4 k3run --model "$tmp/four" --prompt-tokens 1 --max-tokens 1 2>&1)" \
        "layout is tp=2,pp=2,ep=2, not tp=4: start 4 ranks with it, or run k3pack --layout tp=4 into another directory" \
        "and not in another layout"
else
    skip 2 "no MPI"
fi
says 1 "ep=3: the 4 ranks of a stage do not form 3 groups" "a layout that there is not" \
    k3pack -q --model "$model" --out "$tmp/odd" --layout tp=4,ep=3

# --- stopped

again() { k3pack -q --model "$model" --out "$tmp/again" --tp 2 "$@"; }
K3_FAULT=pack-dies:1 again --rank 0 >/dev/null 2>&1
is $? 137 "a k3pack is killed"
says 1 "again/rank0.json: is missing: run k3pack --layout tp=2 --rank 0" "what it left is no pack" \
    k3pack --verify --out "$tmp/again"
like "$(again --rank 0)" "^rank 0 of tp=2: 7450112 bytes, [1-9][0-9]* of them were there$" "the next one keeps what it wrote"
ok "and both make what one would have made" cmp "$tmp/two/rank0.k3pack" "$tmp/again/rank0.k3pack"
is "$(find "$tmp/again" -name '*.partial' -o -name '*.hashes')" "" "nothing else stays"
says 1 "rank1.json: is missing: run k3pack --layout tp=2 --rank 1" "a rank that is not packed is named" \
    k3pack --verify --out "$tmp/again"
K3_FAULT=pack-disk-full:2 says 1 "rank1.k3pack[.a-z]*: byte [0-9]*: No space left on device" "a full disk is said" again --rank 1
ok "and with room it goes on" again
if mkdir "$tmp/small" && mount -t tmpfs -o size=8m k3small "$tmp/small" 2>/dev/null; then
    at_exit umount "$tmp/small"
    says 1 "small: has 0.01 GB left, and 2 rank\\(s\\) of tp=2 take 0.01 GB more" "a disk that is too small is known before" \
        k3pack -q --model "$model" --out "$tmp/small" --tp 2
    umount "$tmp/small"
else
    skip 1 "may not mount a small file system"
fi

# --- damaged

# flip FILE BYTE : one bit of it.
flip() {
    local byte
    byte=$(od -An -tu1 -j "$2" -N 1 "$1")
    printf '%b' "$(printf '\\x%02x' $((byte ^ 4)))" | dd of="$1" bs=1 seek="$2" conv=notrunc status=none
}
flip "$tmp/one/rank0.k3pack" 9000000
damaged="one/rank0.k3pack: block 8 \\(bytes 8388608 to 9437183, language_model.* is not what its hash says: k3pack --layout tp=1 --rank 0 mends it"
says 1 "$damaged" "a bit that has turned over is refused" k3run --model "$tmp/one" --prompt-tokens 1 --max-tokens 1
says 1 "$damaged" "and found without an engine" k3pack --verify --out "$tmp/one"
ok "--no-verify does not look" k3run --no-verify --model "$tmp/one" --prompt-tokens 1 --max-tokens 1
like "$(k3pack -q --model "$model" --out "$tmp/one" --tp 1)" "^rank 0 of tp=1: 14086656 bytes, 8388608 of them were there$" \
    "k3pack writes that block and its 7 neighbours again"
ok "and it is whole" k3pack -q --verify --out "$tmp/one"
truncate -s -1 "$tmp/one/rank0.k3pack"
says 1 "rank0.k3pack: has 14086655 bytes, not 14086656: k3pack --layout tp=1 --rank 0 mends it" "one that is cut short" \
    k3run --model "$tmp/one" --prompt-tokens 1 --max-tokens 1
cp "$tmp/two/rank0.json" "$tmp/one/rank0.json"
says 1 "one/rank0.json: pack is not what k3pack.json says: it is from another directory" "a manifest from elsewhere" \
    k3run --model "$tmp/one" --prompt-tokens 1 --max-tokens 1
ok "k3pack mends that, too" k3pack -q --model "$model" --out "$tmp/one" --tp 1 --verify
echo ' ' >>"$tmp/one/config.json"
says 1 "k3pack.json: model is not the hash of the config.json there" "a config.json that was changed" \
    k3run --model "$tmp/one" --prompt-tokens 1 --max-tokens 1

# --- dense formats
#
# Quantising makes each product wrong by the relative error of its matrix, which the manifest has, more or less: errors of
# different matrices are independent, and so are those of a product's terms.  What a product adds to the residual stream is a
# part of it, so an error reaches the logits as a share that is no larger, and squares add: the root of their sum is about
# what the logits are wrong by.  Twice of it leaves room for tokens that go to other experts.

# error_of MANIFEST : the root of the sum of squares.
error_of() { awk -F'[:,]' '/"relative"/ { s += $2 * $2 } END { print sqrt(s) }' "$1"; }
ids=$(seq -s, 3 7 450)
logits() { k3run --model "$1" --prompt-tokens "$ids" --dump-logits "$1.logits"; }
close_to() { "$compare" relative "$(awk -v e="$2" 'BEGIN { print 2 * e }')" "$tmp/$1.logits" logits "$model.logits" logits; }

logits "$model" >/dev/null
for dense in fp8 mxfp8; do
    k3pack -q --model "$model" --out "$tmp/$dense" --tp 1 --dense $dense >"$tmp/table"
    like "$(grep lm_head "$tmp/table")" "^lm_head.weight +1 +0.02[0-9]+ +0.0[0-9]+$" "$dense: the table has each kind's error"
    is "$(grep -c -e router -e kv_b -e embed -e norm "$tmp/table")" 0 "$dense: none of what stays"
    ok "$dense: it loads" logits "$tmp/$dense"
    ok "$dense: the logits are wrong by what the weights are" close_to $dense "$(error_of "$tmp/$dense/rank0.json")"
    fails 1 "$dense: and not by nothing" close_to $dense 0.01
done
k3pack -q --model "$model" --out "$tmp/fp8-2" --tp 2 --dense fp8 >/dev/null
if command -v mpirun >/dev/null && grep -q '^#define HAVE_MPI 1' "$top_builddir/config.h"; then
    is "$(tokens "$tmp/fp8-2" mpi 2)" "$(tokens "$tmp/fp8")" "fp8: two ranks have the weights of one"
else
    skip 1 "no MPI"
fi
done_testing
