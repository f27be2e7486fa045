#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# The Debian packages: built twice and equal, clean by lintian, and on a bare system (debootstrap, with a systemd as
# process 1 of its own namespaces) installed, up, used, reloaded, restarted, killed, stopped, enabled, installed again, removed
# and purged, with nothing left.
#
#   tests/install/debian.sh [SUITE [DIRECTORY]]    SUITE: bookworm, which is the default, or trixie; DIRECTORY: its packages
#
# It needs root, a mirror and minutes, and is therefore not part of ./check. Stages as in service.sh.
# shellcheck disable=SC2317,SC2015  # functions are called by check(); what stands after || does not return, or also ends a failed &&
set -u
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/namespaces.sh"

# ---- on the machine ------------------------------------------------------------------------------------------------

skip() { # why
    echo "skip - the_packages_serve_on_a_bare_system: $1"
    exit 77
}

# Leaves everything in the tree that the packages depend on, and the packages not.
prepare_root() { # work, suite
    local root=$1/root
    debootstrap --variant=minbase --include=systemd,systemd-sysv "$2" "$root" ${DEBIAN_MIRROR:+"$DEBIAN_MIRROR"} &&
        mkdir "$root/debs" && find "$1/debs" -name "*.deb" ! -name "*-dbgsym_*" -exec cp {} "$root/debs/" \; &&
        DEBIAN_FRONTEND=noninteractive chroot "$root" sh -c 'apt-get install -y --no-install-recommends /debs/*.deb &&
            dpkg --purge npugraphd npugraphctl libnpugraph-dev libnpugraph-hf0 libnpugraph0 && userdel npugraphd'
}

on_the_machine() { # suite, packages
    local work program suite=${1:-bookworm} here
    [ "$(id -u)" -eq 0 ] || skip "only root may make a system"
    for program in debootstrap unshare pivot_root setpriv; do
        command -v "$program" >/dev/null || skip "$program is missing (scripts/deps.sh package)"
    done
    here=$(cd "$(dirname "$0")/../.." && pwd)
    work=$(mktemp -d) && chmod 755 "$work" || exit 1
    # shellcheck disable=SC2064  # $work is known now
    trap "remove_tree '$work'" EXIT
    mkdir "$work/debs" "$work/top"
    report=$work/report
    if [ -n "${2:-}" ]; then
        cp "$2"/*.deb "$2"/*.changes "$2"/*.buildinfo "$work/debs/" || exit 1
    else
        check built_twice_the_packages_are_equal_and_lintian_finds_nothing "$here/scripts/package-deb" "$work/debs" "$suite" --twice
    fi
    check a_bare_system_has_what_the_packages_need prepare_root "$work" "$suite"
    [ "$status" -eq 0 ] || exit 1
    cp "$0" "$here/tests/install/namespaces.sh" "$work/" && cp -r "$here/examples/model" "$work/model" || exit 1
    run_in_namespaces "$work" debian.sh 300
    status=$?
    [ $status -ne 77 ] || skip "$(sed -n 's/^cannot: //p' "$work/log" | tail -n 1)"
    exit $status
}

enter() { # work
    make_root "$1" "$1/root" || exit 1
    become_systemd "$1" debian.sh
}

# ---- as a service --------------------------------------------------------------------------------------------------

# All files, but those of the kernel and of dpkg itself, and the accounts' files.
list_files() {
    find / -xdev \( -path /proc -o -path /sys -o -path /run -o -path /dev -o -path /tmp -o -path /var/lib/dpkg -o -path /var/log \
        -o -path /var/cache/ldconfig -o -path /var/lib/systemd \) -prune -o -print | grep -vE '^/etc/(passwd|group|shadow|gshadow)-?$|^/etc/ld.so.cache$|^/etc/\.(pwd|updated)' | sort
}

install_all() {
    DEBIAN_FRONTEND=noninteractive dpkg --install /debs/*.deb
}

# One call for each unit: systemctl is content if one of several is active.
is_up() {
    systemctl is-active npugraphd.service && systemctl is-active npugraphd.socket && systemctl is-enabled npugraphd.service &&
        systemctl is-enabled npugraphd.socket && npugraphctl status &&
        [ "$(stat -c %U "/proc/$(systemctl show -P MainPID npugraphd.service)")" = npugraphd ] && [ -d /var/cache/npugraphd/store ]
}

generates() {
    echo "models-dir = /srv/npugraphd-test" >/etc/npugraphd/conf.d/models.conf && npugraphctl reload &&
        npugraphctl load /srv/npugraphd-test/model --name bible &&
        npugraphctl generate bible --tokenizer /srv/npugraphd-test/model --prompt "In the beginning" --tokens 8
}

libraries_are_found() {
    ldconfig -p | grep -q libnpugraph.so.0 && ldconfig -p | grep -q libnpugraph-hf.so.0 && [ -s /usr/include/npugraph.h ] &&
        [ -s "$(find /usr/lib -name npugraph.pc)" ]
}

has_pages_and_completion() {
    [ -e /usr/share/bash-completion/completions/npugraphctl ] && [ -e /usr/share/zsh/site-functions/_npugraphctl ] &&
        [ -e /usr/share/fish/vendor_completions.d/npugraphctl.fish ] && dpkg -L npugraphd | grep -q man8/npugraphd.8.gz
}

installs_again() {
    local pid
    pid=$(systemctl show -P MainPID npugraphd.service) && install_all && is_up && [ "$(systemctl show -P MainPID npugraphd.service)" != "$pid" ] &&
        grep -q srv /etc/npugraphd/conf.d/models.conf
}

removes() {
    dpkg --remove npugraphd npugraphctl && [ -z "$(find /proc -maxdepth 1 -user npugraphd)" ] && ! systemctl is-active npugraphd.service npugraphd.socket &&
        [ -e /etc/npugraphd/npugraphd.conf ] && [ -e /etc/npugraphd/conf.d/models.conf ]
}

purges() {
    rm /etc/npugraphd/conf.d/models.conf && dpkg --purge npugraphd npugraphctl libnpugraph-dev libnpugraph-hf0 libnpugraph0 &&
        list_files >/run/test/after && diff /run/test/before /run/test/after && [ ! -e /run/npugraphd ]
}

inside() {
    list_files >/run/test/before
    check packages_install install_all
    check the_service_is_up_after_the_installation is_up
    check it_loads_a_model_and_generates generates
    check systemctl_reload_keeps_the_process reloads /etc/npugraphd/conf.d/models.conf
    check systemctl_restart_begins_again restarts
    check a_killed_daemon_comes_back comes_back
    check it_loads_its_models_when_it_starts has_its_models /etc/npugraphd/conf.d/models.conf
    systemctl reset-failed npugraphd.service
    check stopped_and_disabled_nothing_of_it_runs stops
    check enable_now_serves_at_once enables
    check libraries_and_headers_are_found libraries_are_found
    check manual_pages_and_completions_are_there has_pages_and_completion
    check installed_again_it_restarts_and_keeps_the_configuration installs_again
    check removed_it_is_gone_and_the_configuration_stays removes
    check purged_it_leaves_nothing purges
    systemctl --force exit "$status"
}

case ${1:-} in
enter) enter "$2" ;;
inside) inside ;;
*) on_the_machine "$@" ;;
esac
