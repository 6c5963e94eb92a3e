#!/bin/bash
# k3served of several ranks, started by mpirun: the same tokens, one sentence when ranks differ, an end when one is lost.
. "${top_srcdir:-$(dirname "$0")/..}/tests/tap.sh"
PATH=$top_builddir/src/queue/test:$PATH
need munged pgrep
need_mpi
grep -q '^#define HAVE_PMIX 1' "$top_builddir/config.h" || skip_all "built without PMIx"

model=$tmp/tiny-a
k3mkmodel "$top_srcdir/etc/models/tiny-a.json" "$model" >/dev/null || exit 1
settings="model = \"$model\"; max_context = 4096; cache_tokens = 8192; slots = 4"

ask() { fakeclient --wait "$patience" --quiet --greedy --tokens "$1" --max "$2" submit | sed -n 's/^ids //p'; }
alone() {
    k3run --model "$model" --threads 1 --prompt-tokens "$1" --max-tokens "$2" --temperature 0 --ignore-eos --output tokens ||
        echo "k3run failed"
}
serving() { [[ $(fakeclient info) =~ \ serving\  ]]; }
gone() { [[ ! $(fakeclient info) =~ engine ]]; }
# ranks N : the engine's processes; sets $mpirun_pid, and $rank_pids in no order.
ranks() {
    start "ranks$1" env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun --oversubscribe -n "$1" k3served
    mpirun_pid=$pid
    wait_for 30 serving || diag "the engine does not serve: $(tail -n 5 "$tmp/log/ranks$1.log")"
    mapfile -t rank_pids < <(pgrep -P "$mpirun_pid" -x k3served)
}
ticks() { awk '{ n += $14 + $15 } END { print n }' "${rank_pids[@]/%//stat}"; }

start_queued "k3served = { $settings; };"
# answers TITLE : one request, five at once, and one that begins behind what all ranks have kept.
answers() {
    local prompts=() clients=() i
    is "$(ask 768,12,500,33,7 40)" "$(alone 768,12,500,33,7 40)" "$1: the tokens of one"
    for i in 1 2 3 4 5; do
        prompts[i]=768,$(seq -s , $i $((i * 30)))
        ask "${prompts[i]}" 20 >"$tmp/answer.$i" &
        clients+=($!)
    done
    wait "${clients[@]}"
    for i in 1 2 3 4 5; do
        is "$(cat "$tmp/answer.$i")" "$(alone "${prompts[i]}" 20)" "$1: request $i of five"
    done
    # 147 tokens: begins behind the pages and states that all ranks have kept.
    is "$(ask "${prompts[5]}" 20)" "$(cat "$tmp/answer.5")" "$1: a prompt that has been here before"
}
# drains TITLE : mpirun passes USR1 on to the ranks.
drains() {
    kill -USR1 "$mpirun_pid"
    wait "$mpirun_pid"
    is $? 0 "$1: USR1 ends all of them with 0"
    wait_for 5 gone
}

for n in 2 3; do
    ranks $n
    answers "$n ranks"
    if [[ $n == 2 ]]; then
        cd /proc || exit 1
        before=$(ticks)
        sleep 2
        like $(($(ticks) - before)) '^[12]?[0-9]$' "two ranks that wait cost less than 15 % of a core together"
        cd - >/dev/null || exit 1
    fi
    drains "$n ranks"
done

# --- stages and groups

sed -i 's/slots = 4/layout = "tp=2,pp=2,ep=2"; &/' "$K3_CONF"
ranks 4
like "$(fakeclient info | grep '^engine')" ' slots 4 used 0( [0-9]+/[0-9]+){4}$' "all ranks of all stages have loaded"
like "$(k3info -h)" " 4 tp=2,pp=2,ep=2 " "k3info says how they share the model"
answers "stages and groups"
fakeclient --wait "$patience" --greedy --tokens 768,1,2 --max 300 submit >"$tmp/moved" &
client=$!
wait_for 30 grep -q '^delta 20+' "$tmp/moved"
for pid in "${rank_pids[@]}"; do
    grep -qsz '^OMPI_COMM_WORLD_RANK=3$' "/proc/$pid/environ" && kill -KILL "$pid"
done
! wait "$mpirun_pid"
result $? "when one of the last stage dies all end"
lost=$(fakeclient info | sed -n 's/^engine \([0-9]*\) .*/\1/p')
is "$(SLURM_JOB_ID=$lost k3served --lost "rank 3 died")" "" "the daemon is told"
wait_for 5 gone
ranks 4
wait $client
is "$(sed -n 's/^ids //p' "$tmp/moved")" "$(alone 768,1,2 300)" "the next engine of stages goes on, with nothing lost or repeated"
drains "stages and groups"
sed -i 's/layout = "[^"]*"; //' "$K3_CONF"

# --- ranks that differ

