#!/bin/bash
# The daemon on tcp: who gets in, with which key, for which job, and how many.
. "${top_srcdir:-$(dirname "$0")/..}/tests/tap.sh"
PATH=$top_builddir/src/queue/test:$PATH

port=$((20000 + $$ % 12000)) # below those that the kernel gives away
key() { cat "$tmp/state/k3queued.pub"; }
words() { local i; for ((i = 0; i < $1; i++)); do printf 'w%d ' "$i"; done; }
log() { cat "$tmp/log/k3queued.log"; }

# elsewhere FILE SETTING... : a k3.conf of a host that has no socket of the daemon.
elsewhere() {
    local file=$1
    shift
    echo "common = { socket = \"ipc://$tmp/nowhere\"; munge_socket = \"$munge_socket\"; timeout = 1.0; $* };" >"$tmp/$file"
}
# far COMMAND... : as on such a host.
far() { K3_CONF=$tmp/far.conf "$@"; }
# listens_on ENDPOINT : what the daemon says about it.
listens_on() {
    write_conf "k3queued = { listen = \"$1\"; };"
    timeout 5 k3queued 2>&1 | sed -n 's/.*err: //p'
}

# --- where it listens
start_munged
like "$(listens_on 'tcp://*:7420')" 'k3queued.listen = "tcp://\*:7420": these are all interfaces; name one' "all interfaces are refused"
like "$(listens_on tcp://0.0.0.0:7420)" "these are all interfaces" "as an address too"
like "$(listens_on tcp://no-such-interface)" "tcp://no-such-interface:7420: cannot listen" "an interface that is not there is named"
like "$(listens_on lo:7420)" "not an interface or address as in tcp://eth0:7420" "what is no endpoint is told how one is written"

# --- its key
start_queued "k3queued = { listen = \"tcp://lo:$port\"; heartbeat = 0.2; engine_timeout = 1.0; };"
is "$(stat -c %a "$tmp/state/k3queued.key")" 600 "the secret half of the key is the daemon's alone"
is "$(stat -c %a "$tmp/state/k3queued.pub")" 644 "the public half everybody's"
like "$(log)" "listens on tcp://lo:$port, common.server_key = \"$(key)\"" "the log says what clients are to know"
first=$(key)
stop_queued
restart_queued
is "$(key)" "$first" "the next start has the same key"
stop_queued
chmod 640 "$tmp/state/k3queued.key"
like "$(k3queued 2>&1)" "k3queued.key: it is secret, so it is to be this user's and of mode 600" "a secret that others can read is refused"
expect_error "it is secret"
chmod 600 "$tmp/state/k3queued.key"
restart_queued

# --- clients
elsewhere far.conf "server = \"tcp://127.0.0.1:$port\"; server_key = \"$(key)\";"
like "$(far fakeclient info)" "^queued 0" "a client of another host is answered"
elsewhere far.conf "server = \"tcp://127.0.0.1:$port\"; server_key = \"$tmp/state/k3queued.pub\";"
like "$(far fakeclient info)" "^queued 0" "the key may be in a file"
elsewhere wrong.conf "server = \"tcp://127.0.0.1:$port\"; server_key = \"$(tr 0-9a-f a-f0-9 <"$tmp/state/k3queued.pub")\";"
is "$(K3_CONF=$tmp/wrong.conf k3info 2>&1)" "k3info: tcp://127.0.0.1:$port: k3queued does not answer within 1 s; it may be \
down, or common.server_key not the key that it has now" "with another key nobody is answered, and why is said"
elsewhere wrong.conf "server = \"tcp://127.0.0.1:$port\";"
is "$(K3_CONF=$tmp/wrong.conf k3info 2>&1)" "k3info: common.server = \"tcp://127.0.0.1:$port\" needs common.server_key, which \
k3queued logs when it starts" "without a key it is not even tried"
echo "common = { socket = \"tcp://127.0.0.1:$port\"; munge_socket = \"$munge_socket\"; };" >"$tmp/wrong.conf"
is "$(K3_CONF=$tmp/wrong.conf fakeclient --wait 1 info)" "silence" "what is not encrypted does not get through"
like "$(fakeclient info)" "^queued 0" "on the daemon's own host its socket is enough"

# --- engines
far start engine fakeengine --rate 100 --tokens 20
engine=$pid
is "$(far fakeclient --quiet --wait 40 submit | tail -n 2)" "text $(words 20)
done stop 3+20 -" "a client and an engine over tcp"
stop "$engine"
is "$(far fakeengine --job 8 --key "$(key)" 2>&1 | grep refused)" \
    "refused 3 the engine's credential is for another connection's key" "a credential for another key is refused"

# --- their jobs, as a squeue says that stands in for Slurm's
mkdir "$tmp/bin"
PATH=$tmp/bin:$PATH
squeue_is() {
    printf '#!/bin/bash\necho "$*" >>%s\n%s\n' "$tmp/asked" "$1" >"$tmp/bin/squeue"
    chmod 755 "$tmp/bin/squeue"
}
squeue_is 'printf "11\n12\n"'
stop_queued
sed -i 's/check_job = "no"/check_job = "auto"/' "$K3_CONF"
restart_queued
ok "where there is a squeue it is asked" wait_for 5 grep -q "engines are running jobs of uid $(id -u)" "$tmp/log/k3queued.log"
far start live fakeengine --job 12
live=$pid
ok "an engine of a running job is taken" wait_for 5 grep -q welcome "$tmp/log/live.log"
is "$(sort -u "$tmp/asked")" "--noheader --states=RUNNING --format=%A --user $(id -u)" "squeue is asked for that user's running jobs"
is "$(far fakeengine --job 1 | grep refused | sort -u)" \
    "refused 3 job 1 is no running job of uid $(id -u) (k3queued.user, k3queued.check_job)" "one of another job is refused"
squeue_is 'echo "slurm_load_jobs error: Unable to contact slurm controller" >&2; exit 1'
is "$(far fakeengine --job 11 | grep 'refused 1')" \
    "refused 1 job 11 cannot be checked: slurm_load_jobs error: Unable to contact slurm controller" \
    "when Slurm does not answer nobody is taken, and nobody for good refused"
is "$(fakeclient info | grep -c ^engine)" 1 "who is registered stays"
stop "$live"

# --- more connections than descriptors
stop_queued
start k3queued bash -c 'ulimit -n 200; exec k3queued'
queued_pid=$pid
wait_for 10 fakeclient info
like "$(fakeclient --pause 0.5 crowd)" "crowd of [1-9]" "a crowd comes"
like "$(fakeclient info)" "^queued 0" "the daemon is there when it has left"
(
    fds=()
    for ((i = 0; i < 300; i++)); do
        exec {fd}<>"/dev/tcp/127.0.0.1/$port" && fds+=("$fd")
    done
    sleep 0.5
    echo "${#fds[@]}"
) >"$tmp/crowd" 2>/dev/null
is "$(cat "$tmp/crowd")" 300 "another comes by tcp"
like "$(far fakeclient info)" "^queued 0" "and leaves it there too"
ok "the log counts those that were turned away" wait_for 5 grep -q "connections were refused: 136 at a time is the most" "$tmp/log/k3queued.log"
ok "it is the same daemon" kill -0 "$queued_pid"
done_testing
