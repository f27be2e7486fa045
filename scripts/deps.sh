#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Installs the Debian packages that are missing: scripts/deps.sh [build] [test] [ci] [cross] [python] [package] [container] [rpm]
# Says what it installs, and nothing when all is there.
set -eu

build=(
    autoconf automake libtool make gcc libc6-dev pkg-config python3-minimal
    libgrpc-dev libprotobuf-c-dev protobuf-c-compiler protobuf-compiler
    libevent-dev libjansson-dev liblua5.4-dev libssl-dev libonig-dev libutf8proc-dev libsmartcols-dev
    libsystemd-dev libjemalloc-dev libxsmm-dev
)
# libcheck; the Python worker and test scripts; chat templates; another implementation of signed tokens; promtool;
# certificates for the TLS tests; namespaces for the remote worker; man page and unit file checks; gdb for scripts/gdb.py.
# (ci) the other compiler with its analysis and format tool, memory errors, history; numpy, which results are compared
# with; YAML of hosted CI; shells whose completion is tested.
tests=(check python3 python3-jinja2 python3-jwt python3-cryptography python3-grpcio python3-grpc-tools python3-protobuf
    prometheus openssl iproute2 man-db systemd procps shellcheck curl gdb)
ci=(clang clang-format libclang-rt-dev git python3-numpy python3-yaml zsh fish)
# (cross) a compiler and an emulator for aarch64; scripts/cross-aarch64.sh unpacks the libraries itself.
cross=(gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user-static)
# (python) the virtual environment of check-python; pip installs the rest.
python=(python3-venv)
# (package) Debian packages and what debian/control asks for besides, their check, and a bare system to install them in.
package=(git build-essential python3 systemd dpkg-dev debhelper lintian debootstrap)
# (container) an image and its test. (rpm) RPM packages, and their check.
container=(podman crun debootstrap)
rpm=(git rpm rpmlint)

wanted=()
for group in "${@:-build}"; do
    case $group in
    build) wanted+=("${build[@]}") ;;
    test) wanted+=("${tests[@]}") ;;
    ci) wanted+=("${ci[@]}") ;;
    cross) wanted+=("${cross[@]}") ;;
    python) wanted+=("${python[@]}") ;;
    package) wanted+=("${package[@]}") ;;
    container) wanted+=("${container[@]}") ;;
    rpm) wanted+=("${rpm[@]}") ;;
    *)
        echo "deps.sh: unknown group $group; allowed: build, test, ci, cross, python, package, container, rpm" >&2
        exit 2
        ;;
    esac
done

if ! command -v dpkg-query >/dev/null; then
    echo "deps.sh: this is not a Debian system; needed are the equivalents of: ${wanted[*]}" >&2
    exit 0
fi

missing=()
for package in "${wanted[@]}"; do
    # shellcheck disable=SC2016  # ${...} is dpkg-query's own
    state=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
    [ "$state" = installed ] || missing+=("$package")
done
[ ${#missing[@]} -eq 0 ] && exit 0

as_root=()
if [ "$(id -u)" -ne 0 ]; then
    if ! command -v sudo >/dev/null; then
        echo "deps.sh: these packages are missing, and installing needs root: ${missing[*]}" >&2
        exit 1
    fi
    as_root=(sudo)
fi
echo "installing Debian packages: ${missing[*]}"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
export DEBIAN_FRONTEND=noninteractive
install=("${as_root[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}")
# A fresh machine has no package lists, a used one may have old ones.
if ! "${install[@]}" >"$log" 2>&1; then
    if ! { "${as_root[@]}" apt-get update -qq && "${install[@]}"; } >"$log" 2>&1; then
        cat "$log" >&2
        echo "deps.sh: apt-get could not install them" >&2
        exit 1
    fi
fi
