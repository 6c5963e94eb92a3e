#!/bin/bash
# Engines that fail: whatever they do, a user sees one answer, with nothing lost and nothing repeated.
. "${top_srcdir:-$(dirname "$0")/..}/tests/tap.sh"
PATH=$top_builddir/src/queue/test:$PATH

words() { local i; for ((i = 0; i < $1; i++)); do printf 'w%d ' "$i"; done; }
engines() { fakeclient info | grep -c '^engine'; }
some_engines() { [[ $(engines) == "$1" ]]; }
serve() { [[ $(fakeclient info | grep -c '^engine .* serving') == "$1" ]]; }
are_running() { [[ $(fakeclient info) == "queued 0 running $1 "* ]]; }

start_queued 'k3queued = { heartbeat = 0.1; engine_timeout = 1.0; stall_timeout = 1.5; };'

# answer_of TITLE FIRST-ENGINE-OPTIONS... : 20 tokens that two engines have to make.
answer_of() {
    local title=$1 first second
    shift
    start first fakeengine --rate 100 --tokens 20 "$@"
    first=$pid
    wait_for 5 some_engines 1
    fakeclient --wait 80 submit >"$tmp/got" &
    local client=$!
    wait_for 5 grep -q 'delta 4' "$tmp/got"
    start second fakeengine --rate 100 --tokens 20 --job 8
    second=$pid
    wait $client
    is "$(tail -n 2 "$tmp/got")" "text $(words 20)
done stop 3+20 -" "$title: one answer"
    is "$(sed -n 's/^delta \([0-9]*\)+1/\1/p' "$tmp/got" | sort -n | uniq | wc -l)" 20 "$title: every token once"
    stop "$first"
    stop "$second"
    wait_for 5 some_engines 0
}

answer_of "an engine that falls silent" --mute-at 5
like "$(cat "$tmp/got")" "state QUEUED place 1 EngineLost job 0" "the watcher is told that the engine was lost"
like "$(cat "$tmp/log/second.log")" "lease from 5" "the second engine goes on from the tokens of the first"
answer_of "an engine that returns its leases" --return-at 5
answer_of "an engine that leaves out a token" --lie-at 5
answer_of "an engine that repeats a token" --repeat-at 5
answer_of "an engine that ends before it has sent all" --short-at 0
like "$(cat "$tmp/log/k3queued.log")" "lease of job 7 is broken" "broken leases are in the log"

# --- the batch script sees the engine's end before the daemon could
start first fakeengine --rate 100 --tokens 20 --die-at 5
wait_for 5 some_engines 1
fakeclient --wait 80 submit >"$tmp/got" &
client=$!
wait_for 5 grep -q dies "$tmp/log/first.log"
is "$(fakeclient lost)" ok "its loss is reported"
is "$(engines)" 0 "and believed at once"
# --- and starts it again: the same job, another incarnation
start again fakeengine --rate 20 --tokens 20
wait $client
is "$(tail -n 2 "$tmp/got")" "text $(words 20)
done stop 3+20 -" "the engine's next start finishes the answer"
fakeclient --quiet --wait 80 submit >"$tmp/got" &
client=$!
wait_for 5 grep -q accepted "$tmp/got"
kill -STOP "$pid"
start third fakeengine --rate 100 --tokens 20
wait $client
is "$(tail -n 2 "$tmp/got")" "text $(words 20)
done stop 3+20 -" "a new incarnation of the job replaces the old one"
is "$(engines)" 1 "there is one engine of a job"
kill -CONT "${tap_pids[-2]}"
wait_for 5 grep -q "refused 3" "$tmp/log/again.log"
like "$(cat "$tmp/log/again.log")" "refused 3 .*says HELLO first" "what the old one still says is refused"
stop "$pid"

# --- an engine that does not stop when it is told
start deaf fakeengine --rate 5 --tokens 1000 --deaf
deaf=$pid
id=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
fakeclient --id "$id" --quiet --wait 80 submit >"$tmp/got" &
client=$!
wait_for 5 are_running 1
ok "a request is cancelled" fakeclient --id "$id" cancel
wait $client
like "$(cat "$tmp/got")" "done cancelled" "it is over though the engine goes on"
wait_for 5 grep -q 'does not hold it' "$tmp/log/k3queued.log"
sleep 0.5 # for the engine to say more
is "$(grep -c 'does not hold it' "$tmp/log/k3queued.log")" 1 "what the engine still says is ignored, and logged once"
stop "$deaf"

# --- an engine that answers and does not work
start stalled fakeengine --rate 100 --tokens 20 --stall-at 5 --stall 6 --job 8
stalled=$pid
wait_for 5 some_engines 1
fakeclient --wait 80 submit >"$tmp/got" &
client=$!
wait_for 5 grep -q 'delta 4' "$tmp/got"
wait_for 5 grep -q EngineLost "$tmp/got"
like "$(fakeclient info)" "engine 8 fake fenced slots 4 used 0" "an engine that moves no token is fenced"
wait_for 5 grep -q EngineStalled "$tmp/got"
is "$(tail -n 1 "$tmp/got")" "state QUEUED place 1 EngineStalled job 0" "whoever waits is told why"
start other fakeengine --rate 20 --tokens 20 --job 9
other=$pid
wait $client
is "$(tail -n 2 "$tmp/got")" "text $(words 20)
done stop 3+20 -" "another engine finishes its answer"
serves() { fakeclient info | grep "engine $1 fake serving" >/dev/null; }
wait_for 9 serves 8
ok "one that moves again is given work again" serves 8
stop "$other"
is "$(fakeclient --wait 80 submit | tail -n 2)" "text $(words 20)
done stop 3+20 -" "and does it"
stop "$stalled"

# --- the least loaded engine is next: two of eight slots are less than one of two
start small fakeengine --slots 2 --rate 10 --tokens 1000 --job 1
small=$pid
start large fakeengine --slots 8 --rate 10 --tokens 1000 --job 2
large=$pid
wait_for 5 serve 2
for i in 1 2 3 4 5; do
    fakeclient --no-watch --quiet submit >/dev/null
    wait_for 5 are_running $i
done
used() { fakeclient info | sed -n "s/^engine $1 .* used \([0-9]*\) .*/\1/p"; }
is "$(used 1)+$(used 2)" "1+4" "five requests are dealt by load"
for id in $(fakeclient list | awk '{ print $2 }'); do fakeclient --id "$id" cancel >/dev/null; done
stop "$small"
stop "$large"

# --- several requests over two engines, one of which dies
start one fakeengine --slots 4 --rate 50 --tokens 40 --job 1
start two fakeengine --slots 4 --rate 50 --tokens 40 --job 2 --mute-at 60
wait_for 5 serve 2
for i in 1 2 3 4 5 6 7 8 9 10 11 12; do
    fakeclient --quiet --wait 120 submit >"$tmp/many.$i" &
    clients[i]=$!
done
wait "${clients[@]}"
is "$(tail -qn 2 "$tmp"/many.* | sort | uniq -c | sed 's/^ *//')" "12 done stop 3+40 -
12 text $(words 40)" "twelve answers are whole"
is "$(grep -c lease "$tmp/log/two.log" | sed 's/^[1-9].*/some/')" some "the second engine had a part in them"

# --- limits
is "$(fakeclient --prompt 4000 --max 100 submit)" \
    "refused 2 prompt and answer are 4100 tokens, the engine's longest context is 4096" "what fits no engine is refused"
done_testing
