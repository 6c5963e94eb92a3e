#!/bin/bash
# Every setting of the sampling from k3submit to the engine and back: the tokens are k3run's, on any way there.
. "${top_srcdir:-$(dirname "$0")/..}/tests/tap.sh"
need munged

model=$tmp/tiny-a
k3mkmodel "$top_srcdir/etc/models/tiny-a.json" "$model" >/dev/null || exit 1

# alone OPTION... : what k3run samples; asked OPTION... : the same through queue and engine.
prompt=(--prompt-tokens "768,12,500,33,7,12,33" --ignore-eos --output tokens)
alone() { k3run --model "$model" --threads 1 "${prompt[@]}" "$@"; }
asked() { k3submit "${prompt[@]}" "$@"; }

serving() { [[ $(k3info) =~ serving ]]; }
start_engine() {
    start "$1" k3served
    engine_pid=$pid
    wait_for 20 serving || diag "the engine does not serve: $(tail -n 5 "$tmp/log/$1.log")"
}

start_queued "k3queued = { heartbeat = 0.1; engine_timeout = 1.0; };
k3served = { model = \"$model\"; max_context = 4096; slots = 4; };"
start_engine first

# --- one by one, and all together

plain=$(alone --seed 5 --max-tokens 40)
same() {
    local title=$1 got
    shift
    got=$(alone --seed 5 --max-tokens 40 "$@")
    [[ $got != "$plain" ]]
    result $? "$title changes the answer"
    is "$(asked --seed 5 --max-tokens 40 "$@")" "$got" "and reaches the engine"
}
is "$(asked --seed 5 --max-tokens 40)" "$plain" "nothing set"
same "--top-k" --top-k 3
same "--top-p" --top-p 0.3
same "--min-p" --top-p 1 --min-p 0.3
same "--repetition-penalty" --repetition-penalty 1.5
same "--presence-penalty" --presence-penalty 2 --temperature 0.3
same "--frequency-penalty" --frequency-penalty -2 --temperature 0.3
same "--logit-bias" --logit-bias 12:5,33:-100,7:4.5
all=(--top-k 200 --top-p 0.9 --min-p 0.01 --repetition-penalty 1.2 --presence-penalty 0.5 --frequency-penalty 0.4
    --logit-bias "12:3,33:-100,7:2.5")
same "all of them" "${all[@]}"
is "$(asked --temperature 0 --max-tokens 5 --logit-bias 17:100)" "17,17,17,17,17" "a bias of 100 is an order"
is "$(asked --temperature 0 --max-tokens 6 --logit-bias 17:100,18:99 --frequency-penalty 2 | tr , '\n' | sort | uniq -c | xargs)" \
    "3 17 3 18" "until a penalty weighs more"

if command -v mpirun >/dev/null && grep -q '^#define HAVE_MPI 1' "$top_builddir/config.h"; then
    is "$(mpi 2 k3run --model "$model" "${prompt[@]}" --seed 5 --max-tokens 40 "${all[@]}")" \
        "$(alone --seed 5 --max-tokens 40 "${all[@]}")" "two ranks sample the same"
else
    skip 1 "no MPI"
fi

# --- log-probabilities

pairs() { grep -o '"token_id":[0-9]*,"logprob":[-0-9.e]*' | awk -F '[:,]' '{ printf "%d %.4f\n", $2, $4 }'; }
alone --seed 5 --max-tokens 8 "${all[@]}" --logprobs 3 2>"$tmp/stderr" >"$tmp/ids"
wanted=$(tr , '\n' <"$tmp/stderr" | awk '{ printf "%d %.4f\n", $1, $2 }')
json=$(k3submit --prompt-tokens "768,12,500,33,7,12,33" --ignore-eos --json --seed 5 --max-tokens 8 "${all[@]}" --logprobs 3)
is "$(pairs <<<"$json")" "$wanted" "--logprobs: k3run's"
is "$(wc -l <<<"$wanted")" 32 "for every token its own and three more"
is "$(awk 'NR % 4 == 1 { print $1 }' <<<"$wanted" | xargs | tr ' ' ,)" "$(cat "$tmp/ids")" "its own first"
is "$(awk '{ if (NR % 4 != 1 && NR % 4 != 2 && $2 > last) print; last = $2 }' <<<"$wanted")" "" "then the likeliest, best first"
[[ $(k3submit --prompt-tokens 768,12 --json --max-tokens 3) != *logprobs* ]]
result $? "none are sent unasked"

# --- a lost engine: what had been counted is counted again

asked --seed 6 --max-tokens 1500 "${all[@]}" >"$tmp/moved" &
client=$!
moving() { [[ $(tr -cd , <"$tmp/moved" | wc -c) -gt 30 ]]; }
wait_for 20 moving
kill -KILL "$engine_pid"
[[ $(tr -cd , <"$tmp/moved" | wc -c) -lt 1400 ]]
result $? "an engine dies in the middle of an answer"
wait_for 10 eval '! serving'
start_engine second
wait "$client"
is "$(cat "$tmp/moved")" "$(alone --seed 6 --max-tokens 1500 "${all[@]}")" "the next one goes on as if nothing had been"

# --- limits

fails 2 "--min-p beyond 1" asked --min-p 1.5
fails 2 "--presence-penalty beyond 2" asked --presence-penalty 2.1
fails 2 "--frequency-penalty below -2" asked --frequency-penalty -2.1
fails 2 "--logprobs beyond 20" k3submit --json --logprobs 21 Hi
fails 2 "--logprobs without --json" k3submit --logprobs 2 Hi
fails 2 "a bias beyond 100" asked --logit-bias 12:101
fails 2 "a bias without a value" asked --logit-bias 12
fails 2 "1025 of them" asked --logit-bias "$(seq -s :1, 1025):1"
fails 1 "of a token that the model does not know" asked --logit-bias 5000:1
like "$(asked --logit-bias 5000:1 2>&1)" "logit-bias: token id 5000 is not below 1024" "with a sentence"
fails 2 "k3run: --min-p beyond 1" alone --min-p 1.5
fails 2 "k3run: --repetition-penalty below 0.01" alone --repetition-penalty -1
fails 2 "k3run: a bias without a value" alone --logit-bias 12:
fails 2 "k3run: 1025 of them" alone --logit-bias "$(seq -s :1, 1025):1"
fails 1 "k3run: a bias of a token that the model does not know" alone --logit-bias 5000:1

stop "$engine_pid"
done_testing
