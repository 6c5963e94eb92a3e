#!/bin/sh
# autogen.sh : make ./configure from configure.ac (needs autoconf, automake, pkg-config's pkg.m4).
set -e
cd "$(dirname "$0")"
for t in autoreconf automake pkg-config; do
    command -v $t >/dev/null || { echo "autogen.sh: '$t' is missing: install autoconf, automake and pkg-config" >&2; exit 1; }
done
mkdir -p build-aux
exec autoreconf --install --force --warnings=all
