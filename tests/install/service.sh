#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# What `make install` leaves is a service: a systemd that is process 1 of its own namespaces takes over the installed
# files as a package's scripts would, and serves after `systemctl enable --now npugraphd`. The machine's file system is
# below an overlay, so nothing of it changes. Without the rights or programs for that, the test is skipped and says why.
#
# Stages, each in its own process: (none) on the machine; `enter` in new namespaces, which becomes systemd; `inside` as a
# service of that systemd.
# shellcheck disable=SC2317,SC2015  # functions are called by check(); what stands after || does not return, or also ends a failed &&
set -u
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/namespaces.sh"

# Where there can be no systemd, what it would start starts at least: the unit's own command, with the installed file, as
# another user. Only the sockets are this test's.
starts_as_another_user() { # work
    local command as=() pid status=1 socket=$1/other/sock
    read -ra command < <(sed -n 's/^ExecStart=//p' "$(find "$1/installed" -name npugraphd.service)")
    command[0]=$1/installed${command[0]} command[2]=$1/installed${command[2]}
    mkdir "$1/other" || return 1
    if [ "$(id -u)" -eq 0 ]; then
        chown nobody "$1/other" && as=(setpriv --reuid nobody --regid nogroup --clear-groups) || return 1
    fi
    "${as[@]}" "${command[@]}" --listen="unix:$socket" --stats-listen=off --device-memory=256M >"$1/other.log" 2>&1 &
    pid=$!
    for _ in $(seq 300); do
        "$(find "$1/installed" -name npugraphctl -path '*/bin/*')" --address "unix:$socket" status >>"$1/other.log" 2>&1 && status=0 && break
        kill -0 "$pid" 2>/dev/null || break
        sleep 0.1
    done
    kill -TERM "$pid" && wait "$pid" || status=1
    [ $status -eq 0 ] || cat "$1/other.log"
    return $status
}

skip() { # why
    echo "skip - the_installed_service_serves_with_systemd: $1"
    exit 0
}

# ---- on the machine ------------------------------------------------------------------------------------------------

on_the_machine() {
    local program work status
    : "${top_builddir:?}" "${top_srcdir:?}"
    if [ -n "${SANITIZER:-}" ] || [ ! -e "$top_builddir/npugraphd" ]; then
        echo "skip - the_installed_service: it is tested without sanitizers, after the programs are built"
        exit 77
    fi
    work=$(mktemp -d) && chmod 755 "$work" || exit 1
    # shellcheck disable=SC2064  # $work is known now
    trap "remove_tree '$work'" EXIT
    # The harness runs other tests at the same time; its make must not see this one as its child.
    env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL make -s -C "$top_builddir" install DESTDIR="$work/installed" >"$work/make" 2>&1 || {
        cat "$work/make"
        echo "not ok - make_install"
        exit 1
    }
    if starts_as_another_user "$work"; then
        echo "ok - the_units_command_starts_as_another_user"
    else
        echo "not ok - the_units_command_starts_as_another_user"
        exit 1
    fi
    [ "$(id -u)" -eq 0 ] || skip "only root may make the namespaces"
    for program in unshare pivot_root setpriv tar; do
        command -v "$program" >/dev/null || skip "$program is missing (Debian: util-linux, tar)"
    done
    [ -x /lib/systemd/systemd ] && command -v systemctl >/dev/null || skip "systemd is not installed"
    mkdir "$work/top" && cp "$0" "$(dirname "$0")/namespaces.sh" "$work/" && cp -r "$top_srcdir/examples/model" "$work/model" || exit 1
    run_in_namespaces "$work" service.sh 60
    status=$?
    [ $status -ne 77 ] || skip "$(sed -n 's/^cannot: //p' "$work/log" | tail -n 1)"
    exit $status
}

# ---- in new namespaces ---------------------------------------------------------------------------------------------

enter() { # work
    make_root "$1" / || exit 1
    tar -C "$1/installed" -c . | tar -C "$1/top/root" -x --keep-directory-symlink --no-overwrite-dir || exit 1
    find "$1/installed" -type f | sed "s|^$1/installed||" >"$1/files"
    become_systemd "$1" service.sh
}

# ---- as a service --------------------------------------------------------------------------------------------------

installed() { # end of the path
    grep -m 1 "/$1\$" /run/test/files
}

# What a package's scripts do.
take_over() {
    systemd-sysusers "$(installed sysusers.d/npugraphd.conf)" && systemd-tmpfiles --create "$(installed tmpfiles.d/npugraphd.conf)" &&
        ldconfig && systemctl daemon-reload && id npugraphd
}

runs_as_its_user() {
    [ "$(stat -c %U "/proc/$(state MainPID)")" = npugraphd ] && [ "$(stat -c %U:%G:%a /run/npugraphd)" = npugraphd:npugraphd:750 ] &&
        [ -d /var/cache/npugraphd/store ]
}

members_may_connect() {
    useradd -M -N -g npugraphd member && useradd -M -N -g nogroup stranger &&
        setpriv --reuid member --regid npugraphd --clear-groups npugraphctl status &&
        ! setpriv --reuid stranger --regid nogroup --clear-groups npugraphctl status
}

# A model, from a directory that a file of one's own allows.
generates() {
    local conf
    conf=$(installed npugraphd/npugraphd.conf) && echo "models-dir = /srv/npugraphd-test" >>"$conf" && systemctl restart npugraphd &&
        npugraphctl load /srv/npugraphd-test/model --name bible &&
        npugraphctl generate bible --tokenizer /srv/npugraphd-test/model --prompt "In the beginning" --tokens 8
}

# As after a boot: the socket is there first, and a client's call starts the daemon. Clients find the socket again after a
# restart too.
starts_by_its_socket() {
    # Here it has been started more often than systemd takes for a healthy service.
    systemctl reset-failed npugraphd.service
    systemctl stop npugraphd.service && systemctl start npugraphd.socket && [ "$(state ActiveState)" = inactive ] &&
        npugraphctl status && [ "$(state ActiveState)" = active ] && systemctl restart npugraphd.service && npugraphctl status &&
        systemctl stop npugraphd.service && npugraphctl status && [ "$(state ActiveState)" = active ]
}

inside() {
    check make_install_leaves_a_configuration_file test -s "$(installed npugraphd/npugraphd.conf)"
    check sysusers_and_tmpfiles_accept_what_is_installed take_over
    check enable_now_serves_at_once enables
    check the_daemon_runs_as_its_own_user_in_its_own_directories runs_as_its_user
    check members_of_the_group_connect_and_others_do_not members_may_connect
    check the_service_loads_a_model_and_generates generates
    check systemctl_reload_keeps_the_process reloads "$(installed npugraphd/npugraphd.conf)"
    check a_killed_daemon_comes_back comes_back
    check it_loads_its_models_when_it_starts has_its_models "$(installed npugraphd/npugraphd.conf)"
    check the_socket_starts_the_daemon starts_by_its_socket
    check it_stops_and_leaves_nothing stops
    # Ends systemd, whose status this is.
    systemctl --force exit $status
}

case ${1:-} in
enter) enter "$2" ;;
inside) inside ;;
*) on_the_machine ;;
esac
