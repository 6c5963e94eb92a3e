#!/bin/bash
# SIGHUP: k3queued takes a whole valid k3.conf over, or nothing of it.
. "${top_srcdir:-$(dirname "$0")/..}/tests/tap.sh"
PATH=$top_builddir/src/queue/test:$PATH

# The daemon has a file of its own, so that clients need not read the mistakes in it.
log=$tmp/log/k3queued.log conf=$tmp/daemon.conf
write_daemon_conf() { sed '2,$d' "$K3_CONF" >"$conf" && echo "$1" >>"$conf"; }
# reload TEXT PATTERN : with TEXT in the daemon's file, SIGHUP; until the log has one more line like PATTERN.
reload() {
    local before
    before=$(grep -cE "$2" "$log")
    write_daemon_conf "$1"
    kill -HUP "$queued_pid"
    wait_for 5 more_than "$before" "$2"
}
more_than() { (($(grep -cE "$2" "$log") > $1)); }

start_munged
write_conf
write_daemon_conf 'k3queued = { heartbeat = 0.2; };'
export NOTIFY_SOCKET=$tmp/notify
fakeclient --pause 30 systemd >"$tmp/told" &
systemd=$!
wait_for 5 test -S "$NOTIFY_SOCKET"
start k3queued k3queued -f "$conf"
queued_pid=$pid
wait_for 5 k3info
ok "systemd is told when the daemon is ready" wait_for 5 grep -qx READY=1 "$tmp/told"
ok "a request waits" fakeclient --no-watch submit
ok "a valid file is taken over" reload 'k3queued = { heartbeat = 0.2; max_queued = 1; };' "settings reloaded"
is "$(fakeclient --no-watch submit)" "refused 4 the queue is full: 1 requests (k3queued.max_queued)" "and counts from now on"
is "$(fakeclient list | wc -l)" 1 "what is in the queue stays there"
expect_error "not reloaded"
ok "a file with a mistake is not" reload 'k3queued = { max_queued = 5;
max_tokens = "many"; };' "not reloaded"
like "$(grep "not reloaded" "$log")" "everything stays as it was: $conf:3: k3queued.max_tokens: text in quotes is not a whole number" \
    "the log says file, line and what is wrong"
is "$(fakeclient --no-watch submit)" "refused 4 the queue is full: 1 requests (k3queued.max_queued)" "and nothing of it counts"
ok "a user that does not exist is a mistake too" reload 'k3queued = { max_queued = 5; user = "no such user"; };' \
    'not reloaded.*k3queued.user = "no such user"'
is "$(fakeclient --no-watch submit)" "refused 4 the queue is full: 1 requests (k3queued.max_queued)" "which leaves all as it was"
ok "what cannot change while it runs is named" reload 'k3queued = { heartbeat = 0.3; max_queued = 5; };' \
    "k3queued.heartbeat stays 0.2; a restart makes it 0.3"
ok "and the rest is taken over" fakeclient --no-watch submit
ok "log_level is, too" reload 'k3queued = { heartbeat = 0.2; };' "settings reloaded"
sed -i '/^common/s/};$/ log_level = "warning"; };/' "$conf"
kill -HUP "$queued_pid"
reloads() { [[ $(grep -c RELOADING "$tmp/told") == "$1" && $(tail -n 1 "$tmp/told") == READY=1 ]]; }
wait_for 5 reloads 6
lines=$(wc -l <"$log")
fakeclient --no-watch submit >/dev/null
is "$(wc -l <"$log")" "$lines" "with less in the log then"
ok "the daemon lives" kill -0 "$queued_pid"
stop_queued
is $? 0 "and ends cleanly"
wait $systemd
is "$(grep -vE "MONOTONIC_USEC=[0-9]+$" "$tmp/told" | tr '\n' ' ')" \
    "READY=1 $(for _ in 1 2 3 4 5 6; do printf 'RELOADING=1 READY=1 '; done)STOPPING=1 " "systemd was told of every reload and of the end"
done_testing
