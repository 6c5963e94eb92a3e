#!/bin/bash
# One request end to end: k3submit, k3queued, sbatch k3serve.sbatch, four ranks on a private Slurm, and the tokens back.
. "${top_srcdir:-$(dirname "$0")/..}/tests/tap.sh"
need pgrep
need_mpi
grep -q '^#define HAVE_PMIX 1' "$top_builddir/config.h" || skip_all "built without PMIx"
start_slurm 4 --gpus 1 # for a k3serve.sbatch that was built with CUDA

vectors=$top_srcdir/tests/data/tiny-a.vectors.safetensors
recorded() { "$top_builddir/src/model/test/compare" ids "$vectors" "$1"; }

for name in tiny-a tiny-b; do
    k3mkmodel "$top_srcdir/etc/models/$name.json" "$tmp/$name" >/dev/null || exit 1
done
sed "s|^bindir=.*|bindir=$top_builddir/src/engine|" "$top_builddir/slurm/k3serve.sbatch" >"$tmp/k3serve.sbatch"

# The daemon would wait a minute for a silent engine, so that what comes back sooner was reported.
configuration() {
    echo "k3queued = { engine_timeout = 60.0; };"
    echo "k3served = { model = \"$tmp/$1\"; layout = \"tp=4\"; max_context = 4096; cache_tokens = 8192; restart_delay = 0.1; };"
}

serving() { [[ $(k3info --json) == *'"state":"serving"'* ]]; }
field() { scontrol show job "$job" | tr ' ' '\n' | sed -n "s/^$1=//p"; }
ended() { [[ $(field JobState) =~ COMPLETED|FAILED|CANCELLED|TIMEOUT ]]; }

# serve MODEL : a job that serves it; sets $job.
serve() {
    local begin=$EPOCHREALTIME
    write_conf "$(configuration "$1")"
    job=$(cd "$tmp" && sbatch --parsable --nodes=4 --output="$tmp/log/k3-%j.log" k3serve.sbatch)
    ok "$1: the job serves" wait_for 60 serving
    diag "$1: from sbatch to serving $(awk -v a="$begin" -v b="$EPOCHREALTIME" 'BEGIN { printf "%.1f s", b - a }')"
}

drain() {
    scancel --batch --signal=USR1 "$job"
    wait_for 60 ended
    is "$(field JobState) $(field ExitCode)" "COMPLETED 0:0" "$1: USR1 drains, and the job completes"
}

# greedily PROGRAM PROMPT TOKENS [OPTION...]
greedily() {
    local program=$1 prompt=$2 tokens=$3
    shift 3
    "$program" "$@" --prompt-tokens "$prompt" --temperature 0 --ignore-eos --max-tokens "$tokens" --output tokens
}

start_queued "$(configuration tiny-a)"
serve tiny-a
like "$(k3info --json)" '"size":4' "with four ranks"
is "$(greedily k3submit "$(recorded greedy.prompt)" 64)" "$(recorded greedy.tokens)" "tiny-a: the recorded tokens"

# A rank that dies takes the step with it; the batch script tells the daemon and starts the next, which goes on.
rank_pid() {
    local pid
    for pid in $(pgrep -x k3served); do
        grep -qsz "^SLURM_CONF=$SLURM_CONF$" "/proc/$pid/environ" && grep -qsz "^SLURM_PROCID=$1$" "/proc/$pid/environ" && echo "$pid"
    done
}
greedily k3submit 768,12,500,33,7 300 >"$tmp/long" &
client=$!
# The tokens come as they are made, into a file too.
wait_for 30 test -s "$tmp/long"
kill -KILL "$(rank_pid 2)"
ok "after a rank was killed another engine takes over" wait_for 20 grep -q 'starting it again' "$tmp/log/k3-$job.log"
fails 1 "whose loss the daemon was told" grep -q 'could not be told' "$tmp/log/k3-$job.log"
wait "$client"
is "$?" 0 "the request that was running ends"
is "$(cat "$tmp/long")" "$(greedily k3run 768,12,500,33,7 300 --model "$tmp/tiny-a")" "with nothing lost and nothing repeated"
is "$(field Restarts) $(squeue -h -o %i | wc -l)" "0 1" "all in one job"
drain tiny-a

serve tiny-b
is "$(greedily k3submit 768,12,500,33,7 64)" "$(greedily k3run 768,12,500,33,7 64 --model "$tmp/tiny-b")" \
    "tiny-b: what k3run makes of it alone"
plant_secret
ok "a chat is answered" k3submit --no-thinking --max-tokens 8 "$secret"
drain tiny-b
is "$(k3queue --noheader)" "" "nothing waits"

done_testing
