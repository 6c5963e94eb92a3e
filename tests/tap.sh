# shellcheck shell=bash
# tap.sh : what every test script here starts from.  Source it; it is bash.
#
#     . "${top_srcdir:-$(dirname "$0")/..}/tests/tap.sh"
#     need slurmctld munged                      # or the whole script is skipped, with that reason
#     start_queued
#     is "$(k3queue -h)" "" "the queue of a fresh daemon is empty"
#     done_testing                               # checks the daemons' logs, prints the plan
#
# $tmp is a short directory of this script's own; logs go to $tmp/log.  Whatever was started through these helpers is ended
# when the script ends, however it ends.  After a failure $tmp stays, and its name is printed.
set -uo pipefail

top_srcdir=$(cd "${top_srcdir:-$(dirname "$0")/..}" && pwd)
top_builddir=${top_builddir:-$top_srcdir}
# Sockets live in it: short whatever TMPDIR is, and open to clients of other users, which munged insists on.
tmp=$(mktemp -d /tmp/k3t.XXXXXX) || exit 99
chmod 755 "$tmp"
mkdir "$tmp/log"
PATH=$PATH:/usr/sbin:/sbin
export LC_ALL=C

# How many times as long anything may take: configure knows it, of builds that are slow by themselves.
slowness=${K3_TEST_SLOWNESS:-1}
# Seconds without a word of an engine, which may have to start first on a busy machine, after which a client gives up.
export patience=$((240 * slowness))

tap_count=0 tap_failed=0 tap_planned=
tap_slurm=''
tap_pids=() tap_at_exit=() tap_expected=()
secret=

# --- results

diag() { printf '%s\n' "$*" | sed 's/^/# /'; }

# plan N : say how many tests come.  Without it done_testing says it at the end.
plan() {
    tap_planned=$1
    echo "1..$1"
}

skip_all() {
    echo "1..0 # SKIP $*"
    exit 0
}

# need PROGRAM... : skip the whole script when one is not there.
need() {
    local program
    for program; do
        command -v "$program" >/dev/null || skip_all "$program is not installed"
    done
}

# need_mpi : skip the whole script without MPI in this build and Open MPI's mpirun.
need_mpi() {
    need mpirun
    grep -q '^#define HAVE_MPI 1' "$top_builddir/config.h" || skip_all "built without MPI"
    mpirun --version 2>&1 | grep -q 'Open MPI' || skip_all "mpirun is not Open MPI's"
}

# mpi RANKS COMMAND... : on this machine, whatever its cores, root or not.
mpi() {
    local ranks=$1
    shift
    OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 timeout $((300 * slowness)) mpirun --oversubscribe -n "$ranks" "$@"
}

# as UID PROGRAM ARGUMENT... : as somebody else, which only root can be.  It runs a copy in $tmp, since the tree may be closed
# to others.
as() {
    local uid=$1 program=$2
    shift 2
    [[ -e $tmp/$program ]] || cp "$(command -v "$program")" "$tmp/"
    setpriv --reuid="$uid" --regid="$uid" --clear-groups "$tmp/$program" "$@"
}

# result STATUS TITLE : one line of TAP.
result() {
    tap_count=$((tap_count + 1))
    if [[ $1 == 0 ]]; then
        echo "ok $tap_count - $2"
    else
        tap_failed=$((tap_failed + 1))
        echo "not ok $tap_count - $2"
        return 1
    fi
}

# ok TITLE COMMAND... : COMMAND succeeds.
ok() {
    local title=$1 output status
    shift
    output=$("$@" 2>&1)
    status=$?
    result $status "$title" || diag "'$*' ended with $status: $output"
}

# fails CODE TITLE COMMAND... : COMMAND ends with CODE.
fails() {
    local code=$1 title=$2 output status
    shift 2
    output=$("$@" 2>&1)
    status=$?
    [[ $status == "$code" ]]
    result $? "$title" || diag "'$*' ended with $status, not $code: $output"
}

# is GOT WANTED TITLE
is() {
    [[ $1 == "$2" ]]
    result $? "$3" || diag "got:    $1"$'\n'"wanted: $2"
}

# like GOT REGEX TITLE
like() {
    [[ $1 =~ $2 ]]
    result $? "$3" || diag "got:            $1"$'\n'"does not match: $2"
}

# comes_to SECONDS REGEX TITLE COMMAND... : what COMMAND prints matches, sooner or later.
comes_to() {
    local seconds=$1 regex=$2 title=$3 got
    shift 3
    wait_for "$seconds" tap_prints "$@"
    result $? "$title" || diag "'$*' still says: $got"$'\n'"does not match: $regex"
}
tap_prints() {
    got=$("$@" 2>&1)
    [[ $got =~ $regex ]]
}

# skip N REASON : N tests that could not be made.
skip() {
    local i
    for ((i = 0; i < $1; i++)); do
        tap_count=$((tap_count + 1))
        echo "ok $tap_count # SKIP $2"
    done
}

done_testing() {
    check_logs
    [[ $tap_planned ]] || plan "$tap_count"
    [[ $tap_failed == 0 && $tap_planned == "$tap_count" ]]
    exit
}

# --- logs

