#!/bin/bash
# k3queued among people who mistype, who lie and who do not read.
. "${top_srcdir:-$(dirname "$0")/..}/tests/tap.sh"
PATH=$top_builddir/src/queue/test:$PATH
need setpriv

new_id() { od -An -N16 -tx1 /dev/urandom | tr -d ' \n'; }
words() { local i; for ((i = 0; i < $1; i++)); do printf 'w%d ' "$i"; done; }
other() { as 12345 fakeclient "$@"; }

# --- starting
start_munged
write_conf 'k3queued = { max_queued = 5; max_queues = 3; };'
got=$(k3queued 2>&1)
is $? 1 "a wrong key stops the start"
like "$got" "k3.conf:2.*max_queues" "and is named with file and line"
write_conf 'k3queued = { heartbeat = "often"; };'
like "$(k3queued 2>&1)" "k3.conf:2.*heartbeat" "so is a wrong type"
write_conf 'common2 = { };'
fails 1 "a wrong section stops the start" k3queued
fails 1 "so does a file that is not there" k3queued -f "$tmp/none.conf"
fails 2 "a wrong option is refused" k3queued --no-such-option
write_conf 'k3queued = { user = "no such user"; };'
like "$(k3queued 2>&1)" 'k3queued.user = "no such user"' "an unknown user is named"
like "$(k3queued --help)" "^Usage: k3queued" "--help"
like "$(k3queued -V)" "^k3queued [0-9]" "-V"

start_queued 'k3queued = { heartbeat = 0.1; max_queued = 20; max_queued_per_user = 10; max_output = 65536; };'
plant_secret
is "$(k3queued --get k3queued.max_queued)" 20 "--get"
like "$(k3queued --show-config)" "max_output = 65536" "--show-config"
got=$(k3queued 2>&1)
is $? 1 "a second daemon does not start"
like "$got" "another k3queued \(pid $queued_pid\)" "and says which is there"
expect_error "another k3queued"
stop "$queued_pid" KILL
restart_queued
sleep 0.2
is "$(fakeclient info)" "queued 0 running 0 model -" "after a kill it starts over the socket that was left"
is "$(stat -c %a "$tmp/k3queued.sock")" 777 "every user can reach it"

# --- who is who
id=$(new_id)
is "$(fakeclient --unsigned --text "$secret" submit)" "refused 3 no MUNGE credential" "without a credential nobody is served"
like "$(fakeclient --bad-signature --text "$secret" submit)" "^refused 3" "nor with one for another message"
ok "a request is taken" fakeclient --id "$id" --no-watch --text "$secret" submit
if [[ $(id -u) == 0 ]]; then
    is "$(other --id "$id" cancel)" "refused 3 the request is another user's" "another user cannot cancel it"
    is "$(other --id "$id" attach)" "refused 3 the request is another user's" "nor watch it"
    is "$(other --id "$id" ack)" "refused 3 the request is another user's" "nor have it erased"
    is "$(other --id "$id" --no-watch submit)" "refused 3 the id is another user's request" "nor take its id"
    like "$(other list)" "^row $id root fake QUEUED" "but sees it in the queue"
    is "$(other --me list)" "" "though not as his own"
    is "$(other hello)" "refused 3 uid 12345 may not speak for engines (k3queued.user)" "he cannot be an engine"
    is "$(other lost)" "refused 3 uid 12345 may not speak for engines (k3queued.user)" "nor speak for one"
    his=$(new_id)
    ok "his own request is taken" other --id "$his" --no-watch submit
    is "$(fakeclient --id "$his" cancel)" ok "which the operator may cancel"
else
    skip 10 "only root can be somebody else"
fi
like "$(fakeclient delta)" "^refused 3 .*HELLO first" "a client is no engine"
like "$(fakeclient ok)" "^refused 2 OK is not for the daemon" "what is not for the daemon is refused"
like "$(fakeclient --id 00000000000000000000000000000000 submit)" "^refused 2" "so is a request without an id"

