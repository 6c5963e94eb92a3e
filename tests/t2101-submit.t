#!/bin/bash
# k3submit as people use it: answers, terminals, signals, exit codes.
. "${top_srcdir:-$(dirname "$0")/..}/tests/tap.sh"
need script
PATH=$top_builddir/src/queue/test:$PATH

# words FROM END : what fakeengine answers.
words() { local i; for ((i = $1; i < $2; i++)); do printf 'w%d ' "$i"; done; }
ids() { local i; for ((i = 0; i < $1; i++)); do printf '%s%d' "${comma-}" $(((i * 7919 + 11) % 163840)); comma=,; done; }
# on_terminal COMMAND : what a terminal shows.
on_terminal() { TERM=xterm script -qec "$1" /dev/null </dev/null | tr -d '\r'; }
engine() {
    start engine fakeengine "$@"
    engine=$pid
    wait_for 5 serving
}
serving() { k3info --json | grep -q '"serving"'; }
state() { k3queue -h -o %T "$1"; }
in_state() { [[ $(state "$1") == "$2" ]]; }

# --- nobody there
munge_socket=$tmp/none
write_conf "k3submitt = {};"
is "$(k3submit x 2>&1)" "k3submit: $K3_CONF:2: there is no section k3submitt" "a mistake in k3.conf is told with its line"
ok "but --help needs no k3.conf" k3submit --help
write_conf
is "$(k3submit x </dev/null 2>&1)" \
    "k3submit: $tmp/k3queued.sock: k3queued is not running there (no such socket)" "a missing daemon is told at once"
fails 7 "as unreachable" k3submit x </dev/null

# --- usage
fails 2 "an unknown option is wrong usage" k3submit --frobnicate
fails 2 "no text is" k3submit </dev/null
fails 2 "an empty --stop is" k3submit --stop "" x
fails 2 "a value out of range is" k3submit --top-p 1.5 x
like "$(k3submit --top-p 1.5 x 2>&1)" "^k3submit: --top-p: k3submit.top_p: 1.5 is not a number, 0 to 1" "and is named"
fails 2 "an effort that does not exist is" k3submit --reasoning-effort extreme x
fails 2 "text beside --prompt-tokens is" k3submit --prompt-tokens 1,2 x
fails 2 "tokens that are none are" k3submit --prompt-tokens 1,x
like "$(K3SUBMIT_SEED=abc k3submit x 2>&1)" "K3SUBMIT_SEED: abc is not a whole number" "the environment is checked too"
is "$(K3SUBMIT_TEMPERATURE=0.5 k3submit --show-config | grep 'temperature =')" \
    "    temperature = 0.5; # K3SUBMIT_TEMPERATURE" "and shown with its origin"
is "$(K3SUBMIT_TEMPERATURE=0.5 k3submit --temperature 0 --show-config | grep 'temperature =')" \
    "    temperature = 0.0; # --temperature" "the command line wins"

# --- answers
plant_secret
munge_socket=
start_munged
write_conf "k3queued = { engine_timeout = 1.0; heartbeat = 0.2; };"
sed -i '/^common/s/};$/ timeout = 4.0; };/' "$K3_CONF"
restart_queued
engine --rate 200 --tokens 12 --think 4

is "$(k3submit "$secret" </dev/null 2>"$tmp/err")" "$(words 4 12)" "the answer is on stdout, without the thinking"
is "$(cat "$tmp/err")" "" "and nothing is on stderr"
is "$(k3submit --show-reasoning "$secret" </dev/null 2>&1 >/dev/null)" "$(words 0 4)." "thinking is shown on stderr when asked for"
is "$(k3submit --output tokens "$secret" </dev/null)" "$(ids 12)" "--output tokens prints all ids on one line"
is "$(k3submit --prompt-tokens 768,12 --ignore-eos --max-tokens 3 --output tokens)" "$(ids 3)" "a prompt may be ids"
is "$(echo "$secret" | k3submit --max-tokens 6)" "$(words 4 6)" "text comes from standard input"
is "$(k3submit --max-tokens 6 -f "$K3_CONF" <&-)" "$(words 4 6)" "or from a file, with standard input closed"
json=$(k3submit --json "$secret" </dev/null)
like "$json" "\"content\":\"$(words 4 12)\",\"reasoning_content\":\"$(words 0 4)[.]\",\"tool_calls\":\[\],\"finish_reason\":\"stop\"" \
    "--json prints everything as an object"
