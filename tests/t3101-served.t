#!/bin/bash
# k3served of one rank with a real k3queued: the tokens are k3run's, whatever else happens.
. "${top_srcdir:-$(dirname "$0")/..}/tests/tap.sh"
PATH=$top_builddir/src/queue/test:$PATH
need munged

model=$tmp/tiny-a
k3mkmodel "$top_srcdir/etc/models/tiny-a.json" "$model" >/dev/null || exit 1

# alone PROMPT TOKENS : what k3run makes of it, greedily.
alone() {
    k3run --model "$model" --threads 1 --prompt-tokens "$1" --max-tokens "$2" --temperature 0 --ignore-eos --output tokens ||
        echo "k3run failed"
}
# ask PROMPT TOKENS : the same through queue and engine.
ask() { fakeclient --wait "$patience" --quiet --greedy --tokens "$1" --max "$2" submit; }
ids() { sed -n 's/^ids //p'; }
ending() { tail -n 1; }

engine() { fakeclient info | grep '^engine'; }
serving() { [[ $(engine) =~ \ serving\  ]]; }
idle() { [[ $(engine) =~ \ used\ 0\  ]]; }
start_engine() {
    start "$@" k3served
    engine_pid=$pid
    wait_for 20 serving || diag "the engine does not serve: $(tail -n 5 "$tmp/log/$1.log")"
}
served() { k3served --file "$tmp/$1.conf"; }

# --- command line and settings

start_munged
write_conf "k3served = { model = \"$model\"; max_context = 4096; slots = 4; };"
like "$(k3served --help)" "--lost REASON" "--help shows the options"
like "$(k3served --usage)" "^Usage: k3served" "--usage"
like "$(k3served -V)" "^k3served [0-9]" "-V"
is "$(k3served --get k3served.slots)" 4 "--get prints one setting"
like "$(k3served --show-config)" "max_context = 4096" "--show-config prints all"
fails 2 "--get of a setting that there is not" k3served --get k3served.nonsense
fails 2 "an argument that means nothing" k3served now
fails 7 "--lost without a daemon" k3served --lost "a test"

