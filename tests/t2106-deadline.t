#!/bin/bash
# Deadlines: what is not done by then ends, wherever it is, and whoever waits for it is told.
. "${top_srcdir:-$(dirname "$0")/..}/tests/tap.sh"
PATH=$top_builddir/src/queue/test:$PATH

state() { k3queue -h -o %T "$1"; }
expired() { [[ $(state "$1") == EXPIRED ]]; }
words() { local i; for ((i = 0; i < $1; i++)); do printf 'w%d ' "$i"; done; }

start_queued 'k3queued = { heartbeat = 0.1; engine_timeout = 1.0; };'

# --- told at once
is "$(k3submit --deadline soon text 2>&1) $?" "k3submit: --deadline: soon is no time as in 17:30, 2027-01-31T09:00 or now+2hours 2" \
    "what is no time is wrong usage"
is "$(k3submit --deadline 2020-01-31 text 2>&1) $?" "k3submit: --deadline: 2020-01-31 has passed 2" "so is a time that has passed"
like "$(k3submit --help)" "--deadline TIME" "--help has it"

# --- in line
like "$(k3submit --deadline now+1 text 2>&1) $?" "^k3submit: request [0-9a-f]{8} expired: its deadline has passed 5$" \
    "a request that no engine took by then"
id=$(K3SUBMIT_DEADLINE=now+1second k3submit --no-wait --parsable text)
ok "one that nobody waits for" wait_for 5 expired "$id"
like "$(k3attach "$id" 2>&1) $?" "expired: its deadline has passed 5$" "and its end can be fetched"

# --- at an engine
start engine fakeengine --rate 40 --tokens 1000 --slots 1
engine=$pid
like "$(k3submit --deadline now+2 text 2>"$tmp/err") $?" "^w0 w1 .*w9 .* 5$" "an answer that has begun ends"
like "$(cat "$tmp/err")" "^k3submit: request [0-9a-f]{8} expired: its deadline has passed$" "with the same sentence"
comes_to 5 '^1$' "its engine is told" grep -c cancel "$tmp/log/engine.log"
is "$(k3submit --max-tokens 3 --deadline now+1hour text)" "$(words 3)" "which goes on with the next"
is "$(grep -c "does not hold it" "$tmp/log/k3queued.log")" 0 "nothing is left to be said of the first"
stop "$engine"

start deaf fakeengine --rate 10 --tokens 1000 --deaf
fails 5 "an engine that does not let go is not waited for" timeout 10 k3submit --deadline now+1 text
stop "$pid"

# --- cancelled before
id=$(k3submit --no-wait --parsable --deadline now+4 text)
k3cancel "$id"
sleep 4.2
is "$(state "$id")" CANCELLED "what has ended does not end again"
done_testing
