#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Configures (when needed) and builds: scripts/build.sh DIR [configure options...]
# Quiet unless something fails; the whole output is in DIR/build.log. TARGETS names what is built instead of all.
set -eu
top=$(cd "$(dirname "$0")/.." && pwd)
dir=$1
shift
mkdir -p "$dir"
dir=$(cd "$dir" && pwd)
log=$dir/build.log
: >"$log"

run() { # what, command...
    local what=$1 began=$SECONDS
    shift
    if ! "$@" >>"$log" 2>&1; then
        grep -nE '(error|Error|warning):|No such file|undefined reference' "$log" | tail -n 40 >&2 || tail -n 40 "$log" >&2
        echo "build.sh: $what failed; see $log" >&2
        exit 1
    fi
    [ $((SECONDS - began)) -lt 2 ] || echo "$what: $((SECONDS - began)) s"
}

# In the order of age: a fragment or macro that is newer than configure means to make it again, which
# automake's own rules cannot do when a fragment was added.
if [ ! -e "$top/configure" ] || [ ! -e "$top/Makefile.in" ] ||
    [ -n "$(find "$top" -path "$top/build*" -prune -o \( -name '*.m4' -o -name '*.mk' -o -name configure.ac -o -name Makefile.am \) \
        -newer "$top/Makefile.in" -not -name aclocal.m4 -print -quit)" ]; then
    run autoreconf autoreconf -fi "$top"
fi
options="$* CC=${CC:-} CFLAGS=${CFLAGS:-}"
# Objects do not depend on the options: those of others would be linked.
if [ -e "$dir/.options" ] && [ "$(cat "$dir/.options")" != "$options" ] && [ -e "$dir/Makefile" ]; then
    run clean make -C "$dir" clean
fi
if [ ! -e "$dir/Makefile" ] || [ "$top/configure" -nt "$dir/Makefile" ] ||
    [ "$(cat "$dir/.options" 2>/dev/null)" != "$options" ]; then
    (cd "$dir" && run configure "$top/configure" "$@")
    echo "$options" >"$dir/.options"
    touch "$dir/Makefile"
fi
if [ -n "${TARGETS:-}" ]; then
    # What make all makes first, so that sources find generated headers.
    # shellcheck disable=SC2046,SC2016  # a list; of make
    run sources make -C "$dir" $(make -s --no-print-directory -C "$dir" --eval 'built: ; @echo $(BUILT_SOURCES)' built)
fi
# shellcheck disable=SC2086  # a list
run make make -C "$dir" -j"$(nproc)" ${TARGETS:-}
