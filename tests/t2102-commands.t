#!/bin/bash
# k3queue, k3cancel and k3info: what they show, what they end, and how they fail.
. "${top_srcdir:-$(dirname "$0")/..}/tests/tap.sh"
PATH=$top_builddir/src/queue/test:$PATH

state() { k3queue -h -o %T "$1"; }
submit() { k3submit --no-wait --parsable --prompt-tokens 1,2,3 "$@"; }

munge_socket=$tmp/none
write_conf
for command in k3queue k3info "k3cancel --me"; do
    # shellcheck disable=SC2086 # command and option
    fails 7 "without a daemon ${command% *} says that it is unreachable" $command
done
for command in k3submit k3attach k3queue k3cancel k3info; do
    like "$($command --help)" "^Usage: $command .*--show-config" "$command --help explains itself"
    like "$($command --usage)" "^Usage: $command .*--version" "$command --usage is shorter"
    like "$($command -V)" "^$command [0-9.]+$" "$command -V says the version"
    fails 2 "$command refuses an unknown option" $command --frobnicate
done

munge_socket=
start_queued ""
is "$(k3queue)" "      ID NAME         USER     ST       TIME  TOKENS PLACE JOB(REASON)" "an empty queue has headings"
is "$(k3queue -h)" "" "which -h leaves out"
is "$(k3queue --json)" '{"requests":[]}' "and is an empty list in JSON"
like "$(k3info)" "^k3queued [0-9.]+, up 0:0[0-9], 0 waiting, 0 running
no engine: " "k3info knows that there is no engine"

# --- k3queue
one=$(submit -J "thesis $(printf '\e[31m')" -m 7) two=$(submit)
is "$(k3queue -h -o '%i|%j|%u|%t|%T|%P|%m|%R' "$one")" \
    "${one:0:8}|thesis ?[31m|$(id -un)|PD|QUEUED|1|7|(NoEngine)" "a row says what is known, and no control characters"
is "$(k3queue -h -o %I)" "$one
$two" "rows are in the queue's order"
is "$(k3queue -h -o '%.5P|%3t|%1T')" "    1|PD |Q
    2|PD |Q" "columns are aligned and cut"
is "$(k3queue -h --me -o %i | wc -l)" 2 "--me are mine"
is "$(k3queue -h -u nobody)" "" "-u another's are not"
is "$(k3queue -h -u "$(id -u)" -o %i | wc -l)" 2 "-u takes a number, too"
is "$(k3queue -u no-such-user 2>&1) $?" "k3queue: no-such-user: no such user 2" "a user who does not exist is not one without requests"
like "$(k3queue --json "$two")" "^\{\"requests\":\[\{\"id\":\"$two\",\"user\":\"$(id -un)\",\"name\":null,\"state\":\"QUEUED\"" \
    "JSON has whole ids and names"
like "$(k3queue -l)" "SUBMIT_TIME .*START_TIME.* [0-9]{4}-[0-9]{2}-[0-9]{2}T.* N/A " "-l has more columns"
begin=$EPOCHREALTIME
is "$(timeout 20 k3queue -i 0.3 -h -o %I "$one" | grep -c -m 4 "$one")" 4 "-i shows it again and again"
is "$(((${EPOCHREALTIME/./} - ${begin/./}) / 900000 > 0))" 1 "with that time between"
fails 2 "an unknown column is wrong usage" k3queue -o %Z
is "$(k3queue -h -O RequestID:32,Place:.3,StateCompact:3)" "$(k3queue -h -o '%32I%.3P%3t')" "-O takes columns by name"
fails 2 "an unknown name is wrong usage" k3queue -O State,Weather
fails 2 "so is what cannot be an id" k3queue xyz
fails 1 "an id that nothing has is not found" k3queue "$(tr 0-9a-f 1-9a-f0 <<<"$one")"

# --- k3cancel
is "$(k3cancel "$one" 2>&1)" "" "cancelling is silent"
is "$(state "$one")" CANCELLED "and done"
is "$(k3queue -h -o %I)" "$two" "what has ended is listed no more"
ok "the first digits are enough" k3cancel "${two:0:8}"
is "$(state "$two")" CANCELLED "for k3cancel"
like "$(k3cancel "$(tr 0-9a-f 1-9a-f0 <<<"$one")" 2>&1)" "^k3cancel: request [0-9a-f]{8}: no such request$" "an unknown id is told"
many=$(for _ in {1..20}; do submit; done)
first=$(cut -c1 <<<"$many" | sort | uniq -d | head -n 1)
like "$(k3cancel "$first" 2>&1)" "^k3cancel: $first: [0-9]+ requests begin with this, so give more digits$" "an ambiguous beginning is told"
is "$(k3queue -h | wc -l)" 20 "and nothing is cancelled"
fails 2 "ids and --me together are wrong usage" k3cancel --me "$one"
fails 2 "so is nothing" k3cancel
k3cancel --user nobody
is "$(k3queue -h | wc -l)" 20 "another user's are left alone"
ok "--me cancels all of mine" k3cancel --me
is "$(k3queue -h)" "" "every one"
if [[ $(id -u) == 0 ]]; then
    three=$(submit)
    chmod 711 "$tmp"
    as_nobody() { as 65534 "$@"; }
    is "$(as_nobody k3queue -h -o %u)" "$(id -un)" "everybody sees the queue"
    fails 3 "but may not cancel what is not his" as_nobody k3cancel "$three"
    like "$(as_nobody k3cancel "$three" 2>&1)" "^k3cancel: request ${three:0:8}: the request is another user's$" "and is told"
    is "$(state "$three")" QUEUED "and it is still there"
    is "$(as_nobody k3queue -h --me)" "" "nobody has none"
    k3cancel -u all
    is "$(k3queue -h)" "" "-u all cancels everybody's"
else
    skip 6 "needs root, to be two users"
fi

# --- k3info
start engine fakeengine --load 4 --rate 10 --tokens 100 --job 4711
comes_to 5 "4711 loading .*
 +rank 0: [0-9.]+ k?B of 1.00 kB, [0-9]+ %
 +rank 1: [0-9.]+ k?B of 2.00 kB, [0-9]+ %" "while an engine loads each rank's bytes are shown" k3info
like "$(k3info --json)" '"job":4711,.*"state":"loading",.*"ranks":\[\{"rank":0,"loaded":[0-9]+,"total":1000\},\{"rank":1,' "in JSON too"
serving() { k3info --json | grep -q '"serving"'; }
running() { k3info | grep -q ' 1/4 '; }
wait_for 5 serving
submit -m 50 >/dev/null
wait_for 5 running
like "$(k3info -h)" "^ +4711 serving +fake +2 tp=2 +1/4 " "a serving engine shows its slots"
like "$(k3queue -h)" " R +0:0[0-9] +[0-9]+ +- 4711$" "and k3queue the job that runs a request"
fails 2 "k3info takes no arguments" k3info x
done_testing