like "$json" '"completion_tokens":12' "with the usage"
like "$(k3submit -v -m 5 "$secret" </dev/null 2>&1 >/dev/null)" "^request [0-9a-f]{8}, reasoning effort max
[0-9]+ prompt \+ 5 answer tokens in .* s, .* tok/s, ended by the token limit$" "-v says id, effort and usage on stderr"
is "$(k3submit -m 4 "$secret" </dev/null 2>&1)" \
    "k3submit: no answer: the token limit came before it began; a higher --max-tokens or --no-thinking makes room" "an answer that is all thinking is told"
like "$(K3SUBMIT_NO_THINKING=1 k3submit -v -m 5 "$secret" </dev/null 2>&1 >/dev/null)" "effort none" "flags come from the environment too"
got=$(k3submit --parsable -m 5 "$secret" </dev/null)
like "$got" "^[0-9a-f]{32}
w4 $" "--parsable puts the id before the answer"
id=${got%%[!0-9a-f]*}
like "$(fakeclient --id "$id" attach)" "^refused 1 .*erased" "an answer that was written is acknowledged"

# --- leaving it in the queue
like "$(k3submit --no-wait "$secret" </dev/null)" "^Submitted request [0-9a-f]{32}$" "--no-wait says the id, as sbatch does"
id=$(k3submit --no-wait --parsable "$secret" </dev/null)
like "$id" "^[0-9a-f]{32}$" "--parsable says it alone"
like "$(k3submit --no-wait --json "$secret" </dev/null)" '^\{"id":"[0-9a-f]{32}","place":[0-9]+\}$' "--json as an object"
ok "and the request is worked on" wait_for 5 in_state "$id" DONE

# --- terminals
screen=$(on_terminal "k3submit '$secret'")
like "$screen" $'(^|\e\\[K)request [0-9a-f]{8}, reasoning effort max' "a terminal is told the id and the effort"
like "$screen" "$(words 4 12)" "and the answer"
like "$screen" "12 answer tokens in" "and the usage"
stop "$engine"
engine --rate 10 --tokens 12 --think 10
screen=$(on_terminal "k3submit '$secret'")
like "$screen" $'\e\\[Kthinking [0-9]+ tokens, [0-9.]+ tok/s\e?' "while the model thinks there is a live line"
is "$(sed -n $'s/.*\e\\[K//; /w10/p' <<<"$screen")" "w10 w11 " "which is gone when the answer comes"
stop "$engine"
engine --rate 0 --tokens 2 --word $'\e]0;title\a'
like "$(on_terminal "k3submit '$secret'")" '[?]\]0;title[?]0 [?]\]0;title[?]1 ' "control characters do not reach a terminal"
is "$(k3submit "$secret" </dev/null)" $'\e]0;title\a0 \e]0;title\a1 ' "but a file gets the answer as it is"
stop "$engine"

# --- signals.  A background job of a script ignores SIGINT, so that has to be undone.
submit() {
    env --default-signal=INT k3submit "$secret" </dev/null >"$tmp/out" 2>"$tmp/err" &
    submitted=$!
    wait_for 5 waiting
    id=$(k3queue -h --me -o %I)
}
waiting() { [[ $(k3queue -h --me) ]]; }
submit
is "$(tr '\0' ' ' <"/proc/$submitted/cmdline" | sed 's/ *$//')" k3submit "what it was asked does not show in ps"
kill -INT $submitted
wait_for 5 test -s "$tmp/err"
is "$(cat "$tmp/err")" "k3submit: request $id: place 1 (NoEngine); Ctrl-C again within a second cancels it" "the first Ctrl-C shows id and state"
is "$(state "$id")" QUEUED "and changes nothing"
sleep 1.1
: >"$tmp/err"
kill -INT $submitted
wait_for 5 test -s "$tmp/err"
kill -INT $submitted
wait $submitted
is $? 6 "the second within a second ends it as cancelled"
like "$(cat "$tmp/err")" "^k3submit: request $id: place 1 .*; Ctrl-C again" "and one that came later was a first one again"
is "$(state "$id")" CANCELLED "and the request is"
submit
kill -TERM $submitted
wait $submitted
is $? 143 "SIGTERM ends it by the signal's number"
like "$(cat "$tmp/err")" "request $id goes on" "and says"
is "$(state "$id")" QUEUED "that the request goes on"
k3cancel "$id"
submit
k3cancel "$id"
wait $submitted
is $? 6 "a request that somebody cancels ends it as cancelled"
is "$(cat "$tmp/err")" "k3submit: request ${id:0:8} cancelled" "and it says so"

