#!/bin/bash
# The daemon is away for a while, or the engine is: what was computed meanwhile is not computed again.
. "${top_srcdir:-$(dirname "$0")/..}/tests/tap.sh"
PATH=$top_builddir/src/queue/test:$PATH

words() { local i; for ((i = 0; i < $1; i++)); do printf 'w%d ' "$i"; done; }
has() { [[ $(grep -c '^delta' "$1") -ge $2 ]]; }
log=$tmp/log/k3queued.log
leases() { grep -c " leased to " "$log"; }
serves() { fakeclient info | grep "engine $1 .* serving" >/dev/null; }
lost() { grep "job $1 engine on .* is lost" "$log"; }

# ask : a request in the background, with $tmp/got and $client.
ask() {
    : >"$tmp/got" # at once: what waits for its content must not see that of the request before
    fakeclient --wait "$patience" "$@" submit >"$tmp/got" &
    client=$!
}
# answered N TITLE : it ends with the N words.
answered() {
    wait "$client"
    is "$(tail -n 2 "$tmp/got")" "text $(words "$1")
done stop 3+$1 -" "$2: one answer"
    is "$(grep -c '^delta' "$tmp/got") $(sed -n 's/^delta \([0-9]*\)+1/\1/p' "$tmp/got" | sort -nu | wc -l)" "$1 $1" "$2: every token once"
}
# away PID SECONDS
away() {
    kill -STOP "$1"
    sleep "$2"
    kill -CONT "$1"
}

start_queued 'k3queued = { heartbeat = 0.2; engine_timeout = 1.0; };'

# --- the daemon stands still for longer than anybody waits
start engine fakeengine --keeps --rate 25 --tokens 100
engine=$pid
ask
ok "an answer begins" wait_for 5 has "$tmp/got" 10
away "$queued_pid" 3
answered 100 "a daemon that stood still"
like "$(cat "$tmp/log/engine.log")" "away.*resumed from [0-9]+" "meanwhile the engine has kept what it made"
is "$(grep -c "lease from" "$tmp/log/engine.log") $(leases)" "1 1" "it was leased once"

# --- and the answer ends meanwhile
ask
wait_for 5 has "$tmp/got" 60
away "$queued_pid" 3
answered 100 "an answer that ended while the daemon stood still"
is "$(leases)" 2 "it was leased once, too"

# --- the engine stands still: it is lost, and comes back
ask
wait_for 5 has "$tmp/got" 10
kill -STOP "$engine"
ok "an engine that stands still is lost" wait_for 5 lost 7
kill -CONT "$engine"
answered 100 "an engine that was lost and came back"
is "$(grep -c "lease from" "$tmp/log/engine.log")" 3 "it went on where it was"
like "$(tail -n 20 "$log")" "job 7 goes on with it from token [0-9]+ and has" "as the log says"

# --- another engine has the request by then
ask
wait_for 5 has "$tmp/got" 10
start other fakeengine --keeps --rate 25 --tokens 100 --job 8
other=$pid
wait_for 5 serves 8
kill -STOP "$engine"
ok "a request of an engine that is lost goes to another" wait_for 5 grep -q "lease from" "$tmp/log/other.log"
kill -CONT "$engine"
answered 100 "an engine that came back too late"
like "$(cat "$tmp/log/engine.log")" "dropped" "it was told to drop what it held"
stop "$other"

# --- the request is cancelled meanwhile
id=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
ask --id "$id"
wait_for 5 has "$tmp/got" 10
kill -STOP "$engine"
fakeclient --id "$id" cancel >/dev/null
wait "$client"
like "$(tail -n 1 "$tmp/got")" "done cancelled" "a request of an engine that is away is cancelled"
dropped=$(grep -c dropped "$tmp/log/engine.log")
kill -CONT "$engine"
drops() { [[ $(grep -c dropped "$tmp/log/engine.log") -gt $dropped ]]; }
ok "which drops it when it is back" wait_for 5 drops

# --- the daemon dies, and with it its queue: engines tell the next one what they hold
revive() {
    stop "$queued_pid" KILL
    restart_queued
}
new_id() { od -An -N16 -tx1 /dev/urandom | tr -d ' \n'; }
id=$(new_id)
fakeclient --id "$id" --no-watch submit >"$tmp/got"
wait_for 5 grep -q "req $id leased" "$log"
before=$(leases)
revive
ok "a daemon that was started anew is told of what the engine holds" wait_for 10 grep -q "req $id of .* is known again by job 7" "$log"
is "$(fakeclient --wait 20 --id "$id" --quiet attach | tail -n 2)" "text $(words 100)
done stop 3+100 -" "its owner finds the answer, all of it"
is "$(leases)" "$before" "the new daemon did not lease it again"
other() { as 12345 fakeclient "$@"; }
if [[ $(id -u) == 0 ]]; then
    is "$(other --id "$id" attach)" "refused 3 the request is another user's" "it is still his alone"
