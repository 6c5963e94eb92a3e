#!/bin/bash
# What etc/ installs: the example configuration, the systemd unit and what goes with it, completion.
. "${top_srcdir:-$(dirname "$0")/..}/tests/tap.sh"

root=$tmp/root
ok "etc/ installs" env -u MAKEFLAGS -u MAKELEVEL make --silent -C "$top_builddir/etc" install DESTDIR="$root"
installed() { find "$root" -path "*/$1"; }

like "$(installed k3/k3.conf.example)" "/etc/k3/k3.conf.example$" "k3.conf.example is where README.md says"
like "$(installed logrotate.d/k3)" "/etc/logrotate.d/k3$" "logrotate has its file"

unit=$(installed k3queued.service)
if [[ $unit ]]; then
    sbin=$(sed -n 's|^ExecStart=\(.*\)/k3queued$|\1|p' "$unit")
    like "$sbin" "^/.*sbin$" "the unit starts the k3queued that is installed"
    sed "s|^ExecStart=.*|ExecStart=$(command -v k3queued)|" "$unit" >"$tmp/k3queued.service"
    if command -v systemd-analyze >/dev/null; then
        is "$(systemd-analyze verify --man=no "$tmp/k3queued.service" 2>&1)" "" "systemd finds nothing wrong with it"
    else
        skip 1 "systemd-analyze is not installed"
    fi
    user=$(sed -n 's/^User=//p' "$unit")
    is "$(sed -n 's/^u \([^ ]*\) .*/\1/p' "$(installed sysusers.d/k3.conf)")" "$user" "sysusers.d makes its user"
    is "$(awk '/^d/ && $4 != "'"$user"'"' "$(installed tmpfiles.d/k3.conf)")" "" "who owns what tmpfiles.d makes"
else
    skip 4 "built without systemd units"
fi

# --- completion
# complete_word WORD... : what bash would offer for the last of them.
complete_word() {
    (
        # shellcheck source=/dev/null
        . "$(installed completions/k3submit)"
        _k3 "$1" "${*: -1}" "${*: -2:1}"
        printf '%s\n' "${COMPREPLY[@]}"
    )
}
documented() { "$1" --help | grep -E '^ +-' | sed 's/  [a-z].*//' | grep -oE -- '(^|[ ,])--?[[:alnum:]][-[:alnum:]]*' | tr -d ' ,' | sort; }
for command in k3submit k3attach k3queue k3cancel k3info k3pack k3plan; do
    ok "$command has a completion" test -e "$(installed "completions/$command")"
    is "$(complete_word "$command" - | sort)" "$(documented "$command")" "which offers the options of $command --help"
done
like "$(documented k3submit | tr '\n' ' ')" "--max-tokens .*-n " "long and short ones"
is "$(complete_word k3submit --reasoning-effort m)" "medium
max" "efforts are offered"
is "$(complete_word k3submit -n "")" "" "and nothing where a number belongs"
is "$(complete_word k3submit --json --ver | tr '\n' ' ')" "--verbose --version " "a flag is followed by options"
done_testing
