#!/bin/bash
# k3mkmodel makes the same checkpoint everywhere, byte for byte, and nothing half made.
# shellcheck source=tests/tap.sh
. "${top_srcdir:-$(dirname "$0")/..}/tests/tap.sh"
need k3mkmodel sha256sum

models=$top_srcdir/etc/models
sum() { sha256sum <"$1" | cut -d' ' -f1; }
files() { (cd "$1" && echo *); }

sed 's/"vocab_size": 1024/"vocab_size": 1100/' "$models/tiny-a.json" >"$tmp/odd.json"

is "$(k3mkmodel --dry-run "$models/k3.json" "$tmp/k3")" "497052 tensors, 1559965606912 bytes" \
    "a dry run counts the tensors of Kimi K3"
ok "and writes nothing" [ ! -e "$tmp/k3" ]

is "$(k3mkmodel "$models/tiny-a.json" "$tmp/deep/a" 2>&1)" "1002 tensors, 14085248 bytes" \
    "tiny-a is made in a new directory"
is "$(sum "$tmp/deep/a/model.safetensors")" 9fbaf2c6f58dd8519a72d59d0b52e8589139f89934834312a250d30242796151 \
    "with the weights of the definition"
is "$(sum "$tmp/deep/a/config.json")" b859db4a3a2b312f5858b9933f4058795d97ec2678b8e81bbbd3abe807422b7c \
    "and its config"
ok "and the vocabulary of 768 base tokens" \
    cmp "$tmp/deep/a/tiktoken.model" "$top_srcdir/etc/tokenizer/toy-768.tiktoken"
is "$(tr -d '\n ' <"$tmp/deep/a/tokenizer_config.json" | grep -o '"771":{[^}]*}')" \
    '"771":{"content":"<|open|>","lstrip":false,"normalized":false,"rstrip":false,"single_word":false,"special":false}' \
    "and the named special tokens at their places"
is "$(files "$tmp/deep/a")" \
    "config.json model.safetensors tiktoken.model tokenizer_config.json" "and nothing else"

ok "tiny-b is made" k3mkmodel "$models/tiny-b.json" "$tmp/b"
is "$(sum "$tmp/b/model.safetensors")" 3863f0bf3f44166271703092b667e76cfac2f3047182b7d18dad78a39f543cb2 \
    "with the weights of the definition"

ok "an earlier checkpoint is replaced" k3mkmodel "$models/tiny-a.json" "$tmp/b"
is "$(sum "$tmp/b/model.safetensors")" 9fbaf2c6f58dd8519a72d59d0b52e8589139f89934834312a250d30242796151 \
    "by the new one"
ok "also by one without a tokenizer" k3mkmodel "$tmp/odd.json" "$tmp/b"
is "$(files "$tmp/b")" "config.json model.safetensors" "whose directory keeps none"
touch "$tmp/b/notes"
like "$(k3mkmodel "$models/tiny-a.json" "$tmp/b" 2>&1)" "holds notes, which is not from k3mkmodel" \
    "somebody's directory is left alone"

like "$(k3mkmodel "$tmp/odd.json" "$tmp/odd" 2>&1)" "no tokenizer written: there is no .*/toy-844.tiktoken" \
    "a vocabulary without a toy tokenizer is made without one, and says so"
is "$(files "$tmp/odd")" "config.json model.safetensors" "with the weights alone"

sed 's/"kv_lora_rank": 512/"kv_lora_rank": 256/' "$models/tiny-a.json" >"$tmp/bad.json"
like "$(k3mkmodel "$tmp/bad.json" "$tmp/bad" 2>&1)" "bad.json: text_config.kv_lora_rank is 256, but" \
    "an impossible config is refused by key"
ok "and nothing is written" [ ! -e "$tmp/bad" ]

# A limit on file size stands for the full disk: both end a write half way.
# shellcheck disable=SC2317 # called by fails
full() { (ulimit -f 1000 && trap '' XFSZ && k3mkmodel "$models/tiny-a.json" "$1"); }
fails 1 "a full disk fails" full "$tmp/full"
is "$(ls -A "$tmp/full")" "" "and leaves nothing behind"
fails 1 "over an earlier checkpoint too" full "$tmp/deep/a"
is "$(sum "$tmp/deep/a/model.safetensors")" 9fbaf2c6f58dd8519a72d59d0b52e8589139f89934834312a250d30242796151 \
    "which stays as it was"

fails 2 "arguments are needed" k3mkmodel
done_testing
