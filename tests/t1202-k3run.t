#!/bin/bash
# k3run's command line: prompts in, answers out, refusals.
. "${top_srcdir:-$(dirname "$0")/..}/tests/tap.sh"

model=$tmp/tiny-a
k3mkmodel "$top_srcdir/etc/models/tiny-a.json" "$model" >/dev/null || exit 1

# says CODE REGEX TITLE COMMAND... : COMMAND ends with CODE, prints nothing, and its first line on stderr matches.
says() {
    local code=$1 regex=$2 title=$3 status
    shift 3
    "$@" >"$tmp/stdout" 2>"$tmp/stderr"
    status=$?
    [[ $status == "$code" && ! -s $tmp/stdout && $(head -n 1 "$tmp/stderr") =~ $regex ]]
    result $? "$title" || diag "'$*' ended with $status: $(cat "$tmp/stdout" "$tmp/stderr")"
}

# --- usage

like "$(k3run --help)" "--prompt-tokens=ID" "--help shows the options"
like "$(k3run --usage)" "^Usage: k3run" "--usage"
like "$(k3run -V)" "^k3run [0-9]" "-V"
says 2 "^k3run: no prompt" "no prompt is a usage error" k3run --model "$model"
says 2 "^k3run: one at a time" "two prompts are one too many" k3run --model "$model" --tokenize Hello
says 2 "^k3run: --model DIR is missing" "no model" k3run Hello
says 2 "unrecognized option '--nonsense'" "an unknown option" k3run --nonsense
says 2 "^k3run: --max-tokens: '1x' is not a number" "a number that is none" k3run --model "$model" --max-tokens 1x Hello
says 2 "^k3run: top-p must be" "a top-p above 1" k3run --model "$model" --top-p 1.5 Hello
says 2 "^k3run: --prompt-tokens: token ids" "token ids with a hole" k3run --model "$model" --prompt-tokens 1,,2
says 2 "^k3run: --output: text or tokens" "an unknown output" k3run --model "$model" --output json Hello
says 2 "^k3run: --reasoning-effort: low" "an unknown effort" k3run --model "$model" --reasoning-effort much Hello

# --- text in: no weights are needed

mkdir "$tmp/tokenizer"
cp "$model"/tiktoken.model "$model"/tokenizer_config.json "$tmp/tokenizer"
is "$(printf 'Hello [EOS] <|open|>' | k3run --model "$tmp/tokenizer" --tokenize)" \
    "72,101,108,382,610,69,79,83,93,566,124,707,271,124,62" "--tokenize takes nothing for a control token"
is "$(k3run --model "$tmp/tokenizer" --tokenize </dev/null)" "" "--tokenize of nothing"
cat >"$tmp/request.json" <<'END'
{"messages": [{"role": "user", "content": "Hi"}]}
END
prompt='<|open|>message role="user"<|sep|>Hi<|close|>message<|sep|><|end_of_msg|>'
prompt+='<|open|>message role="assistant"<|sep|><|open|>think<|sep|>'
is "$(k3run --render "$tmp/request.json")" "$prompt" "--render prints the prompt"
is "$(k3run --render - <"$tmp/request.json")" "$prompt" "--render reads stdin"
ids=771,291,462,706,32,311,278,61,34,117,554,34,773,72,105,772,291,462,706,773,770
ids+=,771,291,462,706,32,311,278,61,34,389,397,754,34,773,771,355,260,107,773
is "$(k3run --model "$tmp/tokenizer" --render "$tmp/request.json" --output tokens)" $ids "--render prints the ids"
echo '{"messages": [{"role": "cook"}]}' >"$tmp/bad.json"
says 1 "^k3run: $tmp/bad.json: messages\[0\].role" "--render names file and key" k3run --render "$tmp/bad.json"

# --- sampling

run() { k3run --model "$model" --output tokens "$@"; }
chat=$(run --seed 5 --max-tokens 12 --reasoning-effort none Hi)
like "$chat" '^[0-9]+(,[0-9]+){11}$' "a chat gives as many ids as asked for"
is "$(run --seed 5 --max-tokens 12 --prompt-tokens $ids)" "$chat" "a chat is its rendered prompt"
is "$(run --seed 5 --max-tokens 12 --prefill-chunk 5 --prompt-tokens $ids)" "$chat" "the same seed in other steps"
[[ $(run --seed 6 --max-tokens 12 --prompt-tokens $ids) != "$chat" ]]
result $? "another seed gives another text"
greedy=$(run --temperature 0 --max-tokens 12 --prompt-tokens $ids)
is "$(run --top-k 1 --seed 9 --max-tokens 12 --prompt-tokens $ids)" "$greedy" "top-k 1 is greedy"
[[ $(run --seed 7 --max-tokens 12 Hi) != $(run --seed 7 --max-tokens 12 --system Sing. Hi) ]]
result $? "a system message makes a difference"

