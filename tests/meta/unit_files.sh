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
if score=$(systemd-analyze security --offline=true --threshold=30 "$work/npugraphd.service" 2>&1); then
    echo "ok - service_exposure_is_at_most_3.0: ${score##*overall }"
else
    echo "$score"
    echo "not ok - service_exposure_is_at_most_3.0"
    exit 1
fi
