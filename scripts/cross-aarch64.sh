#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Cross-compiles everything for aarch64 and runs tests under qemu: scripts/cross-aarch64.sh DIR
#
# The libraries of Debian's arm64 are unpacked below DIR/root and installed nowhere: apt gets a configuration of its own
# for that, so the machine's architectures, lists and packages stay as they are. Prints a line per test and the sum.
set -u
top=$(cd "$(dirname "$0")/.." && pwd)
mkdir -p "${1:?directory}" && dir=$(cd "$1" && pwd)
root=$dir/root
apt=$dir/apt
libraries=(libc6-dev libgrpc-dev libprotobuf-c-dev libevent-dev libjansson-dev liblua5.4-dev libssl-dev libonig-dev
    libutf8proc-dev libsmartcols-dev check)
# What computes, and what depends on the order of memory accesses. Tests that time out under emulation stay out:
# the rpc tests are in Python, whose gRPC is the machine's own.
tests=(tests/unit/test_{dtype,digest,lock,metrics,config,expr,graph,key,gcache,memplan,plan}
    tests/ops/test_{simd_math,ops,i8_matmul})

# Where apt gets the packages of a release: the address of its archive, from apt's own configuration.
archive_of() { # release, options of apt-get...
    local release=$1
    shift
    # shellcheck disable=SC2016  # $(...) is apt's own
    apt-get "$@" indextargets --format '$(CODENAME) $(REPO_URI)' 'Created-By: Packages' |
        awk -v release="$release" '$1 == release { uri = $2 } END { print uri }'
}

unpack() {
    local release archive lists=$apt/lists
    release=$(. /etc/os-release && echo "$VERSION_CODENAME")
    archive=$(archive_of "$release")
    if [ -z "$archive" ]; then # apt has no lists yet: they are had here, and the machine stays as it is
        mkdir -p "$lists/partial"
        apt-get -o Dir::State::lists="$lists" update -qq
        archive=$(archive_of "$release" -o Dir::State::lists="$lists")
    fi
    if [ -z "$archive" ]; then
        echo "apt's configuration names no archive with $release; add one to /etc/apt/sources.list.d"
        return 1
    fi
    mkdir -p "$apt/state/lists/partial" "$apt/cache/archives/partial" "$root.new"
    : >"$apt/status"
    echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $archive $release main" \
        >"$apt/sources.list"
    cat >"$apt/apt.conf" <<EOF
APT::Architecture "arm64";
APT::Architectures { "arm64"; };
APT::Install-Recommends "false";
APT::Sandbox::User "root";
Dir::State "$apt/state";
Dir::State::status "$apt/status";
Dir::Cache "$apt/cache";
Dir::Etc::SourceList "$apt/sources.list";
Dir::Etc::SourceParts "/dev/null";
Debug::NoLocking "true";
EOF
    export APT_CONFIG=$apt/apt.conf
    apt-get update -qq && apt-get install -y -qq --download-only "${libraries[@]}" || return 1
    for package in "$apt"/cache/archives/*.deb; do
        dpkg -x "$package" "$root.new" || return 1
    done
    mv "$root.new" "$root"
}

if [ ! -d "$root" ]; then
    rm -rf "$root.new" "$apt"
    echo "unpacking Debian's arm64 libraries below $root"
    if ! (unpack) >"$dir.log" 2>&1; then
        tail -n 20 "$dir.log" >&2
        echo "cross-aarch64.sh: the libraries could not be had" >&2
        exit 1
    fi
fi

compiler="${CCACHE:-} aarch64-linux-gnu-gcc --sysroot=$root"
export PKG_CONFIG_LIBDIR=$root/usr/lib/aarch64-linux-gnu/pkgconfig:$root/usr/share/pkgconfig PKG_CONFIG_SYSROOT_DIR=$root
# Debug information, which nobody reads here, is a third of the time that the kernels take.
CFLAGS=-O2 CC=${compiler# } "$top/scripts/build.sh" "$dir/build" --host=aarch64-linux-gnu --enable-debug --enable-werror || exit 1
# Programs of the tests are compiled for all folders, also where emulation is too slow to run them.
make -s -C "$dir/build" -j"$(nproc)" check TESTS= >"$dir/tests.log" 2>&1 || {
    grep -nE 'error:|\*\*\*' "$dir/tests.log" >&2
    exit 1
}
# The kernel may know no handler for foreign programs: the emulator is named.
make -C "$dir/build" -k -j"$(nproc)" check TESTS="${tests[*]}" LOG_COMPILER=qemu-aarch64-static \
    LOG_FLAGS="-L $root" CK_TIMEOUT_MULTIPLIER=10 >"$dir/check.log" 2>&1
status=$?
grep -E '^(PASS|FAIL|SKIP|ERROR): ' "$dir/check.log"
python3 "$top/scripts/count-results.py" "$dir/build" || status=1
exit $status
