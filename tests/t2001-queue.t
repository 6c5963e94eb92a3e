#!/bin/bash
# k3queued with a pretended engine: requests from submission to erasure.
. "${top_srcdir:-$(dirname "$0")/..}/tests/tap.sh"
PATH=$top_builddir/src/queue/test:$PATH

# words N : the text of an answer of N tokens.
words() { local i; for ((i = 0; i < $1; i++)); do printf 'w%d ' "$i"; done; }
new_id() { od -An -N16 -tx1 /dev/urandom | tr -d ' \n'; }
# state_of ID
state_of() { fakeclient --prefix "$1" list | awk '{print $5}'; }
is_state() { [[ $(state_of "$1") == "$2" ]]; }

plant_secret
start_queued ""

# --- without an engine
is "$(fakeclient info)" "queued 0 running 0 model -" "a fresh daemon has nothing"
first=$(new_id) second=$(new_id)
is "$(fakeclient --id "$first" --no-watch --text "$secret" submit)" "accepted place 1 NoEngine" "a request waits for an engine"
is "$(fakeclient --id "$second" --no-watch submit)" "accepted place 2 NoEngine" "the second stands behind it"
is "$(fakeclient --id "$second" --no-watch submit)" "accepted place 2 NoEngine" "sent again it is the same request"
is "$(fakeclient list)" "row $first root fake QUEUED place 1 NoEngine job 0 tokens 0+0
row $second root fake QUEUED place 2 NoEngine job 0 tokens 3+0" "both are listed"
is "$(fakeclient --prefix "${first:0:12}" list | wc -l)" 1 "an id can be looked up by its beginning"
is "$(fakeclient --id "$second" cancel)" ok "a waiting request is cancelled"
is "$(fakeclient --id "$second" cancel)" ok "cancelling it again changes nothing"
is "$(state_of "$second")" CANCELLED "and it says so"
is "$(fakeclient --id "$second" ack)" ok "its end is acknowledged"
is "$(fakeclient --id "$(new_id)" cancel)" "refused 1 no such request" "an unknown request cannot be cancelled"

# --- an engine comes
start engine fakeengine --rate 100 --load 2 --tokens 30
engine=$pid
comes_to 5 "engine 7 fake loading slots 0 used 0 [0-9]+/1000 [0-9]+/2000" "loading is shown in bytes of bytes" fakeclient info
wait_for 5 is_state "$first" DONE
is "$(state_of "$first")" DONE "the request that waited is answered"
got=$(fakeclient --id "$first" --quiet attach)
is "$got" "text $(words 30)
done stop 0+30 -" "its answer is kept for whoever comes later"
is "$(fakeclient --id "$first" --off 28 attach | grep -v state)" "delta 28+1
delta 29+1
text w28 w29 
done stop 0+30 -" "and from any token on"
is "$(fakeclient --id "$first" --off 31 attach)" "refused 2 the answer has 30 tokens, not 31" "but not from behind its end"
is "$(fakeclient --id "$first" ack)" ok "delivery is acknowledged"
like "$(fakeclient --id "$first" attach)" "^refused 1 .*erased" "then the answer is gone"
is "$(fakeclient --id "$first" --no-watch submit)" "accepted place 0 None" "and the request still known"
like "$(fakeclient --prefix "$first" list)" "DONE .* tokens 0\+30" "with its usage"

# --- streaming
got=$(fakeclient --max 5 --ack submit)
is "$got" "accepted place 1 None
state QUEUED place 1 None job 0
state RUNNING place 0 None job 7
delta 0+1
delta 1+1
delta 2+1
delta 3+1
delta 4+1
text $(words 5)
done length 3+5 -
ok" "an answer is streamed"
third=$(new_id)
fakeclient --id "$third" --quiet submit >"$tmp/one" &
one=$!
wait_for 5 is_state "$third" RUNNING
fakeclient --id "$third" --quiet attach >"$tmp/two" &
two=$!
fakeclient --id "$third" --quiet --off 10 attach >"$tmp/three"
wait $one $two
is "$(tail -n 2 "$tmp/one")" "text $(words 30)
done stop 3+30 -" "a watcher from the start has all of it"
is "$(tail -n 2 "$tmp/two")" "text $(words 30)
done stop 3+30 -" "one who came later, too"
like "$(cat "$tmp/three")" "^refused 2 the answer has [0-9]+ tokens, not 10$|text w10 .* w29 " "one from token 10 has the rest"

# --- cancel while it runs
stop "$engine"
start engine fakeengine --rate 5 --tokens 1000
engine=$pid
fourth=$(new_id)
fakeclient --id "$fourth" --quiet submit >"$tmp/one" &
one=$!
wait_for 5 is_state "$fourth" RUNNING
is "$(fakeclient --id "$fourth" cancel)" ok "a running request is cancelled"
wait $one
like "$(cat "$tmp/one")" "done cancelled 3\+[0-9]+ -" "its watcher is told"
is "$(state_of "$fourth")" CANCELLED "and it is over"
comes_to 5 cancel "the engine was told" tail -n 1 "$tmp/log/engine.log"

# --- the daemon ends
fakeclient --quiet submit >"$tmp/last" &
last=$!
wait_for 5 grep -q accepted "$tmp/last"
stop_queued
is $? 0 "SIGTERM ends the daemon cleanly"
wait $last
like "$(cat "$tmp/last")" "refused 1 k3queued was stopped" "whoever waits is told"
like "$(cat "$tmp/log/k3queued.log")" "6 requests accepted" "the log has a summary"
done_testing
