#!/bin/bash
# A user or a host that takes too many connections, or sends without an end, is in nobody's way.
. "${top_srcdir:-$(dirname "$0")/..}/tests/tap.sh"
PATH=$top_builddir/src/queue/test:$PATH
[[ $(id -u) == 0 ]] || skip_all "only root can be somebody else"
need setpriv

port=$((20000 + $$ % 12000)) # below those that the kernel gives away
other() { as 12345 fakeclient "$@"; }
log=$tmp/log/k3queued.log
resident_mib() { awk '/^VmRSS/ { print int($2 / 1024) }' "/proc/$queued_pid/status"; }
answered() { other --wait 1 info | grep "^queued"; }

start_queued "k3queued = { listen = \"tcp://lo:$port\"; heartbeat = 0.2; max_connections_per_peer = 50; };"

# --- connections
other --pause 3 crowd >"$tmp/crowd" &
crowd=$!
ok "the log says whose connections are too many" wait_for 5 grep -q \
    "connections were refused: uid 12345 has 50, which is the most (k3queued.max_connections_per_peer)" "$log"
like "$(fakeclient info)" "^queued 0" "another user is answered"
is "$(answered)" "" "one of them has to wait"
wait "$crowd"
ok "until they have gone" wait_for 5 answered
(
    fds=()
    for ((i = 0; i < 100; i++)); do
        exec {fd}<>"/dev/tcp/127.0.0.1/$port" && fds+=("$fd")
    done
    sleep 1
) 2>/dev/null
ok "a host is named by its address" wait_for 5 grep -q "connections were refused: 127.0.0.1 has 50" "$log"
sed -i 's/max_connections_per_peer = 50/max_connections_per_peer = 2000/' "$K3_CONF"
kill -HUP "$queued_pid"
wait_for 5 grep -q "settings reloaded" "$log"
sleep 0.5
refused=$(grep -c "connections were refused: uid" "$log")
other --pause 1 crowd >"$tmp/crowd"
sleep 0.5
is "$(grep -c "connections were refused: uid" "$log")" "$refused" "the limit can be changed while the daemon runs"

# --- bytes
before=$(resident_mib)
# The thousand have hardly left: a connection that is lost for another reason says nothing of the limit.
for _ in 1 2 3; do
    got=$(other endless)
    [[ ! $got =~ 'after 1'[0-9][0-9]' MiB' ]] || break
    diag "$got"
done
like "$got" "^cut after 1[0-9]{2} MiB: " "a message without an end is cut"
ok "the log says whose" wait_for 5 grep -q "connections were cut, the last of uid 12345: more came than can be read (128 MiB)" "$log"
for i in 1 2 3; do other endless >/dev/null; done
is "$(($(resident_mib) - before < 400))" 1 "its memory is given back" || diag "$before MiB before, $(resident_mib) now"
for i in 1 2 3 4; do other endless >"$tmp/endless.$i" & pids[i]=$!; done
wait "${pids[@]}"
is "$(cat "$tmp"/endless.* | grep -c "^cut")" 4 "several connections have no more than one"
is "$(awk '{ n += $3 } END { print (n < 400) }' "$tmp"/endless.*)" 1 "all together" || diag "$(cat "$tmp"/endless.*)"
like "$(answered)" "^queued 0" "and the user himself is served when he behaves"
ok "it is the same daemon" kill -0 "$queued_pid"
done_testing
