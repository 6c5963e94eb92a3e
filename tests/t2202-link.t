#!/bin/bash
# Daemon, client and engine on three hosts, and cables that are pulled: one answer, with nothing lost and nothing repeated.
. "${top_srcdir:-$(dirname "$0")/..}/tests/tap.sh"
. "$top_srcdir/tests/netns.sh"
PATH=$top_builddir/src/queue/test:$PATH

words() { local i; for ((i = 0; i < $1; i++)); do printf 'w%d ' "$i"; done; }
# connections : that the daemon's host believes to have; every process of another host has one.
connections() { on login ss -Htn state established 'sport = :7420' | wc -l; }
some_connections() { [[ $(connections) == "$1" ]]; }
has() { [[ $(wc -w <"$1") -ge $2 ]]; }
count() { grep -c "$1" "$2"; }
ended() { [[ $(count "(stop): [0-9]* prompt and 40 answer tokens" "$tmp/log/k3queued.log") == "$1" ]]; }

need ss
start_hosts login node desk
start_munged
write_conf 'k3queued = { listen = "tcp://eth0"; heartbeat = 0.2; engine_timeout = 2.0; };'
start_on login k3queued k3queued
wait_for 10 test -S "$tmp/k3queued.sock"
cat >"$tmp/far.conf" <<END
common = {
    socket = "ipc://$tmp/nowhere";
    munge_socket = "$munge_socket";
    server = "tcp://10.231.8.11";
    server_key = "$tmp/state/k3queued.pub";
    timeout = 20.0;
};
END
export K3_CONF=$tmp/far.conf

# --- all is well
start_on node engine fakeengine --keeps --rate 10 --tokens 40
engine=$pid
wait_for 5 grep -q serving "$tmp/log/engine.log"
like "$(on desk k3info)" "fake-model" "a client on one host is told of the engine on another"
is "$(on desk k3submit --max-tokens 5 text </dev/null)" "$(words 5)" "and has its answer"

# --- the engine is cut off
on desk k3submit text </dev/null >"$tmp/answer" 2>"$tmp/err" &
client=$!
ok "an answer begins" wait_for 10 has "$tmp/answer" 5
link node down
ok "the engine that is cut off is lost after engine_timeout" wait_for 10 grep -q "job 7 engine on fake is lost with 1 requests" "$tmp/log/k3queued.log"
link node up
wait "$client"
is "$? $(cat "$tmp/answer")" "0 $(words 40)" "back on the network it registers again and the answer is whole"
is "$(count welcome "$tmp/log/engine.log" | sed 's/^[2-9]$/more than one/')" "more than one" "by another HELLO of the same engine"
is "$(count "lease from" "$tmp/log/engine.log") $(count "resumed from" "$tmp/log/engine.log")" "2 1" "which has kept what it made"

# --- the client is cut off, for so long that the daemon has to notice
ok "of the engine's connections the daemon has one again" wait_for 16 some_connections 1
on desk k3submit text </dev/null >"$tmp/answer" 2>"$tmp/err" &
client=$!
ok "another begins" wait_for 10 has "$tmp/answer" 5
ok "while the daemon has two connections" wait_for 5 some_connections 2
link desk down
ok "a half-open one is noticed, though nothing comes to say so" wait_for 16 some_connections 1
ok "meanwhile the engine has ended the answer" wait_for 5 ended 2
link desk up
wait "$client"
is "$? $(cat "$tmp/answer")" "0 $(words 40)" "the client takes it up where it was"

# --- the daemon is cut off, for less
on desk k3submit text </dev/null >"$tmp/answer" 2>"$tmp/err" &
client=$!
wait_for 10 has "$tmp/answer" 5
link login down
sleep 1
link login up
wait "$client"
is "$? $(cat "$tmp/answer")" "0 $(words 40)" "a short cut is not seen in an answer"
# --- the real engine is cut off
stop "$engine"
model=$tmp/tiny-a
k3mkmodel "$top_srcdir/etc/models/tiny-a.json" "$model" >/dev/null || exit 1
echo "k3served = { model = \"$model\"; max_context = 2048; };" >>"$K3_CONF"
start_on node k3served k3served
ok "k3served registers over tcp" wait_for 20 grep -q "job $pid engine on .* to serving" "$tmp/log/k3queued.log"
on desk k3submit --prompt-tokens 768,12,500 --max-tokens 600 --temperature 0 --ignore-eos --output tokens >"$tmp/answer" 2>"$tmp/err" &
client=$!
ok "it has an answer to make" wait_for 10 grep -q "leased to job $pid" "$tmp/log/k3queued.log"
link node down
ok "and is lost with it" wait_for 10 grep -q "job $pid engine on .* is lost with 1 requests" "$tmp/log/k3queued.log"
link node up
wait "$client"
is "$? $(cksum <"$tmp/answer")" "0 $(k3run --model "$model" --threads 1 --prompt-tokens 768,12,500 --max-tokens 600 \
    --temperature 0 --ignore-eos --output tokens | cksum)" "the answer is what k3run makes alone"
is "$(count "leased to job $pid" "$tmp/log/k3queued.log") $(count "job $pid goes on with it" "$tmp/log/k3queued.log")" "1 1" \
    "and k3served has made it once"
done_testing
