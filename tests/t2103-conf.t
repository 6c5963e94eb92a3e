#!/bin/bash
# The example configuration, k3.conf(5) and --help say what the programs say.
. "${top_srcdir:-$(dirname "$0")/..}/tests/tap.sh"
need k3submit

# A tarball has what a clone makes.
example=$top_builddir/etc/k3.conf.example page=$top_builddir/man/k3.conf.5
[[ -e $example ]] || example=$top_srcdir/etc/k3.conf.example page=$top_srcdir/man/k3.conf.5

K3_CONF=/dev/null k3submit --show-config >"$tmp/shown"
ok "k3.conf.example has every setting with its default" \
    diff <(sed 's/; # built in$/;/' "$tmp/shown") <(sed '1,/^$/d' "$example" | grep -v '^#')
ok "and is accepted" env K3_CONF="$example" k3submit --show-config

# "section.key = value" of every setting, in order: as shown, as on the manual page, as in the daemon's help
awk '/^[a-z0-9]+:$/ { section = substr($0, 1, length - 1) }
     / # built in$/ { sub(/; # built in$/, ""); sub(/^ +/, ""); print section "." $0 }' "$tmp/shown" >"$tmp/settings"
sed -n 's/^\.BR \([a-z0-9_]*\.[a-z0-9_]*\) "\( = .*\)"$/\1\2/p' "$page" | sed 's/\\(dq/"/g; s/\\-/-/g' >"$tmp/page"
ok "k3.conf(5) has the same settings and defaults" diff "$tmp/settings" "$tmp/page"
ok "which are more than a handful" [ "$(wc -l <"$tmp/settings")" -gt 20 ]
is "$(grep -c '^.SH' "$page"), $(grep -c @ "$page")" "5, 0" "between the page's other parts"
for program in k3queued k3served; do
    is "$($program --help | sed -n 's/^  \([a-z_0-9]* = \)/\1/p')" "$(sed -n "s/^$program\.//p" "$tmp/settings")" \
        "$program --help has its own"
done
like "$(k3submit --help)" "--temperature T +sampling temperature; 0: always the likeliest token" "k3submit --help has the settings' words"
like "$(k3submit --help)" "--reasoning-effort LEVEL +how much the model thinks: one of low medium high max" "and choices"
done_testing
