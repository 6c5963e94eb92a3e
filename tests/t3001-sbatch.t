#!/bin/bash
# k3serve.sbatch on a private Slurm, with a stand-in for k3served that ends as it is told.
. "${top_srcdir:-$(dirname "$0")/..}/tests/tap.sh"
need slurmctld slurmd srun sbatch munged pgrep
start_slurm 2 --gpus 1 # for a k3serve.sbatch that was built with CUDA

# The stand-in: each start takes the next line of $tmp/plan as its orders, or serves until asked to drain.
mkdir "$tmp/bin"
cat >"$tmp/bin/k3served" <<END
#!/bin/bash
case \${1-} in
    --get)
        [[ -e $tmp/restarts ]] || exit 2
        case \$2 in
            k3served.restarts) cat $tmp/restarts ;;
            k3served.restart_delay) echo 0.1 ;;
            *) exit 2 ;;
        esac
        exit ;;
    --lost) echo "\$2" >>"$tmp/lost"; exit ;;
esac
order=\$(sed -n "\$((\$SLURM_STEP_ID + 1))p" "$tmp/plan")
echo "\$SLURM_STEP_ID \$SLURM_PROCID \$SLURMD_NODENAME \${OMPI_MCA_mpi_yield_when_idle-} \$K3_CONF" >>"$tmp/starts"
trap 'echo drain >>$tmp/signals; exit 0' USR1
case \$order in
    exit*) exit \${order#exit } ;;
    kill) [[ \$SLURM_PROCID == 1 ]] && kill -KILL \$\$ ;;
esac
while :; do sleep 0.1; done
END
chmod +x "$tmp/bin/k3served"
sed "s|^bindir=.*|bindir=$tmp/bin|; s|^wait_for_ranks=.*|wait_for_ranks=1|" "$top_builddir/slurm/k3serve.sbatch" >"$tmp/k3serve.sbatch"

# submit RESTARTS ORDER... : start a job, in place of the one before; sets $job.
submit() {
    [[ ! ${job-} ]] || scancel --signal=KILL --full "$job" 2>/dev/null
    rm -f "$tmp"/{lost,starts,signals,restarts,plan}
    [[ $1 == none ]] || echo "$1" >"$tmp/restarts"
    shift
    printf '%s\n' "$@" >"$tmp/plan"
    job=$(cd "$tmp" && K3_CONF=$tmp/k3.conf sbatch --parsable --nodes=2 --output="$tmp/log/k3-%j.log" "$tmp/k3serve.sbatch")
}

started() { [[ $(grep -c "^$1 " "$tmp/starts") == 2 ]]; }
field() { scontrol show job "$job" 2>/dev/null | tr ' ' '\n' | sed -n "s/^$1=//p"; }
ended() { [[ $(field JobState) =~ COMPLETED|FAILED|CANCELLED|TIMEOUT ]]; }
outcome() {
    wait_for 60 ended
    echo "$(field JobState) $(field ExitCode)"
}
lines() { if [[ -e $1 ]]; then wc -l <"$1"; else echo 0; fi; }

submit 3
ok "one task a node starts" wait_for 20 started 0
like "$(sort "$tmp/starts")" "^0 0 n1 1 $tmp/k3.conf.0 1 n2 1 $tmp/k3.conf$" "with the submitter's configuration"
scancel --batch --signal=USR1 "$job"
is "$(outcome)" "COMPLETED 0:0" "USR1 drains: the job completes"
is "$(lines "$tmp/signals") $(lines "$tmp/starts")" "2 2" "every rank got the signal, and nothing started again"

submit 3
wait_for 20 started 0
scancel --batch --signal=TERM "$job"
is "$(outcome)" "COMPLETED 0:0" "TERM drains as well"

submit 2 "exit 0"
is "$(outcome)" "COMPLETED 0:0" "an engine that ends with 0 ends the job"
is "$(lines "$tmp/starts")" 2 "after one start"

expect_error "refuses its configuration"
submit 2 "exit 2"
is "$(outcome)" "FAILED 2:0" "an engine that refuses its configuration ends the job with 2"
is "$(lines "$tmp/starts") $(lines "$tmp/lost")" "2 0" "without a restart"

submit none
is "$(outcome)" "FAILED 2:0" "so does a configuration that can not be read"
is "$(lines "$tmp/starts")" 0 "before anything starts"

expect_error "giving up"
submit 1 kill kill
like "$(outcome)" "^FAILED 137:0$" "an engine that dies again and again ends the job with its code"
is "$(lines "$tmp/starts") $(lines "$tmp/lost")" "4 2" "after the restarts that the configuration allows, each loss told to the daemon"

submit 2 kill
ok "after a loss the next engine starts in the same allocation" wait_for 30 started 1
like "$(cat "$tmp/lost")" "exit code 137" "the daemon was told the loss"
scancel --batch --signal=USR1 "$job"
is "$(outcome)" "COMPLETED 0:0" "and it drains like the first"

# The batch script's own srun is the only one on this node with the job's id in its environment.
srun_of_job() {
    local pid
    for pid in $(pgrep -x srun); do
        ! grep -qz "^SLURM_JOB_ID=$job$" "/proc/$pid/environ" || echo "$pid"
    done
}
submit 1
wait_for 20 started 0
srun_of_job | xargs kill -KILL
ok "after srun was killed the next engine starts" wait_for 30 started 1
is "$(squeue --noheader --steps --jobs="$job" --format=%i | grep -c '\.[0-9]*$')" 1 "and the step of the killed srun is gone"
scancel "$job"
like "$(outcome)" "^(CANCELLED|COMPLETED)" "scancel ends the job"

# --- k3pack.sbatch

scancel --signal=KILL --full "$job" 2>/dev/null
if grep -q '^#define HAVE_PMIX 1' "$top_builddir/config.h"; then
    k3mkmodel "$top_srcdir/etc/models/tiny-a.json" "$tmp/tiny-a" >/dev/null
    sed "s|^bindir=.*|bindir=$top_builddir/src/tools|" "$top_builddir/slurm/k3pack.sbatch" >"$tmp/k3pack.sbatch"
    pack() {
        job=$(cd "$tmp" && sbatch --parsable --nodes=2 --output="$tmp/log/pack-%j.log" "$tmp/k3pack.sbatch" \
            --model="$tmp/tiny-a" --out="$tmp/packs" --layout=tp=3 --quiet)
    }
    pack
    is "$(outcome)" "COMPLETED 0:0" "a job of two tasks packs for three ranks"
    packed() { grep '^rank' "$tmp/log/pack-$job.log" | sort; }
    is "$(packed | sed 's/:.*//' | tr '\n' ' ')" "rank 0 of tp=3 rank 1 of tp=3 rank 2 of tp=3 " "each once"
    ok "and all is there" k3pack --quiet --verify --out "$tmp/packs"
    rm "$tmp/packs/rank1.json"
    pack
    is "$(outcome)" "COMPLETED 0:0" "it goes on"
    is "$(packed | awk '{ print $5 == $7 }' | tr '\n' ' ')" "1 0 1 " "with what is there"
else
    skip 5 "built without PMIx"
fi
done_testing
