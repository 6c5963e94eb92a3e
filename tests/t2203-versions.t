#!/bin/bash
# A peer of another version: what was recorded of version 1 is understood, later versions are refused in a sentence.
. "${top_srcdir:-$(dirname "$0")/..}/tests/tap.sh"
PATH=$top_builddir/src/queue/test:$PATH
recorded=$top_srcdir/tests/data/wire-v1.txt

start_queued ""
oldpeer "$recorded" >"$tmp/answers"
is "$(grep -c ' -> .* version 1' "$tmp/answers")" "$(wc -l <"$recorded")" "every message of version 1 is answered in version 1"
# What a daemon says to clients and engines is no question to it; of the questions these are the answers.
is "$(grep -E '^(SUBMIT|CANCEL|LIST|INFO|ACK|ENGINE_HELLO|ENGINE_LOST) ' "$tmp/answers")" "SUBMIT -> ACCEPTED version 1
SUBMIT -> ACCEPTED version 1
CANCEL -> OK version 1
LIST -> LISTING version 1
INFO -> INFO_REPLY version 1
ACK -> OK version 1
ENGINE_HELLO -> ENGINE_WELCOME version 1
ENGINE_LOST -> OK version 1" "and questions get what they ask for"
is "$(grep -vE '^(SUBMIT|CANCEL|LIST|INFO|ACK|ENGINE_HELLO|ENGINE_LOST) ' "$tmp/answers" | grep -v -- '-> REFUSED version 1: .')" "" \
    "what is no question is refused, with the reason"

oldpeer "$top_srcdir/tests/data/wire-v2.txt" >"$tmp/answers"
is "$(grep -c ' -> .* version 2' "$tmp/answers")" "$(wc -l <"$top_srcdir/tests/data/wire-v2.txt")" \
    "every message of version 2 is answered in version 2"

for version in 0 3 255; do
    is "$(oldpeer "$recorded" $version | sed 's/^[A-Z_]* -> //' | sort -u)" \
        "REFUSED version $((version ? 2 : 1)): the other side speaks protocol version $version, this one 1 to 2: the older of the two is to be upgraded" \
        "version $version is refused in a sentence, whatever it says"
done

# --- an engine and a daemon of version 1, which does not say what it has of an answer
stop_queued
rm -f "$tmp/k3queued.sock"
model=$tmp/tiny-a
k3mkmodel "$top_srcdir/etc/models/tiny-a.json" "$model" >/dev/null || exit 1
echo "k3served = { model = \"$model\"; };" >>"$K3_CONF"
olddaemon "ipc://$tmp/k3queued.sock" 2000 >"$tmp/old" &
old=$!
start served k3served
engine=$pid
wait "$old"
is $? 0 "an engine serves a daemon of version 1"
is "$(head -n 1 "$tmp/old")" "ENGINE_HELLO version 2" "having tried its own first"
is "$(sed '1d; $d' "$tmp/old" | uniq)" "HELLO with 0, a new incarnation
READY
HELLO with 1, the same
HELLO with 0, a new incarnation
READY" "after a cut it starts over, as that daemon expects"
is "$(tail -n 1 "$tmp/old" | cksum)" "$(k3run --model "$model" --threads 1 --prompt-tokens "768,12,500" --max-tokens 2000 \
    --temperature 0 --ignore-eos --output tokens | cksum)" "and the answer is whole"
stop "$engine"
done_testing
