# SPDX-License-Identifier: Apache-2.0
# systemd accepts the unit files as they are installed. Runs without systemd as the init.
set -u
name=unit_files_pass_systemd_analyze
if ! command -v systemd-analyze >/dev/null; then
    echo "skip - $name: systemd-analyze is not installed"
    exit 77
fi
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
for unit in npugraphd.service npugraphd.socket; do
    if [ -e "$top_builddir/systemd/$unit" ]; then
        cp "$top_builddir/systemd/$unit" "$work/" || exit 1
    else
        cp "$top_srcdir/systemd/$unit" "$work/" || exit 1
    fi
done
# verify insists that the program exists; it may not be installed yet.
sed -i "s|^ExecStart=[^ ]*|ExecStart=/bin/true|" "$work/npugraphd.service"
# Man pages may be missing too. Warnings about other units of the machine do not count.
if report=$(systemd-analyze verify --man=no --recursive-errors=no "$work/npugraphd.service" \
    "$work/npugraphd.socket" 2>&1) && [ -z "$report" ]; then
    echo "ok - $name"
else
    echo "$report"
    echo "not ok - $name"
    exit 1
fi
# With the drop-in for machines with NPUs: no line of it is unknown, and it takes effect. The unit has a name here that the
# machine has no other files for.
name=drop_in_for_npus_is_accepted_and_takes_effect
sed '/^Also=/d' "$work/npugraphd.service" >"$work/npugraphd-ascend.service"
mkdir "$work/npugraphd-ascend.service.d" && cp "$top_srcdir/systemd/npugraphd.service.d/ascend.conf" "$work/npugraphd-ascend.service.d/" || exit 1
report=$(SYSTEMD_UNIT_PATH="$work:" systemd-analyze verify --man=no --recursive-errors=no npugraphd-ascend.service 2>&1)
effect=$(SYSTEMD_UNIT_PATH="$work:" systemd-analyze security --offline=true npugraphd-ascend.service 2>&1)
for part in "Service may allocate netlink sockets" "/dev/davinci0:rw" "/dev/davinci_manager:rw" "/dev/devmm_svm:rw" "/dev/hisi_hdc:rw"; do
    grep -qF -- "$part" <<<"$effect" || report="$report
the drop-in does not give: $part"
done
if [ -z "$report" ]; then
    echo "ok - $name"
else
    echo "$report"
    echo "not ok - $name"
    exit 1
fi
if score=$(systemd-analyze security --offline=true --threshold=30 "$work/npugraphd.service" 2>&1); then
    echo "ok - service_exposure_is_at_most_3.0: ${score##*overall }"
else
    echo "$score"
    echo "not ok - service_exposure_is_at_most_3.0"
    exit 1
fi