# --- what goes wrong
engine --rate 20 --tokens 1000
k3submit --parsable "$secret" </dev/null 2>"$tmp/err" | head -c 40 >"$tmp/out"
is "${PIPESTATUS[0]}" 141 "a reader who goes away ends it as SIGPIPE would"
is "$(cat "$tmp/err")" "" "with nothing to say"
is "$(state "$(head -n 1 "$tmp/out")")" CANCELLED "and nothing more is computed for him"
fails 1 "an answer that cannot be written fails" bash -c "k3submit '$secret' </dev/null >/dev/full"
like "$(k3submit "$secret" </dev/null 2>&1 >/dev/full)" "^k3submit: standard output: No space left on device$" "and is told"
like "$(k3submit "$secret" </dev/null 2>&1 >&-)" "^k3submit: standard output: Bad file descriptor$" "so is a closed one"
k3cancel --me
stop "$engine"
start dying fakeengine --rate 100 --tokens 40 --job 8 --die-at 20
wait_for 5 serving
k3submit "$secret" </dev/null >"$tmp/out" 2>&1 &
submitted=$!
wait_for 5 test -s "$tmp/out"
engine --rate 100 --tokens 40 --job 9
wait $submitted
is "$(cat "$tmp/out")" "$(words 0 40)" "an engine that dies half way is not seen in the answer"
stop "$engine"
start dying fakeengine --rate 100 --tokens 12 --think 5 --job 8 --die-at 6
wait_for 5 serving
k3submit --json "$secret" </dev/null >"$tmp/out" 2>&1 &
submitted=$!
wait_for 5 grep -q dies "$tmp/log/dying.log"
engine --rate 100 --tokens 12 --think 5 --job 9
wait $submitted
like "$(cat "$tmp/out")" "\"content\":\"$(words 5 12)\",\"reasoning_content\":\"$(words 0 5)[.]\"" \
    "nor is one that dies behind the token that ended the thinking and began the response"
like "$(cat "$tmp/log/engine.log")" "lease from 6" "from which the next one went on"

stop "$engine"
submit
kill -STOP "$queued_pid"
fails 7 "a daemon that does not answer is unreachable" k3submit x </dev/null
is "$(k3submit x </dev/null 2>&1)" "k3submit: ipc://$tmp/k3queued.sock: k3queued does not answer within 4 s" "and is told so"
kill -CONT "$queued_pid"
stop "$queued_pid" KILL
restart_queued
ok "a request that no engine had is asked again of a new daemon" wait_for 20 in_state "$id" QUEUED
engine --tokens 5
wait $submitted
is "$? $(cat "$tmp/err")" "0 " "and is answered"
stop "$engine"
submit
stop "$queued_pid" KILL
refused=$(grep -c "no such request" "$tmp/log/k3queued.log")
restart_queued
refuses() { [[ $(grep -c "no such request" "$tmp/log/k3queued.log") -gt $refused ]]; }
ok "a new daemon is asked for it" wait_for 20 refuses
kill -INT $submitted
wait_for 5 test -s "$tmp/err"
kill -INT $submitted
wait $submitted
is "$? $(tail -n 1 "$tmp/err")" "1 k3submit: no such request" "what is cancelled before a new daemon knows it may not be gone"
is "$(k3queue -h --me)" "" "but is not asked again"
submit
stop_queued
wait $submitted
is $? 1 "so has one whose daemon is stopped"
like "$(cat "$tmp/err")" "^k3submit: k3queued was stopped" "which says why"
is "$(k3submit x </dev/null 2>&1)" \
    "k3submit: $tmp/k3queued.sock: k3queued is not running there (nobody listens)" "a socket that was left behind is told apart"
done_testing
