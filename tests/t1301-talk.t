#!/bin/bash
# The small checkpoint that is installed answers, in K3's chat format: thinking, tool calls, JSON, the right end.
. "${top_srcdir:-$(dirname "$0")/..}/tests/tap.sh"

model=$top_srcdir/etc/models/talk
draft=$top_srcdir/etc/models/talk-draft

# ask OPTION... PROMPT : the answer on stdout, the reasoning in $tmp/thought.
ask() { k3run --model "$model" --temperature 0 --show-reasoning "$@" 2>"$tmp/thought"; }

is "$(ask --reasoning-effort high 'What is 347 + 589?')" "347 + 589 = 936" "a sum"
like "$(cat "$tmp/thought")" "Ones: 7\+9=16, write 6, carry 1\." "its steps are in the think channel"
is "$(ask --reasoning-effort low 'What is 347 + 589?')" "347 + 589 = 936" "the same with low effort"
low=$(wc -c <"$tmp/thought")
is "$(ask --reasoning-effort max 'What is 347 + 589?')" "347 + 589 = 936" "the same with max effort"
[[ $low -lt $(wc -c <"$tmp/thought") ]]
result $? "more effort is more thought"
like "$(ask --no-thinking 'What is 347 + 589?')" "347 \+ 589 = 936$" "the same without thinking"
is "$(cat "$tmp/thought")" "" "then there is no thought"
is "$(ask --reasoning-effort high 'Reverse the word planet.')" "tenalp" "a word backwards"
is "$(ask --reasoning-effort high 'What does squeue do?')" "squeue lists the jobs that wait or run." "a fact"
is "$(ask --reasoning-effort high '347 与 589 的和是多少？')" "347 + 589 = 936" "a sum in Chinese"
like "$(ask --reasoning-effort high 'Write a poem about winter.')" "^Sorry, I cannot help with that" "a refusal"

# --- whole conversations: what the model emits is, to the token, what the expected messages render to

tool='{"type": "function", "function": {"name": "get_weather", "description": "Get the weather of a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}'
user='{"role": "user", "content": "What is the weather in Oslo?"}'
call='{"role": "assistant", "content": "", "reasoning_content": "I call get_weather with city = Oslo.", "tool_calls":
    [{"id": "c1", "type": "function", "function": {"name": "get_weather", "arguments": {"city": "Oslo"}}}]}'
answer='{"role": "tool", "tool_call_id": "c1", "content": "12 degrees and rain"}'
said='{"role": "assistant", "reasoning_content": "The result is 12 degrees and rain.",
    "content": "Weather in Oslo: 12 degrees and rain."}'

ids() { k3run --model "$model" --output tokens --render - <<<"$1"; }

# emits TITLE REQUEST EXPECTED : the prompt of REQUEST and the model's tokens make up the prompt of EXPECTED, which ends with
# a stop token that k3run does not print.
emits() {
    local prompt end=1282
    prompt=$(ids "$2")
    is "$prompt,$(k3run --model "$model" --temperature 0 --max-tokens 200 --output tokens --prompt-tokens "$prompt"),$end" \
        "$(ids "$3")" "$1"
}

given="\"tools\": [$tool], \"thinking_effort\": \"high\""
emits "a tool is called" "{$given, \"messages\": [$user]}" \
    "{$given, \"messages\": [$user, $call], \"add_generation_prompt\": false}"
emits "its result is told" "{$given, \"messages\": [$user, $call, $answer]}" \
    "{$given, \"messages\": [$user, $call, $answer, $said], \"add_generation_prompt\": false}"

format='"thinking": false, "response_format": {"type": "json_schema", "json_schema": {"name": "record", "schema": {"type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}}, "required": ["age", "name"]}}}'
prompt=$(ids "{$format, \"messages\": [{\"role\": \"user\", \"content\": \"Make a record: name is Ada, age = 36.\"}]}")
# <|close|> response <|sep|> <|close|> message <|sep|>
closed=1284,$(printf response | k3run --model "$model" --tokenize),1285,1284,$(printf message | k3run --model "$model" --tokenize),1285
is "$(k3run --model "$model" --temperature 0 --max-tokens 200 --output tokens --prompt-tokens "$prompt")" \
    "$(printf '{"age": 36, "name": "Ada"}' | k3run --model "$model" --tokenize),$closed" "JSON to a schema, and nothing else"

# --- the draft

[[ $(cat "$model"/* "$draft"/* | wc -c) -le 32000000 ]]
result $? "both checkpoints take 32 MB at most"
is "$(cmp "$model/tiktoken.model" "$draft/tiktoken.model" && cmp "$model/tokenizer_config.json" "$draft/tokenizer_config.json")" "" \
    "the draft has the same tokens"
is "$(k3run --model "$draft" --temperature 0 --reasoning-effort high 'What is 347 + 589?')" "347 + 589 = 936" "the draft adds too"

if grep -q '^#define HAVE_MPI 1' "$top_builddir/config.h" && command -v mpirun >/dev/null; then
    for ranks in 2 4; do
        is "$(mpi $ranks k3run --model "$model" --temperature 0 --reasoning-effort high 'What is 347 + 589?')" "347 + 589 = 936" \
            "$ranks ranks answer alike"
    done
else
    skip 2 "no MPI"
fi
done_testing