# refuses TEXT REGEX TITLE : with these settings k3served ends at once with 2 and a sentence.
refuses() {
    echo "$1" >"$tmp/wrong.conf"
    fails 2 "$3" k3served --file "$tmp/wrong.conf"
    like "$(k3served --file "$tmp/wrong.conf" 2>&1 | tail -n 1)" "$2" "and says what is wrong"
}
refuses 'k3served = { slots = 4; slot = 4; };' "wrong.conf:1: .*slot" "a setting that there is not"
refuses '' "k3served.model" "no checkpoint"
refuses 'k3served = { model = "/nowhere"; };' "/nowhere" "a checkpoint that is not there"
mkdir "$tmp/empty" && cp "$model"/*.json "$model"/*.tiktoken "$tmp/empty"
rm -f "$tmp/empty/model.safetensors.index.json"
refuses "k3served = { model = \"$tmp/empty\"; };" "$tmp/empty: holds neither model.safetensors nor" "a checkpoint without its tensors"
refuses "k3served = { model = \"$model\"; slots = 8; batch_tokens = 71; };" "batch_tokens \(71\) must not be below" \
    "a step too short for all slots and a block of a prompt"
refuses "k3served = { model = \"$model\"; prefill_chunk = 100; };" "prefill_chunk \(100\) must be multiples of 64" \
    "a prompt cut within blocks"
refuses "k3served = { model = \"$model\"; layout = \"tp=2\"; };" "k3served.layout: layout tp=2 is one of 2 ranks, but the job has 1" "a layout for more ranks"
refuses "k3served = { model = \"$model\"; backend = \"abacus\"; };" "abacus" "a backend that there is not"
refuses "k3served = { model = \"$model\"; cache_tokens = 1000000000; };" "GiB of memory available" "more than memory holds"

# --- answers

restart_queued
start_engine first
like "$(cat "$tmp/log/first.log")" "memory weights +14086656 bytes.*memory total +[0-9]+ bytes" "the memory budget is in the log"
like "$(engine)" " slots 4 used 0 14086656/14086656$" "the engine's load is known to the daemon"

got=$(ask 768,12,500,33,7 40)
is "$(ids <<<"$got")" "$(alone 768,12,500,33,7 40)" "one request: k3run's tokens"
is "$(ending <<<"$got")" "done length 5+40 -" "and their number"

prompts=() clients=()
for i in 1 2 3 4 5 6 7; do
    prompts[i]=768,$(seq -s , $((i * 3)) $((i * 40)))
    ask "${prompts[i]}" 50 >"$tmp/answer.$i" &
    clients+=($!)
done
wait "${clients[@]}"
for i in 1 2 3 4 5 6 7; do
    is "$(ids <"$tmp/answer.$i")" "$(alone "${prompts[i]}" 50)" "request $i of seven on four slots: as if it were alone"
done

chat='{"messages": [{"role": "user", "content": "Hi"}], "thinking": false}'
got=$(fakeclient --wait "$patience" --quiet --greedy --max 30 --text "$chat" submit | sed -n '/^text/,/^done/p' | sed '$d')
is "$got" "text $(k3run --model "$model" --threads 1 --no-thinking --temperature 0 --ignore-eos --max-tokens 30 Hi)" \
    "a chat is rendered by the engine"

seeded=(--seed 5 --prompt-tokens "768,12,500,33,7" --max-tokens 30 --ignore-eos --output tokens)
is "$(k3submit "${seeded[@]}")" "$(k3run --model "$model" --threads 1 "${seeded[@]}")" "the same seed: k3run's tokens, drawn by chance"

long=(--temperature 0 --prompt-tokens "768,$(seq -s , 7 156)" --max-tokens 20 --ignore-eos)
first=$(k3submit --json "${long[@]}")
second=$(k3submit --json "${long[@]}")
counts() { [[ $1 =~ \"completion_tokens\":([0-9]+).*\"cached_tokens\":([0-9]+) ]] && echo "${BASH_REMATCH[*]:1}"; }
token_ids() { [[ $1 =~ \"token_ids\":\[([0-9,]+)\] ]] && echo "${BASH_REMATCH[1]}"; }
is "$(counts "$first")" "20 0" "a prompt of 151 tokens runs whole"
is "$(counts "$second")" "20 128" "asked again it begins behind the two pages that are kept"
is "$(token_ids "$second")" "$(token_ids "$first")" "and gets the same tokens"
like "$(token_ids "$second")" "^[0-9]+(,[0-9]+){19}$" "which are twenty"

text=$(fakeclient --wait "$patience" --quiet --greedy --max 40 --tokens 768,12,500,33,7 submit | sed -n 's/^text //p' | head -n 1)
stop=${text:6:5}
got=$(fakeclient --wait "$patience" --quiet --greedy --max 40 --tokens 768,12,500,33,7 --stop "$stop" submit)
is "$(sed -n 's/^text //p' <<<"$got")" "${text%%"$stop"*}" "a stop string ends the answer and is not shown"
like "$(ending <<<"$got")" "^done stop " "and the reason is told"

# --- what cannot be answered

is "$(ask 768,5000 5 | ending)" "done failed 0+0 prompt: token id 5000 at 1 is not below 1024, the size of the vocabulary" \
    "a token that the model does not know"
plant_secret
words=$(printf "$secret %.0s" {1..2000})
like "$(fakeclient --wait "$patience" --quiet --text '{"messages": [{"role": "user", "content": "'"$words"'"}]}' submit | ending)" \
    "^done failed 0\+0 the prompt has [0-9]+ tokens, and this engine holds 4096" "a chat that can never fit"
like "$(fakeclient --wait "$patience" --quiet --text '{"messages": 3}' submit | ending)" "^done failed 0\+0 messages" \
    "a chat that is none: the path of the mistake"

# --- cancel

id=0123456789abcdef0123456789abcdef
fakeclient --wait "$patience" --id $id --greedy --tokens 768,1 --max 4000 submit >"$tmp/long" &
client=$!
wait_for 20 grep -q '^delta 9+' "$tmp/long"
is "$(fakeclient --id $id cancel)" ok "a running request is cancelled"
wait $client
like "$(ending <"$tmp/long")" "^done cancelled " "its client is told"
ok "and its slot is free" wait_for 5 idle

# --- an engine without work

ticks() { awk '{ print $14 + $15 }' "/proc/$1/stat"; }
before=$(ticks "$engine_pid")
sleep 2
like $(($(ticks "$engine_pid") - before)) '^[0-9]$' "waiting costs less than a twentieth of a core"

# --- the daemon comes and goes

stop_queued
restart_queued
ok "a daemon that was restarted gets its engine back" wait_for 20 serving
is "$(ask 768,12,500,33,7 20 | ids)" "$(alone 768,12,500,33,7 20)" "and works with it"

# --- drain

fakeclient --wait "$patience" --greedy --tokens 768,2,3 --max 250 submit >"$tmp/last" &
client=$!
wait_for 20 grep -q '^delta 9+' "$tmp/last"
kill -USR1 "$engine_pid"
wait "$engine_pid"
is $? 0 "USR1 drains: exit code 0"
wait $client
is "$(ids <"$tmp/last")" "$(alone 768,2,3 250)" "after the answer that was being made"
comes_to 5 "^queued 0 running 0 model -$" "the daemon has seen it go" fakeclient info

# --- one engine gives back, the next goes on

write_conf "k3queued = { heartbeat = 0.1; engine_timeout = 1.0; };
k3served = { model = \"$model\"; max_context = 4096; slots = 4; drain_timeout = 0.2; };"
stop_queued
restart_queued
start_engine second
for i in 1 2 3 4 5 6; do
    fakeclient --wait "$patience" --greedy --tokens "768,$i" --max 250 submit >"$tmp/moved.$i" &
    clients[i]=$!
done
wait_for 20 grep -q '^delta 50+' "$tmp/moved.1"
kill -TERM "$engine_pid"
wait "$engine_pid"
is $? 0 "TERM drains as well, and does not wait for long answers"
start_engine third
for i in 1 2 3 4 5 6; do
    wait "${clients[i]}"
    is "$(ids <"$tmp/moved.$i")" "$(alone "768,$i" 250)" "answer $i went on elsewhere, with nothing lost or repeated"
done
like "$(cat "$tmp/moved.1")" "state QUEUED" "after its engine had given it back"

# --- a daemon that stands still for longer than it waits for engines

ask 768,9 800 >"$tmp/stood" &
client=$!
running() { [[ $(fakeclient info) == *" running 1 "* ]]; }
wait_for 20 running
kill -STOP "$queued_pid"
sleep 1.5
kill -CONT "$queued_pid"
wait $client
is "$(ids <"$tmp/stood")" "$(alone 768,9 800)" "its requests are leased again and end once"
ok "and nothing of them is left" wait_for 10 idle
stop "$engine_pid"

# --- a row that is not a number: byte 8 begins the header, the embedding is the first tensor, and a value of a token that
# the others do not meet becomes NaN

healthy=$(alone 768,4,5 200)
later=$(alone 768,4,6 30)
for ((bad = 767; bad > 0; bad--)); do
    [[ ,$healthy,$later, == *,$bad,* ]] || break
done
header=$(od -An -tu8 -N8 "$model/model.safetensors")
printf '\xc0\x7f' | dd of="$model/model.safetensors" bs=1 seek=$((8 + header + bad * 128 * 2)) conv=notrunc status=none
start_engine fourth
fakeclient --wait "$patience" --greedy --tokens 768,4,5 --max 200 submit >"$tmp/healthy" &
client=$!
wait_for 20 grep -q '^delta 9+' "$tmp/healthy"
for i in 1 2 3; do
    like "$(ask 768,$bad,5 5 | ending)" "^done failed 3\+0 " "a request whose logits are no numbers fails, time $i"
done
wait $client
is "$(ids <"$tmp/healthy")" "$healthy" "alone: the one beside it does not notice"
is "$(ask 768,4,6 30 | ids)" "$later" "nor do those that come after it"
stop "$engine_pid"

done_testing
