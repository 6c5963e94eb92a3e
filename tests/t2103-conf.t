#!/bin/bash
# The example configuration and k3.conf(5) say what the programs say.
. "${top_srcdir:-$(dirname "$0")/..}/tests/tap.sh"
need k3submit

K3_CONF=/dev/null k3submit --show-config >"$tmp/shown"
ok "k3.conf.example has every setting with its default" \
    diff <(sed 's/; # built in$/;/' "$tmp/shown") <(sed '1,/^$/d' "$top_srcdir/etc/k3.conf.example")
ok "and is accepted" env K3_CONF="$top_srcdir/etc/k3.conf.example" k3submit --show-config

# "section.key = value" of every setting, in order: as shown, and as on the man page
awk '/^[a-z0-9]+:$/ { section = substr($0, 1, length - 1) }
     / # built in$/ { sub(/; # built in$/, ""); sub(/^ +/, ""); print section "." $0 }' "$tmp/shown" >"$tmp/settings"
sed -n 's/^\.BR \([a-z0-9_]*\.[a-z0-9_]*\) "\( = .*\)"$/\1\2/p' "$top_srcdir/man/k3.conf.5" | sed 's/\\(dq/"/g' >"$tmp/page"
ok "k3.conf(5) has the same settings and defaults" diff "$tmp/settings" "$tmp/page"
ok "which are more than a handful" [ "$(wc -l <"$tmp/settings")" -gt 20 ]
done_testing
