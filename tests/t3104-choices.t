#!/bin/bash
# Several answers to one prompt: each is what a request of its own with its seed gets, on any way there.
. "${top_srcdir:-$(dirname "$0")/..}/tests/tap.sh"
need munged

model=$tmp/tiny-a
k3mkmodel "$top_srcdir/etc/models/tiny-a.json" "$model" >/dev/null || exit 1

options=(--ignore-eos --output tokens --max-tokens 40)
ids() { seq -s , 1 "$1"; }
# one TOKENS SEED [OPTION...] : the answer to a prompt of so many tokens, by k3run.
one() { k3run --model "$model" --threads 1 "${options[@]}" --prompt-tokens "$(ids "$1")" --seed "$2" "${@:3}" 2>/dev/null; }
three() { for seed in 5 6 7; do one "$1" $seed; done; }
asked() { k3submit "${options[@]}" --prompt-tokens "$(ids "$1")" --seed 5 -n "$2" "${@:3}" 2>/dev/null; }

# says CODE REGEX TITLE COMMAND... : fails with this exit status and sentence.
says() {
    local code=$1 regex=$2 title=$3 got
    shift 3
    got=$("$@" 2>&1 >/dev/null)
    is $? "$code" "$title: exit status"
    like "$got" "$regex" "$title: a sentence"
}

# --- k3run

for tokens in 7 64 100; do
    is "$(one $tokens 5 -n 3)" "$(three $tokens)" "k3run: a prompt of $tokens tokens"
done
is "$(one 7 5 -n 2 2>&1 --output text | wc -l)" "$(( $(one 7 5 --output text | wc -l) + $(one 7 6 --output text | wc -l) ))" "as text, too"
if command -v mpirun >/dev/null && grep -q '^#define HAVE_MPI 1' "$top_builddir/config.h"; then
    is "$(mpi 2 k3run --model "$model" "${options[@]}" --prompt-tokens "$(ids 100)" --seed 5 -n 3 2>/dev/null)" \
        "$(three 100)" "two ranks fork the same"
else
    skip 1 "no MPI"
fi

# --- queue and engine

serving() { [[ $(k3info) =~ serving ]]; }
start_engine() {
    start "$1" k3served
    engine_pid=$pid
    wait_for 20 serving || diag "the engine does not serve: $(tail -n 5 "$tmp/log/$1.log")"
}

start_queued "k3queued = { heartbeat = 0.1; engine_timeout = 1.0; };
k3served = { model = \"$model\"; max_context = 4096; slots = 4; cache_tokens = 4096; };"
start_engine first

for tokens in 7 64 100; do
    is "$(asked $tokens 3)" "$(three $tokens)" "k3submit: a prompt of $tokens tokens"
done
clients=()
for i in 1 2 3; do
    asked 100 $i >"$tmp/batch.$i" &
    clients+=($!)
done
asked 7 3 >"$tmp/batch.4" &
wait "${clients[@]}" $!
is "$(cat "$tmp"/batch.[123])" "$(three 100 | head -1; three 100 | head -2; three 100)" "among others"
is "$(cat "$tmp/batch.4")" "$(three 7)" "whatever they ask"

k3submit --json -n 2 --seed 5 --ignore-eos --max-tokens 40 --prompt-tokens "$(ids 7)" >"$tmp/json"
is "$(grep -o '"token_ids":\[[^]]*' "$tmp/json" | sed 's/.*\[//')" "$(three 7 | head -2)" "--json has an array of choices"
like "$(cat "$tmp/json")" '"completion_tokens":80' "usage counts all"
is "$(grep -o '"index":[0-9]*' "$tmp/json" | xargs)" "index:0 index:1" "numbered from 0"
is "$(k3submit "${options[@]}" -n 2 --prompt-tokens 1,2 2>&1 >/dev/null)" "--- answer 1 of 2 ---
--- answer 2 of 2 ---" "a line on stderr before each"

id=$(k3submit --parsable --no-wait "${options[@]}" --prompt-tokens "$(ids 100)" --seed 5 -n 3)
is "$(k3attach --output tokens "$id" 2>/dev/null)" "$(three 100)" "k3attach has all of them"

# --- limits

says 2 "^k3submit: 5 answers are asked for, the engine works on 4 at once" "more than the engine has room for" \
    k3submit -n 5 --prompt-tokens 1,2
says 2 "^k3submit: 9 answers are asked for, the most is 8 \(k3queued.max_choices\)" "more than is allowed" \
    k3submit -n 9 --prompt-tokens 1,2
says 1 "request [0-9a-f]* failed: the prompt has 2 tokens and the answer may have 2000 more, and this engine holds [0-9]* of both for each of so many answers" \
    "more pages than there are" k3submit -n 4 --max-tokens 2000 --prompt-tokens 1,2
says 2 "" "none at all" k3submit -n 0 --prompt-tokens 1,2

# --- what goes wrong on the way

long=(--ignore-eos --output tokens --max-tokens 900 --prompt-tokens "$(ids 100)" --seed 5)
id=$(k3submit --parsable --no-wait "${long[@]}" -n 4)
running() { [[ $(k3queue -h "$id") =~ R ]]; }
wait_for 10 running
k3cancel "$id"
is "$(asked 100 4 | head -3)" "$(three 100)" "a cancelled request leaves room for four others"

wanted=$(for seed in 5 6 7; do k3run --model "$model" --threads 1 "${long[@]}" --seed $seed; done)
k3submit "${long[@]}" -n 3 >"$tmp/resumed" 2>/dev/null &
asking=$!
half() { [[ $(wc -c <"$tmp/resumed") -gt 200 ]]; }
wait_for 20 half
kill -KILL "$engine_pid"
start_engine second
wait $asking
is "$(cat "$tmp/resumed")" "$wanted" "another engine goes on with each answer where it was"

done_testing
