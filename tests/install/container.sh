#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# The image of packaging/container: built by podman upon a bare Debian, and run as docs/container.md and the chart do: not as
# root, without capabilities, with a read-only root and no network. It is healthy, serves, stops in order and keeps its store.
#
#   tests/install/container.sh [SUITE [DIRECTORY]]    SUITE of the bare Debian: bookworm, which is the default, or trixie;
#                                                     DIRECTORY: packages for it; otherwise the image compiles them
#
# It needs root, a mirror and minutes, and is therefore not part of ./check. No registry: debootstrap makes the base, or NGD_BASE_TAR
# names a tar file of one.
# shellcheck disable=SC2317  # functions are called by check()
set -u
suite=${1:-bookworm}
top=$(cd "$(dirname "$0")/../.." && pwd)
status=0

skip() { # why
    echo "skip - the_image_serves: $1"
    exit 77
}

[ "$(id -u)" -eq 0 ] || skip "only root may make a system"
for program in podman debootstrap unshare; do
    command -v "$program" >/dev/null || skip "$program is missing (scripts/deps.sh container)"
done
# Mounts of its own, which end with it. The runtimes take cgroups of version 2 alone or of version 1 alone, not both.
if [ -z "${NGD_CONTAINER_TEST:-}" ]; then
    NGD_CONTAINER_TEST=inside exec unshare --mount "$BASH" "$0" "$@"
fi
umount -R /sys/fs/cgroup 2>/dev/null
mount -t cgroup2 cgroup2 /sys/fs/cgroup || skip "cgroups (v2) cannot be mounted"
work=$(mktemp -d) || exit 1
pod() { # arguments of podman
    # Its own storage, so that nothing of the machine's is changed.
    podman --root "$work/storage" --runroot "$work/run" --tmpdir "$work/tmp" --storage-driver vfs --cgroup-manager cgroupfs \
        --events-backend file "$@"
}

leave() {
    pod rm --all --force --time 5 >/dev/null 2>&1
    # What is still mounted is left alone, and so is what lies above it.
    umount "$work/storage/vfs" 2>/dev/null
    if grep -q " $work/" /proc/self/mountinfo; then
        echo "container.sh: something is still mounted below $work" >&2
    else
        rm -rf "$work"
    fi
}
trap leave EXIT

check() { # what, command...
    local what=$1
    shift
    if "$@" >"$work/report" 2>&1; then
        echo "ok - $what"
    else
        cat "$work/report"
        echo "not ok - $what"
        status=1
    fi
}

# The base that a registry would give.
make_base() {
    if [ -n "${NGD_BASE_TAR:-}" ]; then
        pod import "$NGD_BASE_TAR" localhost/base:latest
        return
    fi
    debootstrap --variant=minbase "$suite" "$work/base" ${DEBIAN_MIRROR:+"$DEBIAN_MIRROR"} &&
        tar -C "$work/base" --exclude=./proc/* --exclude=./sys/* --exclude=./var/cache/apt/archives/*.deb -cf "$work/base.tar" . &&
        pod import "$work/base.tar" localhost/base:latest
}

build_image() { # packages
    local from=()
    [ -z "${1:-}" ] || from=(--build-context "packages=$1")
    pod build --isolation chroot --network host --security-opt seccomp=unconfined --format docker --build-arg BASE=localhost/base:latest "${from[@]}" \
        -f "$top/packaging/container/Containerfile" -t localhost/npugraphd "$top"
}

# cgroups=disabled: the test may run where those of the machine are not its own. ulimit: podman's defaults may be above the machine's.
start() { # name, options of podman..., --, options of npugraphd...
    local name=$1 own=()
    shift
    while [ "$1" != -- ]; do
        own+=("$1")
        shift
    done
    shift
    pod run --detach --name "$name" --cgroups=disabled --ulimit nofile=4096:4096 --ulimit nproc=4096:4096 --network none --read-only --read-only-tmpfs --cap-drop ALL \
        --security-opt no-new-privileges --volume "$work/models:/models:ro" --volume npugraphd-store:/var/cache/npugraphd "${own[@]}" \
        localhost/npugraphd "$@"
}

inside() { # command...
    pod exec npugraphd "$@"
}

is_healthy() {
    inside npugraphctl --timeout 60s status --wait && pod healthcheck run npugraphd
}

has_no_rights() {
    [ "$(inside id -u)" = 10001 ] && inside grep -E '^CapEff:\s+0+$' /proc/1/status && inside grep -E '^NoNewPrivs:\s+1$' /proc/1/status &&
        ! inside touch /etc/npugraphd/written && ! inside touch /usr/sbin/npugraphd
}

generates() {
    inside npugraphctl load /models/bible --name bible && inside npugraphctl generate bible --prompt "In the beginning" --tokens 8
}

# SIGTERM drains, and the exit status says so.
stops_in_order() {
    [ "$(pod stop --time 60 npugraphd >/dev/null && pod inspect --format '{{.State.ExitCode}}' npugraphd)" = 0 ]
}

keeps_its_plans() {
    pod rm npugraphd && start npugraphd -- --device host --models-dir /models && is_healthy && generates &&
        inside npugraphctl stats --prometheus >"$work/metrics" && grep '^npugraphd_store_hits_total [1-9]' "$work/metrics"
}

# With the option load, as an orchestrator starts it: nobody loads anything.
has_its_models() {
    pod rm --force --time 60 npugraphd && start npugraphd -- --device host --models-dir /models --load "bible /models/bible --kv-bytes 8M" &&
        inside npugraphctl --timeout 60s status --wait --models && inside npugraphctl generate bible --prompt "In the beginning" --tokens 8
}

# As the chart runs it: the configuration of the plain manifests.
serves_as_in_kubernetes() {
    mkdir "$work/etc" && sed -n '/npugraphd.conf: |/,/^---/s/^    //p' "$top/packaging/kubernetes/npugraphd.yaml" >"$work/etc/npugraphd.conf" &&
        [ -s "$work/etc/npugraphd.conf" ] && pod rm --force --time 60 npugraphd &&
        start npugraphd --volume "$work/etc:/etc/npugraphd:ro" --tmpfs /run/npugraphd:mode=0777 -- --config /etc/npugraphd/npugraphd.conf && is_healthy
}

mkdir "$work/models" && cp -r "$top/examples/model" "$work/models/bible" && chmod -R a+rX "$work" || exit 1
check a_base_is_made make_base
[ $status -eq 0 ] || exit 1
check the_image_is_built build_image "${2:-}"
[ $status -eq 0 ] || exit 1
check it_starts start npugraphd -- --device host --models-dir /models
check it_is_healthy is_healthy
check it_has_no_rights has_no_rights
check it_loads_a_model_and_generates generates
check it_stops_in_order stops_in_order
check the_next_container_finds_the_plans keeps_its_plans
check it_loads_its_models_when_it_starts has_its_models
check it_serves_with_the_configuration_of_the_manifests serves_as_in_kubernetes
echo "the image has $(($(pod image inspect --format '{{.Size}}' localhost/npugraphd) / 1048576)) MiB, its base $(($(pod image inspect --format '{{.Size}}' localhost/base) / 1048576))"
exit $status