# --- limits
for i in 1 2 3 4 5 6 7 8 9; do fakeclient --no-watch submit >/dev/null; done
is "$(fakeclient submit)" "refused 4 root has 10 requests in the queue (k3queued.max_queued_per_user)" "a user's share is limited"
is "$(fakeclient --prompt 2000000 --wait 5 submit 2>&1 | grep -c 'fakeclient:')" 1 "a prompt too long cannot even be sent"

sed -i 's/max_queued_per_user = 10/max_queued_per_user = 100/; s/max_output/max_rate_per_user = 3; max_prompt_bytes = 100; max_tokens = 50; &/' "$K3_CONF"
kill -HUP "$queued_pid"
wait_for 5 grep -q "settings reloaded" "$tmp/log/k3queued.log"
is "$(fakeclient --prompt 26 --no-watch submit)" "refused 2 the prompt is 104 bytes, the most is 100 (k3queued.max_prompt_bytes)" "so is a prompt's length"
is "$(fakeclient --max 51 --no-watch submit)" "refused 2 51 tokens are asked for, the most is 50 (k3queued.max_tokens)" "and an answer's"
submit() { k3submit --no-wait --parsable --prompt-tokens 1; }
ok "a few requests at once are taken" submit
for i in 1 2 3; do submit; done >/dev/null 2>&1
fails 4 "too many in a minute are not" submit
like "$(submit 2>&1)" "^k3submit: root sends more than 3 requests a minute \(k3queued.max_rate_per_user\) \(try again in (1[0-9]|20) s\)$" \
    "and are told when to try again"
stop_queued
sed -i 's/max_rate_per_user = 3; max_prompt_bytes = 100; max_tokens = 50; //' "$K3_CONF"
restart_queued
sleep 0.2
for i in 1 2 3 4 5 6 7 8 9 10; do fakeclient --no-watch submit >/dev/null; done

# --- frames
for i in 1 2 3; do fakeclient --text "$secret" garbage; done
like "$(fakeclient info)" "^queued 10 running 0" "garbage changes nothing"
ok "and the daemon lives" kill -0 "$queued_pid"
ok "the log counts it" wait_for 2 grep -q "frames were no messages, such as: .*, from uid $(id -u)" "$tmp/log/k3queued.log"
is "$(($(wc -l <"$tmp/log/k3queued.log") < 1500))" 1 "nine thousand in fewer lines, though each connection is cut"

stop_queued
restart_queued
sleep 0.2
fakeclient --pause 2 squat &
squatter=$!
sleep 0.5
is "$(fakeclient info)" "queued 0 running 0 model -" "names that libzmq would give to others do no harm"
ok "and the daemon lives" kill -0 "$queued_pid"
wait $squatter

# --- a reader who does not read
start engine fakeengine --tokens 40000 --context 100000
slow=$(new_id)
fakeclient --id "$slow" --quiet --line 1 --pause-at 1 --pause 9 submit >"$tmp/slow" &
client=$!
wait_for 5 grep -q accepted "$tmp/slow"
is "$(fakeclient --id "$slow" --quiet --wait 20 attach | tail -n 1)" "done stop 3+40000 -" "a slow reader does not hold up another"
ok "it is dropped, and named in the log" wait_for 9 grep -qE "req $slow a reader was dropped at token [0-9]+ of" "$tmp/log/k3queued.log"
wait $client
like "$(cat "$tmp/slow")" "refused 1 dropped because nothing was read" "once it reads again it is told"
is "$(fakeclient --id "$slow" --quiet --wait 20 attach | tail -n 2 | md5sum)" "$(printf 'text %s\ndone stop 3+40000 -\n' "$(words 40000)" | md5sum)" \
    "and can attach again for all of it"
stop_queued
is $? 0 "the daemon ends cleanly"
done_testing
