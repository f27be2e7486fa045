# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
#
# For tests that install into a tree of files and run a systemd there as process 1 of its own namespaces. Sourced.
# shellcheck disable=SC2015  # what stands after || does not return, or also ends a failed &&

cannot() { # what
    echo "cannot: $1"
    exit 77
}

# Removes a directory, unless something is mounted in it: what made it may have been killed with /sys or /dev of the machine
# there, and those files must not go too.
remove_tree() { # directory
    if awk -v at="$1" '$5 == at || index($5, at "/") == 1 { found = 1 } END { exit !found }' /proc/self/mountinfo; then
        echo "$1 stays, as something is mounted in it: umount that (/proc/self/mountinfo), then remove it" >&2
        return 1
    fi
    rm -rf --one-file-system "$1"
}

make_devices() { # directory
    local name
    for name in null zero full random urandom tty; do
        mknod -m 666 "$1/$name" c "$((0x$(stat -c %t "/dev/$name")))" "$((0x$(stat -c %T "/dev/$name")))" || return 1
    done
    mkdir "$1/shm" && mount -t tmpfs tmpfs "$1/shm"
}

# A tree that shows the files of `lower`, and takes all writes in memory.
make_root() { # work, lower
    local top=$1/top root=$1/top/root
    mount --make-rprivate / && mount -t tmpfs tmpfs "$top" || cannot "mounting is not allowed"
    mkdir "$top/upper" "$top/work" "$root" &&
        mount -t overlay overlay -o "lowerdir=$2,upperdir=$top/upper,workdir=$top/work" "$root" || cannot "there is no overlay file system"
    mount -t proc proc "$root/proc" && mount --rbind /sys "$root/sys" || cannot "/proc cannot be mounted"
    umount -R "$root/sys/fs/cgroup" 2>/dev/null
    mount -t tmpfs tmpfs "$root/sys/fs/cgroup" && mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup" || cannot "cgroups (v2) cannot be mounted"
    mount -t tmpfs tmpfs "$root/run" && mount -t tmpfs tmpfs "$root/tmp" && mount -t tmpfs tmpfs "$root/dev" &&
        make_devices "$root/dev" || cannot "devices cannot be made"
    # The test's own directory, through which its results come back; and a console, which is a file.
    mkdir "$root/run/test" && mount --bind "$1" "$root/run/test" && touch "$1/console" "$root/dev/console" &&
        mount --bind "$1/console" "$root/dev/console" || cannot "files cannot be bound"
    mkdir -p "$root/srv/npugraphd-test" && cp -r "$1/model" "$root/srv/npugraphd-test/"
}

# The units of the test, instead of all that the machine would start. The test's script runs in them as a service.
write_units() { # script, below /run/test
    cat >etc/systemd/system/npugraphd-test.service <<END
[Unit]
After=basic.target
Requires=basic.target
[Service]
Type=oneshot
Environment=HOME=/root
ExecStart=$BASH /run/test/$1 inside
StandardOutput=file:/run/test/output
StandardError=inherit
FailureAction=exit-force
END
    # Services of the machine that basic.target brings; they have no part in this.
    local unit
    for unit in systemd-udevd.service systemd-timesyncd.service systemd-journal-flush.service apparmor.service dev-hugepages.mount \
        systemd-update-utmp.service systemd-random-seed.service systemd-resolved.service systemd-networkd.service; do
        ln -sf /dev/null "etc/systemd/system/$unit"
    done
    : >etc/fstab
}

# Becomes systemd in the tree, with the script as its only service.
become_systemd() { # work, script
    cd "$1/top/root" || exit 1
    write_units "$2" || exit 1
    ip link set lo up 2>/dev/null
    mkdir run/old && pivot_root . run/old && umount -l /run/old || exit 1
    exec env -i container=npugraphd-test PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
        /lib/systemd/systemd --unit=npugraphd-test.service --log-target=console --log-level=warning --show-status=no
}

# Runs the script's stage `enter` in new namespaces, and prints its checks. Process 1 ends with the service inside, and has
# its exit status. If the test is killed, so is all of it. Returns 77 if the namespaces cannot be made.
run_in_namespaces() { # work, script, seconds
    local log=$1/log status
    timeout -k 5 "$3" setpriv --pdeathsig KILL unshare --mount --pid --fork --kill-child --net --ipc --uts --cgroup \
        "$BASH" "$1/$2" enter "$1" >"$log" 2>&1 </dev/null
    status=$?
    [ $status -ne 77 ] || return 77
    if grep -q '^unshare: ' "$log"; then # as in a chroot, whose root is no mount point
        echo "cannot: $(head -n 1 "$log")" >>"$log"
        return 77
    fi
    cat "$1/console" "$1/output" >>"$log" 2>/dev/null
    # The lines of the checks. The rest is what systemd says, and of interest only if one fails.
    if [ $status -eq 0 ] && grep -q '^ok - ' "$log" && ! grep -q '^not ok - ' "$log"; then
        grep '^ok - ' "$log"
        return 0
    fi
    cat "$log"
    grep -q '^not ok - ' "$log" || echo "not ok - systemd_ends_with_the_test: status $status"
    return 1
}

# ---- as a service

status=0
report=/run/test/report # what a check says, of which nothing is printed if it succeeds
check() { # what, command...
    local what=$1
    shift
    if "$@" >"$report" 2>&1; then
        echo "ok - $what"
    else
        cat "$report"
        [ ! -d /run/systemd/system ] || systemctl status --no-pager -n 5 npugraphd.service npugraphd.socket 2>&1
        echo "not ok - $what"
        status=1
    fi
}

# What the service does however it was installed.

state() { # property
    systemctl show -P "$1" npugraphd.service
}

# Type=notify: systemctl returns when the daemon has said that it serves.
enables() {
    systemctl enable --now npugraphd && systemctl is-active npugraphd && npugraphctl status
}

# conf: a file of options
reloads() { # conf
    local pid
    pid=$(state MainPID) && echo "log-level = debug" >>"$1" && systemctl reload npugraphd && [ "$(state MainPID)" = "$pid" ] &&
        [ "$(state ActiveState)" = active ] && npugraphctl config show log-level | grep -q debug
}

restarts() {
    local pid
    pid=$(state MainPID) && systemctl restart npugraphd && [ "$(state MainPID)" != "$pid" ] && [ "$(state ActiveState)" = active ] && npugraphctl status
}

comes_back() {
    local pid
    pid=$(state MainPID) && [ "$pid" -gt 1 ] && kill -KILL "$pid" || return 1
    for _ in $(seq 100); do
        [ "$(state MainPID)" != "$pid" ] && [ "$(state ActiveState)" = active ] && npugraphctl status && return
        sleep 0.1
    done
    return 1
}

# The option load, in the sandbox of the unit: killed and started again, the daemon has the model by itself.
has_its_models() { # conf
    systemctl reset-failed npugraphd.service
    echo 'load = atstart "/srv/npugraphd-test/model" --kv-bytes 8M' >>"$1" && comes_back && npugraphctl --timeout 60s status --wait --models &&
        npugraphctl generate atstart --prompt "In the beginning" --tokens 8 && ! systemctl show -P StatusText npugraphd.service | grep missing
}

stops() {
    systemctl disable --now npugraphd.service npugraphd.socket && [ "$(state Result)" = success ] &&
        [ -z "$(find /proc -maxdepth 1 -user npugraphd)" ] &&
        [ ! -e /run/npugraphd/npugraphd.sock ]
}