# differ REGEX TITLE TEXT : rank 0 with the settings above, rank 1 with TEXT.
differ() {
    echo "$3" >"$tmp/other.conf"
    OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 timeout $((60 * slowness)) mpirun --oversubscribe \
        -n 1 k3served : -n 1 k3served --file "$tmp/other.conf" >"$tmp/differ" 2>&1
    is $? 2 "$2: exit code 2"
    like "$(grep ' err: ' "$tmp/differ")" "$1" "$2: one sentence names it"
}
differ 'rank 1 on .* has k3served.slots 8, but rank 0 on .* has 4$' "other slots" \
    "k3served = { ${settings/slots = 4/slots = 8}; };"
differ 'rank 1 on .* has k3served.layout tp=1,pp=2, but rank 0 on .* has tp=2$' "another layout" \
    "k3served = { $settings; layout = \"pp=2\"; };"
differ 'rank 1 on .*: /nowhere/config.json: ' "a checkpoint that one rank does not see" 'k3served = { model = "/nowhere"; };'
differ 'rank 1 on .*: .*other.conf:1: ' "a k3.conf that one rank can not read" 'k3served = { slot = 4; };'

# --- a checkpoint that is cut short

cp -r "$model" "$tmp/cut"
truncate -s -100 "$tmp/cut/model.safetensors"
sed "s|$model|$tmp/cut|" "$K3_CONF" >"$tmp/cut.conf"
mpi 2 k3served --file "$tmp/cut.conf" >"$tmp/out" 2>&1
is $? 2 "a checkpoint that is cut short: exit code 2"
like "$(grep ' err: ' "$tmp/out")" "^[^"$'\n'"]*cut/model.safetensors: [^"$'\n'"]*$" "and one sentence"

# --- packs

k3pack -q --model "$model" --out "$tmp/packs" --tp 2 >/dev/null
sed "s|$model|$tmp/packs|" "$K3_CONF" >"$tmp/packs.conf"
printf 'never' | dd of="$tmp/packs/rank1.k3pack" bs=1 seek=5000000 conv=notrunc status=none
mpi 2 k3served --file "$tmp/packs.conf" >"$tmp/out" 2>&1
result $((!$?)) "a pack that is damaged ends the engine"
like "$(grep ' err: ' "$tmp/out")" "packs/rank1.k3pack: block 4 .* is not what its hash says: k3pack --layout tp=2 --rank 1 mends it" \
    "with one sentence"
wait_for 5 gone
truncate -s 4096 "$tmp/packs/rank1.k3pack"
mpi 2 k3served --file "$tmp/packs.conf" >"$tmp/out" 2>&1
is $? 2 "one that is cut short: exit code 2"
k3pack -q --model "$model" --out "$tmp/packs" --tp 2 >/dev/null
sed -i "s|$model|$tmp/packs|" "$K3_CONF" # for all that follows

# --- a rank that stands still

sed -i "s/k3queued = {/& stall_timeout = $((2 * slowness)).0;/" "$K3_CONF"
kill -HUP "$queued_pid"
ranks 2
fakeclient --wait "$patience" --greedy --tokens 768,1,2 --max 300 submit >"$tmp/stood" &
client=$!
wait_for 30 grep -q '^delta 20+' "$tmp/stood"
for pid in "${rank_pids[@]}"; do
    grep -qsz '^OMPI_COMM_WORLD_RANK=1$' "/proc/$pid/environ" && kill -STOP "$pid"
done
# Not what its client was told: of an engine that was too slow for a while, too, that is true.
comes_to 10 " fenced slots 4 used 0" "while one rank is stopped the engine is fenced and has no request" fakeclient info
ok "its client is told" wait_for 5 grep -q EngineLost "$tmp/stood"
for pid in "${rank_pids[@]}"; do kill -CONT "$pid"; done
wait $client
is "$(sed -n 's/^ids //p' "$tmp/stood")" "$(alone 768,1,2 300)" "when it runs again the engine goes on, with nothing lost or repeated"
kill -USR1 "$mpirun_pid"
wait "$mpirun_pid"
wait_for 5 gone

# --- a rank that dies

ranks 2
fakeclient --wait "$patience" --greedy --tokens 768,1,2 --max 300 submit >"$tmp/moved" &
client=$!
wait_for 30 grep -q '^delta 20+' "$tmp/moved"
kill -KILL "${rank_pids[1]}"
! wait "$mpirun_pid"
result $? "when one rank dies all end"
lost=$(fakeclient info | sed -n 's/^engine \([0-9]*\) .*/\1/p')
is "$(SLURM_JOB_ID=$lost k3served --lost "rank 1 died")" "" "the daemon is told"
ok "and believes it at once" wait_for 1 gone
ranks 2
wait $client
is "$(sed -n 's/^ids //p' "$tmp/moved")" "$(alone 768,1,2 300)" "the next engine goes on, with nothing lost or repeated"
kill -USR1 "$mpirun_pid"
wait "$mpirun_pid"

done_testing