# expect_error REGEX : lines with ": err:" that match are part of the test.
expect_error() { tap_expected+=(-e "$1"); }

# plant_secret : sets $secret, a string for prompts, which then must not turn up in any log.
plant_secret() { secret="hush$RANDOM$RANDOM$RANDOM"; }

unexpected_errors() {
    grep -rhF ': err: ' "$tmp/log" | if ((${#tap_expected[@]})); then grep -vE "${tap_expected[@]}"; else cat; fi
}

# Two more results for a script that has logs.
check_logs() {
    [[ $(ls -A "$tmp/log") ]] || return 0
    is "$(unexpected_errors)" "" "no unexpected error is in the logs"
    [[ ! $secret ]] || is "$(grep -rlF "$secret" "$tmp/log")" "" "no log holds prompt text"
}

# --- processes

# wait_for SECONDS COMMAND... : until COMMAND succeeds.  The seconds are those of a machine at leisure; a busy one gets more.
wait_for() {
    local end=$((SECONDS + $1 * 4 * slowness))
    shift
    until "$@" >/dev/null 2>&1; do
        ((SECONDS < end)) || return 1
        sleep 0.05
    done
}

# start NAME COMMAND... : in the background with its output in $tmp/log/NAME.log; sets $pid.
start() {
    local name=$1
    shift
    "$@" </dev/null >>"$tmp/log/$name.log" 2>&1 &
    pid=$!
    tap_pids+=("$pid")
}

# stop PID [SIGNAL] : end one of ours and wait; its exit status is left in $?.
stop() {
    kill "-${2:-TERM}" "$1" 2>/dev/null
    wait "$1" 2>/dev/null
}

# at_exit COMMAND : a word or function to run when the script ends, the newest first.
at_exit() { tap_at_exit=("$1" "${tap_at_exit[@]}"); }

tap_cleanup() {
    local status=$? command pid
    trap - EXIT
    for command in "${tap_at_exit[@]}"; do
        "$command"
    done >&2
    for pid in "${tap_pids[@]}"; do
        kill "$pid" 2>/dev/null
    done
    for pid in "${tap_pids[@]}"; do
        wait_for 5 tap_gone "$pid" || kill -KILL "$pid" 2>/dev/null
    done
    if [[ $status == 0 ]]; then
        rm -rf "$tmp"
    else
        diag "files are kept in $tmp"
    fi
    exit $status
}
tap_gone() { ! kill -0 "$1"; }
trap tap_cleanup EXIT
trap 'exit 143' TERM HUP
trap 'exit 130' INT

# --- daemons

# start_munged : a private one; sets $munge_socket.
start_munged() {
    need munged mungekey
    munge_socket=$tmp/munge.sock
    mungekey -c -k "$tmp/munge.key"
    start munged munged --foreground --key-file="$tmp/munge.key" --socket="$munge_socket" --pid-file="$tmp/munge.pid" \
        --log-file="$tmp/log/munged.log" --seed-file="$tmp/munge.seed" --num-threads=2
    wait_for 5 test -S "$munge_socket" || diag "munged did not start: $(cat "$tmp/log/munged.log")"
}

# start_slurm [NODES [OPTION...]] : a private cluster; sets $munge_socket and SLURM_CONF.
start_slurm() {
    local nodes=${1:-4}
    shift || true
    need slurmctld slurmd srun munged mungekey
    at_exit tap_stop_slurm
    tap_slurm=yes
    if ! "$top_srcdir/contrib/minislurm" "$@" up "$tmp/slurm" "$nodes" >"$tmp/slurm.out" 2>&1; then
        diag "$(cat "$tmp/slurm.out")"
        exit 1
    fi
    export SLURM_CONF=$tmp/slurm/etc/slurm.conf
    munge_socket=$tmp/slurm/munge/sock
}
tap_stop_slurm() { "$top_srcdir/contrib/minislurm" down "$tmp/slurm"; }

# write_conf TEXT : $tmp/k3.conf, for every k3 program that this script runs: where the daemons are, then TEXT.
# Without a Slurm of this script's own there are no jobs to be checked.
write_conf() {
    local text=${1-} unchecked='check_job = "no"; state_dir = "'$tmp'/state";'
    export K3_CONF=$tmp/k3.conf
    [[ ! $tap_slurm ]] || unchecked='state_dir = "'$tmp'/state";'
    [[ $text == *'k3queued = {'* ]] || text+=$'\nk3queued = { };'
    cat >"$K3_CONF" <<END
common = { socket = "ipc://$tmp/k3queued.sock"; munge_socket = "$munge_socket";};
${text/'k3queued = {'/"k3queued = { $unchecked"}
END
}

# start_queued [TEXT] : munged if there is none yet, k3.conf with TEXT, k3queued; sets $queued_pid.
start_queued() {
    [[ ${munge_socket-} ]] || start_munged
    write_conf "${1-}"
    restart_queued
}

# restart_queued : with the k3.conf that is there, until it answers.
restart_queued() {
    rm -f "$tmp/k3queued.sock" # of the one before
    start k3queued k3queued
    queued_pid=$pid
    wait_for 10 k3info || diag "k3queued did not start: $(tail -n 5 "$tmp/log/k3queued.log")"
}

stop_queued() { stop "$queued_pid"; }
