#!/bin/bash
# Jobs that Slurm ends under the engine, a pretended one: cancelled, requeued, their node down.  Each time a user sees one answer.
. "${top_srcdir:-$(dirname "$0")/..}/tests/tap.sh"
start_slurm 3 --gpus 1 # for a k3serve.sbatch that was built with CUDA

mkdir "$tmp/bin"
cat >"$tmp/bin/k3served" <<END
#!/bin/bash
[[ ! \${1-} ]] || exec $(command -v k3served) "\$@"
[[ \$SLURM_PROCID == 0 ]] || exec sleep 1000
exec $top_builddir/src/queue/test/fakeengine --job "\$SLURM_JOB_ID" --rate 20 --tokens 120
END
chmod +x "$tmp/bin/k3served"
sed "s|^bindir=.*|bindir=$tmp/bin|; s|^wait_for_ranks=.*|wait_for_ranks=1|" "$top_builddir/slurm/k3serve.sbatch" >"$tmp/k3serve.sbatch"

words() { local i; for ((i = 0; i < $1; i++)); do printf 'w%d ' "$i"; done; }
sbatch_engine() { job=$(cd "$tmp" && sbatch --parsable --nodes=2 --output="$tmp/log/k3-%j.log" k3serve.sbatch); }
field() { scontrol show job "$job" 2>/dev/null | tr ' ' '\n' | sed -n "s/^$1=//p"; }
serving() { [[ $(k3info --json) == *'"state":"serving"'* ]]; }
reason() { k3queue -h -o %R; }
reason_is() { [[ $(reason) == "($1)" ]]; }

# ask : k3submit in the background, until the answer has begun; sets $client.
ask() {
    k3submit --prompt-tokens 1,2,3 >"$tmp/answer" 2>&1 &
    client=$!
    wait_for 30 grep -q w9 "$tmp/answer"
}
# answered TITLE
answered() {
    wait $client
    is "$?" 0 "$1: the request ends well"
    is "$(cat "$tmp/answer")" "$(words 120)" "$1: one answer, with nothing lost and nothing repeated"
    like "$(tail -n 1 "$tmp/log/k3-$job.log")" "^lease from ([1-9][0-9]*)$" "$1: which the second engine has gone on with"
}
# again : a requeued job waits for a while to be started, for no good reason here.
again() {
    [[ $(field JobState) == RUNNING ]] && return
    [[ $(field Reason) != BeginTime ]] || scontrol update jobid="$job" starttime=now
    return 1
}
# lose_node NODE : its slurmd and all of the job's processes there end at once, and Slurm is told.
lose_node() {
    local file pids=()
    kill -KILL "$(cat "$tmp/slurm/run/slurmd-$1.pid")"
    for file in /proc/[0-9]*/environ; do
        grep -qsz "^SLURM_CONF=$SLURM_CONF$" "$file" && grep -qsz "^SLURMD_NODENAME=$1$" "$file" && pids+=("$(cut -d/ -f3 <<<"$file")")
    done
    kill -KILL "${pids[@]}"
    scontrol update nodename="$1" state=down reason="a test"
}

start_queued "k3queued = { heartbeat = 0.2; engine_timeout = 3.0; }; k3served = { restart_delay = 0.1; };"
sbatch_engine
ok "a job serves" wait_for 60 serving

ask
scancel "$job"
ok "scancel: with the job gone the reason is NoEngine" wait_for 20 reason_is NoEngine
sbatch_engine
answered "scancel"

ask
scontrol requeue "$job"
wait_for 60 again
answered "requeue"
is "$(field Restarts)" 1 "requeue: it was the same job"

ask
node=$(field BatchHost)
lose_node "$node"
wait_for 60 again
answered "node down"
ok "node down: the job runs elsewhere now" test "$(field BatchHost)" != "$node"
done_testing