else
    skip 1 "only root can be somebody else"
fi
wait_for 5 serves 7
id=$(new_id)
start quick fakeengine --keeps --tokens 5 --job 9
quick=$pid
wait_for 5 serves 9
kill -STOP "$engine"
ask --id "$id" # by the quick one, which has ended it before the daemon dies
wait "$client"
revive
ok "an answer that had ended is told of, too" wait_for 10 grep -q "req $id of .* is known again by job 9" "$log"
is "$(fakeclient --id "$id" --quiet attach | tail -n 1)" "done stop 3+5 -" "and can be fetched again"
stop "$quick"
kill -CONT "$engine"
wait_for 10 serves 7
ask
answered 100 "the same engine then"

# --- k3served
stop "$engine"
model=$tmp/tiny-a
k3mkmodel "$top_srcdir/etc/models/tiny-a.json" "$model" >/dev/null || exit 1
echo "k3served = { model = \"$model\"; max_context = 4096; };" >>"$K3_CONF"
question=(--prompt-tokens "768,12,500" --max-tokens 1500 --temperature 0 --ignore-eos --output tokens)
right=$(k3run --model "$model" --threads 1 "${question[@]}")
some() { [[ $(wc -c <"$tmp/answer") -gt 1 ]]; }
# real NAME : a k3served, and a question to it that has begun.
real() {
    start "$1" k3served
    engine=$pid
    wait_for 20 serves "$engine"
    k3submit "${question[@]}" </dev/null >"$tmp/answer" 2>"$tmp/err" &
    client=$!
    wait_for 10 grep -q "leased to job $engine" "$log"
}
right_answer() {
    wait "$client"
    is "$? $(cksum <"$tmp/answer") $(<"$tmp/err")" "0 $(cksum <<<"$right") " "$1: its answer is what k3run makes"
}
real served
away "$queued_pid" 3
right_answer "k3served, while the daemon stood still"
like "$(cat "$tmp/log/served.log")" "the daemon is silent: going on with 1 requests.*the daemon goes on with 1 of 1 requests" \
    "it has kept what it made"
is "$(grep -c "leased to job $engine" "$log")" 1 "and made nothing twice"
k3submit "${question[@]}" </dev/null >"$tmp/answer" 2>"$tmp/err" &
client=$!
leased_again() { [[ $(grep -c "leased to job $engine" "$log") -gt 1 ]]; }
wait_for 5 leased_again
kill -STOP "$engine"
wait_for 5 lost "$engine"
kill -CONT "$engine"
right_answer "k3served that was lost and came back"
is "$(grep -c "leased to job $engine" "$log") $(grep -c "goes on with it" "$log" | sed 's/^[1-9].*/some/')" "2 some" "by its first lease"
question_of() { k3submit "${question[@]}" </dev/null >"$tmp/answer" 2>"$tmp/err" & client=$!; }
question_of
wait_for 5 grep -q "leased to job $engine" "$log"
ok "an answer of k3served begins" wait_for 5 some
before=$(leases)
revive
right_answer "k3served whose daemon was killed and started again"
is "$(leases)" "$before" "by its first lease"
wait_for 10 serves "$engine"
kill -STOP "$engine"
accepted=$(grep -c "accepted from" "$log")
question_of
accepts() { [[ $(grep -c "accepted from" "$log") -gt $accepted ]]; }
ok "a request that no engine has begun with" wait_for 5 accepts
revive
kill -CONT "$engine"
right_answer "which k3submit asks again of the next daemon"
stop "$engine"

echo "k3served = { model = \"$model\"; max_context = 4096; away_timeout = 0.5; };" >"$tmp/served"
sed -i "/^k3served/d" "$K3_CONF"
cat "$tmp/served" >>"$K3_CONF"
real hasty
away "$queued_pid" 4
right_answer "k3served that waits for half a second only"
like "$(cat "$tmp/log/hasty.log")" "the daemon has been away for too long: dropping 1 answers" "dropped what it had"
done_testing
