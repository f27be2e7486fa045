#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# What `make install` left is complete: `make installcheck` runs this with the directories of the installation.
# Programs of a reader's own are compiled against the installed headers with pkg-config's words alone.
# shellcheck disable=SC2317  # functions are called by check()
set -u
: "${bindir:?}" "${sbindir:?}" "${libdir:?}" "${mandir:?}" "${bashcompletiondir:?}" "${version:?}" "${top_srcdir:?}"
# With DESTDIR, what is installed says where it will be, not where it is.
destdir=${DESTDIR:-}
status=0
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT

check() { # what, command...
    local what=$1
    shift
    if "$@" >"$work/output" 2>&1; then
        echo "ok - $what"
    else
        cat "$work/output"
        echo "not ok - $what"
        status=1
    fi
}

says_version() { # program
    [ "$("$1" --version)" = "${1##*/} $version" ] || {
        echo "it says: $("$1" --version); expected: ${1##*/} $version"
        return 1
    }
}

package() { # package, pkg-config's options...
    local name=$1
    shift
    PKG_CONFIG_PATH=$destdir$libdir/pkgconfig PKG_CONFIG_SYSROOT_DIR=$destdir pkg-config "$@" "$name"
}

has_version() { # package
    [ "$(package "$1" --modversion)" = "$version" ]
}

compile() { # package, source, program
    local words
    words=$(package "$1" --cflags --libs) || return 1
    # shellcheck disable=SC2086  # compilers and flags are words
    (cd "$work" && ${CC:-cc} -Wall -Werror "$2" $words -o "$3")
}

# A program that needs no checkpoints: the linker also refuses it if libnpugraph lacks what libnpugraph-hf has.
compile_plain() {
    cat >"$work/plain.c" <<'END'
#include <npugraph.h>
#include <stdio.h>

int main(void)
{
    struct npugraph_connect_params params;
    struct npugraph_client *client = NULL;
    struct npugraph_error err;

    npugraph_connect_params_init(&params);
    params.address = "nowhere";
    puts(npugraph_version());
    return npugraph_connect(&params, &client, &err) == 3 ? 0 : 1;
}
END
    compile npugraph "$work/plain.c" plain
}

# Programs that bring their own graphs and tokens do not load what checkpoints and tokenizers need.
needs_no_hf() { # library
    local needed
    needed=$(readelf -d "$1" | grep NEEDED) && [ -n "$needed" ] && ! grep -E 'jansson|onig|utf8proc|npugraph-hf' <<<"$needed" &&
        needed=$(ldd "$1") && ! grep -E 'jansson|onig|utf8proc|npugraph-hf' <<<"$needed"
}

# The installed daemon and npugraphctl, and the program that was just compiled.
generate() {
    local address=unix:$work/sock model=$top_srcdir/examples/model pid status=1
    "$destdir$sbindir/npugraphd" --listen="$address" --stats-listen=off --models-dir="$model" --device-memory=256M &
    pid=$!
    # Its socket is there a moment before it listens.
    for _ in $(seq 300); do
        "$destdir$bindir/npugraphctl" --address "$address" status >/dev/null 2>&1 && break
        kill -0 "$pid" || break
        sleep 0.1
    done
    "$destdir$bindir/npugraphctl" --address "$address" load "$model" --name bible &&
        "$work/worker" --address "$address" --model bible --tokenizer "$model/tokenizer.json" \
            --prompt "In the beginning" --tokens 8 && status=0
    kill -TERM "$pid" && wait "$pid" || status=1
    return "$status"
}

export LD_LIBRARY_PATH=$destdir$libdir${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
check "npugraphctl --version answers $version" says_version "$destdir$bindir/npugraphctl"
check "npugraphd --version answers $version" says_version "$destdir$sbindir/npugraphd"
check "npugraph.pc has the version" has_version npugraph
check "npugraph-hf.pc has the version" has_version npugraph-hf
check "libnpugraph does not need jansson, Oniguruma and utf8proc" needs_no_hf "$destdir$libdir/libnpugraph.so"
check "a program compiles against npugraph.h and libnpugraph alone" compile_plain
check "that program runs" "$work/plain"
check "the example compiles against npugraph_hf.h and both libraries" compile npugraph-hf "$top_srcdir/examples/worker.c" worker
check "the example generates text with the installed libraries and daemon" generate
check "npugraphd accepts its own sample configuration" \
    bash -c "'$destdir$sbindir/npugraphd' --print-config >'$work/conf' && '$destdir$sbindir/npugraphd' --config='$work/conf' --check-config"
for page in man1/npugraphctl.1 man5/npugraphd.conf.5 man8/npugraphd.8; do
    check "$page is installed" test -s "$destdir$mandir/$page"
done
check "the completion is installed and loads" bash -n "$destdir$bashcompletiondir/npugraphctl"
exit $status
