#!/bin/bash
# k3attach: the answer of a request, from any terminal, at any token, as often as one likes.
. "${top_srcdir:-$(dirname "$0")/..}/tests/tap.sh"
PATH=$top_builddir/src/queue/test:$PATH

# words FROM END : what fakeengine answers.
words() { local i; for ((i = $1; i < $2; i++)); do printf 'w%d ' "$i"; done; }
ids() { local i comma=; for ((i = $1; i < $2; i++)); do printf '%s%d' "$comma" $(((i * 7919 + 11) % 163840)); comma=,; done; }
engine() {
    start engine fakeengine "$@"
    engine=$pid
    wait_for 5 serving
}
serving() { k3info --json | grep -q '"serving"'; }
state() { k3queue -h -o %T "$1"; }
in_state() { [[ $(state "$1") == "$2" ]]; }
has_tokens() { (($(k3queue -h -o %k "$1") >= $2)); }
submit() { k3submit --no-wait --parsable --prompt-tokens 1,2,3 "$@"; }

munge_socket=$tmp/none
write_conf
fails 7 "without a daemon it is unreachable" k3attach abc
munge_socket=
start_queued 'k3queued = { heartbeat = 0.2; engine_timeout = 1.0; };'
fails 2 "without an id it is wrong usage" k3attach
fails 2 "so is what cannot be an id" k3attach xyz
fails 2 "so are --from and --tail together" k3attach --tail --from 3 abc
fails 2 "so is a form that does not exist" k3attach -o yaml abc
fails 1 "an id that nothing has is not found" k3attach 00000000000000000000000000000001
like "$(k3attach 00000001 2>&1)" "^k3attach: 00000001: no such request$" "and is told"

# --- an answer that is complete
engine --rate 0 --tokens 12 --think 4
id=$(submit)
wait_for 5 in_state "$id" DONE
is "$(k3attach --from 6 "$id" 2>&1)" "$(words 6 12)" "the end of an answer is fetched"
is "$(k3attach --tail "$id" 2>&1)" "" "behind the end there is nothing"
like "$(k3attach --from 13 "$id" 2>&1)" "^k3attach: the answer has 12 tokens, not 13$" "and not even an offset"
is "$(k3attach --from 3 -o tokens "$id")" "$(ids 3 12)" "as tokens, too"
is "$(k3attach "${id:0:10}")" "$(words 4 12)" "all of it, by the first digits of the id"
like "$(k3attach "$id" 2>&1)" "^k3attach: the answer was delivered .* erased$" "and then it is erased"
id=$(submit)
wait_for 5 in_state "$id" DONE
is "$(k3attach --show-reasoning --from 2 "$id" 2>&1 >/dev/null)" "$(words 2 4)." "thinking is shown when asked for"
like "$(k3attach --json "$id")" "^\{\"id\":\"$id\",\"content\":\"$(words 4 12)\",\"reasoning_content\":\"$(words 0 4)[.]\"" \
    "--json prints everything as an object"
fails 1 "a delivered answer is there no more" k3attach "$id"
id=$(submit)
wait_for 5 in_state "$id" DONE
fails 1 "an answer that cannot be written fails" bash -c "k3attach $id >/dev/full"
is "$(k3attach "$id")" "$(words 4 12)" "and is not lost by that"
if [[ $(id -u) == 0 ]]; then
    as_nobody() { as 65534 "$@"; }
    chmod 711 "$tmp"
    id=$(submit)
    wait_for 5 in_state "$id" DONE
    fails 3 "another user may not watch it" as_nobody k3attach "$id"
    k3attach "$id" >/dev/null
    id=$(as_nobody k3submit --no-wait --parsable x </dev/null)
    wait_for 5 in_state "$id" DONE
    is "$(k3attach "$id")" "$(words 4 12)" "the operator may"
    is "$(as_nobody k3attach "$id")" "$(words 4 12)" "which takes nothing from its owner"
else
    skip 3 "needs root, to be two users"
fi

# --- an answer that is being made, by one engine and another
stop "$engine"
id=$(submit)
k3attach "$id" >"$tmp/first" 2>"$tmp/first.err" &
first=$!
k3attach "$id" -o tokens >"$tmp/second" 2>&1 &
second=$!
start dying fakeengine --rate 40 --tokens 60 --job 8 --die-at 30
wait_for 5 has_tokens "$id" 10
k3attach --tail "$id" >"$tmp/third" 2>&1 &
third=$!
env --default-signal=INT k3attach "$id" >"$tmp/fourth" 2>"$tmp/fourth.err" &
fourth=$!
wait_for 5 grep -q w10 "$tmp/fourth"
kill -INT $fourth
wait $fourth
is $? 130 "Ctrl-C ends k3attach"
is "$(cat "$tmp/fourth.err")" "k3attach: left; request $id goes on, and k3cancel ends it" "which says that the request goes on"
is "$(k3attach "$id" | head -c 3)" "w0 " "as it does when the reader goes away"
engine --rate 200 --tokens 60 --job 9
wait $first $second $third
is "$(cat "$tmp/first")" "$(words 0 60)" "one who waits from the start has all of it"
is "$(cat "$tmp/first.err")" "" "with nothing to say"
is "$(cat "$tmp/second")" "$(ids 0 60)" "so has another at the same time"
like "$(cat "$tmp/third")" "^w([0-9]{2}) .* w58 w59 $" "one who came for the tail has the tail"
is "$(words "${BASH_REMATCH[1]-0}" 60)" "$(cat "$tmp/third")" "without a gap"
is "$(state "$id")" DONE "and nobody has cancelled it"

id=$(submit -m 1)
wait_for 5 in_state "$id" DONE
id=$(submit)
k3cancel "$id"
fails 6 "a cancelled request ends it as cancelled" k3attach "$id"
done_testing