# Near uniform sampling meets a stop id soon; this seed does within 600 tokens.
endless=$(run --temperature 100 --top-p 1 --seed 1 --max-tokens 600 --ignore-eos --prompt-tokens $ids)
stopped=$(run --temperature 100 --top-p 1 --seed 1 --max-tokens 600 --prompt-tokens $ids)
like "$endless" "^$stopped,(769|770)," "an answer ends before the first stop id, unless told otherwise"
unlike='(^|,)(769|770)(,|$)'
[[ ! $stopped =~ $unlike ]]
result $? "no stop id is printed"

# --- text out

k3run --model "$model" --seed 5 --max-tokens 30 --show-reasoning Hi >"$tmp/stdout" 2>"$tmp/stderr"
is "$(cat "$tmp/stdout")" "" "reasoning is no answer"
[[ $(wc -c <"$tmp/stderr") -gt 20 ]]
result $? "--show-reasoning writes it to stderr"
is "$(k3run --model "$model" --seed 5 --max-tokens 30 Hi 2>&1)" "" "without, nobody sees it"
[[ $(k3run --model "$model" --seed 5 --max-tokens 30 --no-thinking Hi 2>/dev/null | wc -c) -gt 20 ]]
result $? "--no-thinking answers at once"
says 1 "^k3run: cannot write the output" "a full disk is noticed" \
    bash -c "k3run --model '$model' --max-tokens 3 --output tokens Hi >/dev/full"

# --- logits and ids need no tokenizer

mkdir "$tmp/bare"
cp "$model/config.json" "$model/model.safetensors" "$tmp/bare"
k3run --model "$tmp/bare" --prompt-tokens $ids --dump-logits "$tmp/bare/logits"
like "$? $(head -c 200 "$tmp/bare/logits" | tr '\0' ' ')" '^0 .*"logits":\{"dtype":"F32"' "--dump-logits without a tiktoken.model"
is "$(k3run --model "$tmp/bare" --output tokens --temperature 0 --max-tokens 12 --prompt-tokens $ids)" "$greedy" \
    "ids without a tiktoken.model"
says 1 "^k3run: $tmp/bare/tiktoken.model: " "text needs it" k3run --model "$tmp/bare" --prompt-tokens $ids

# --- refusals

says 1 "^k3run: /nonsense/config.json: " "a model that is not there" k3run --model /nonsense Hello
says 1 "prompt token 1, id 1024, is not in the vocabulary of 1024" "an id outside the vocabulary" \
    k3run --model "$model" --output tokens --prompt-tokens 5,1024
says 1 "exceed the context of 1048576" "more than fits" k3run --model "$model" --max-tokens 1048576 Hello
says 1 "not UTF-8" "a prompt that is not UTF-8" k3run --model "$model" $'\xff'
says 1 "^k3run: backend abacus" "a backend that is not there" k3run --model "$model" --backend abacus Hello
says 1 "^k3run: $tmp/none/x" "a dump that cannot be written" \
    k3run --model "$model" --prompt-tokens 5 --output tokens --dump-logits "$tmp/none/x"

# The last weight of the file belongs to the head's last row: make it NaN.
mkdir "$tmp/nan"
cp "$model"/* "$tmp/nan"
printf '\xff\x7f' | dd of="$tmp/nan/model.safetensors" bs=1 conv=notrunc status=none \
    seek=$(($(stat -c %s "$model/model.safetensors") - 2))
says 1 "position 1 is not a number" "NaN ends the run with a sentence" \
    k3run --model "$tmp/nan" --output tokens --prompt-tokens 5 --max-tokens 3

# --- ranks

if command -v mpirun >/dev/null && grep -q '^#define HAVE_MPI 1' "$top_builddir/config.h"; then
    is "$(mpi 2 k3run --model "$model" --output tokens --seed 5 --max-tokens 12 --prompt-tokens $ids)" "$chat" \
        "two ranks sample the same, and one prints"
    mpi 3 k3run --model /nonsense Hello >"$tmp/stdout" 2>"$tmp/stderr"
    is "$(grep -c '^k3run: ' "$tmp/stderr")" 1 "what fails everywhere is said once"
    fails 1 "NaN ends all ranks" mpi 2 k3run --model "$tmp/nan" --output tokens --prompt-tokens 5 --max-tokens 3
else
    skip 3 "no MPI"
fi
done_testing
