#!/bin/bash
# The model that answers, through queue and engine: tools, JSON, talks of several turns, the right end, how an answer streams.
. "${top_srcdir:-$(dirname "$0")/..}/tests/tap.sh"
PATH=$top_builddir/src/queue/test:$PATH
need munged

model=$top_srcdir/etc/models/talk
start_queued "k3served = { model = \"$model\"; max_context = 4096; slots = 4; };
k3submit = { temperature = 0.0; };"
serving() { k3info --json | grep -q '"serving"'; }
start engine k3served
engine_pid=$pid
wait_for 30 serving || diag "the engine does not serve: $(tail -n 5 "$tmp/log/engine.log")"

# field NAME N : of the line NAME in the data, 2 the request, 3 the answer.
field() { awk -F'\t' -v name="$1" -v n="$2" '$1 == name { print $n }' "$top_srcdir/tests/data/talk.txt"; }

# converse REQUEST : sets $id and, as they stand in JSON, $content, $thought, $calls, $finish, $ids.
requests=0
converse() {
    local got form='"content":"(.*)","reasoning_content":"(.*)","tool_calls":(\[.*\]),"finish_reason":"([a-z_]*)".*"token_ids":\[([0-9,]*)\]'
    ((requests += 1))
    id=$(printf %032x $requests)
    fakeclient --id "$id" --cold --text "$1" --no-watch submit >/dev/null
    got=$(k3attach --json "$id" 2>&1)
    [[ $got =~ $form ]] || diag "no answer: $got"
    content=${BASH_REMATCH[1]-} thought=${BASH_REMATCH[2]-} calls=${BASH_REMATCH[3]-} finish=${BASH_REMATCH[4]-} ids=${BASH_REMATCH[5]-}
}

# go_on REQUEST MESSAGE : the request with the answer that there was and one message more.
go_on() {
    echo "${1%]\}}, {\"role\": \"assistant\", \"content\": \"$content\", \"reasoning_content\": \"$thought\", \"tool_calls\": $calls}, $2]}"
}

# Every answer ends with these, and with the last of them nowhere else: <|close|> message <|sep|> <|end_of_msg|>
closed=1284,$(printf message | k3run --model "$model" --tokenize),1285,1282
ends_well() { [[ $ids == *",$closed" && ,${ids%,1282}, != *,1282,* ]]; }

# --- tools

for name in call call-typed call-list call-switch call-zh call-two call-required; do
    converse "$(field $name 2)"
    is "$calls $finish $content" "$(field $name 3) tool_calls " "$name: the right tool with the right arguments"
    ok "$name: and the right end" ends_well
done
for name in call-none call-unfit call-needless; do
    converse "$(field $name 2)"
    is "$content $calls $finish" "$(field $name 3) [] stop" "$name: an answer without a call"
    ok "$name: and the right end" ends_well
done

request=$(field call 2)
converse "$request"
[[ $calls =~ \"id\":\"([a-z0-9_]*)\" ]]
request=$(go_on "$request" "{\"role\": \"tool\", \"tool_call_id\": \"${BASH_REMATCH[1]-}\", \"content\": \"started\"}")
converse "$request"
is "$content $calls $finish" "Timer of 90 minutes: started. [] stop" "what the tool says is told"
like "$thought" started "and thought of"
ok "with the right end" ends_well
converse "$(go_on "$request" '{"role": "user", "content": "What did I ask?"}')"
like "$content" "^You asked: " "and the talk goes on"

# --- JSON

for name in json json-list json-mixed json-long; do
    converse "$(field $name 2)"
    is "${content//\\\"/\"} $calls $finish" "$(field $name 3) [] stop" "$name: what the schema wants, and nothing else"
    ok "$name: and the right end" ends_well
done

# --- turns

request='{"thinking_effort": "high", "messages": [{"role": "user", "content": "What is 347 + 589?"}]}'
converse "$request"
is "$content" "347 + 589 = 936" "a first turn"
request=$(go_on "$request" '{"role": "user", "content": "Subtract 7 from that."}')
converse "$request"
is "$content" "936 - 7 = 929" "the next one uses its result"

# --- streaming

question='{"messages": [{"role": "user", "content": "What is 47 * 68?"}], "thinking_effort": "max"}'
converse "$question"
fakeclient --cold --parts --text "$question" submit >"$tmp/stream"
tokens=$(tr , '\n' <<<"$ids" | wc -l)
is "$(awk '$1 == "delta" { split($2, d, "+"); if (d[1] != at) print "a gap at", at; at += d[2]; n++ } END { print n, at }' "$tmp/stream")" \
    "$tokens $tokens" "each token comes in a delta of its own, one after the other"
is "$(grep -oE '^(think|response|tool)' "$tmp/stream" | uniq | xargs)" "think response" "thinking first, then the answer"
parts() { sed -n "s/^$1 //p" "$tmp/stream" | tr -d '\n'; }
is "$(parts think)" "$thought" "the parts of the thinking are the thinking"
is "$(parts response)" "$content" "and those of the answer the answer"
fakeclient --cold --parts --text "$(field call 2)" submit >"$tmp/stream"
is "$(grep -oE '^(think|response|tool)' "$tmp/stream" | uniq | xargs)" "think tool" "a call has a channel of its own"
is "$(parts tool)" '{"length": 90}' "where its arguments come"

# The engine stands still in the middle, until there are watchers.
has_tokens() { (($(k3queue -h -o %k "$id") >= $1)); }
id=$(k3submit --no-wait --parsable --reasoning-effort max "What is 47 * 68?")
wait_for 10 has_tokens 10
kill -STOP "$engine_pid"
before=$(k3queue -h -o '%t %k' "$id")
like "$before" "^R +[0-9]+$" "an answer is stopped in its middle"
k3attach --show-reasoning "$id" >"$tmp/text" 2>"$tmp/thought" &
watchers=($!)
k3attach --output tokens "$id" >"$tmp/tokens" 2>&1 &
watchers+=($!)
k3attach --output tokens --from 8 "$id" >"$tmp/tail" 2>&1 &
watchers+=($!)
ok "what there is comes to who attaches then" wait_for 10 test -s "$tmp/thought"
kill -CONT "$engine_pid"
wait "${watchers[@]}"
is "$(cat "$tmp/text")" "$content" "and the rest: the same answer"
is "$(cat "$tmp/thought")" "$thought" "the same thinking"
is "$(cat "$tmp/tokens")" "$ids" "the same tokens"
is "$(cat "$tmp/tail")" "$(cut -d, -f9- <<<"$ids")" "from the ninth on, too"

is "$(k3submit --reasoning-effort max --show-reasoning "What is 47 * 68?" 2>"$tmp/thought")" "$content" "k3submit prints it"
is "$(cat "$tmp/thought")" "$thought" "and the thinking beside it"

done_testing
