# SPDX-License-Identifier: Apache-2.0
# Shell scripts pass shellcheck.
set -u
cd "${top_srcdir:-.}" || exit 1
if ! command -v shellcheck >/dev/null; then
    echo "skip - shell_scripts_pass_shellcheck: shellcheck is not installed"
    exit 77
fi
scripts=(check quickstart .ci/run tests/environment.sh scripts/check-packaging scripts/package-deb scripts/package-rpm scripts/release)
while IFS= read -r path; do
    scripts+=("$path")
done < <(find scripts tests examples client -name '*.sh' -o -name '*.bash' | sort)
# SC2154: top_srcdir and the like come from the harness (tests/local.mk).
status=0
for path in "${scripts[@]}"; do
    [ -e "$path" ] || continue
    if shellcheck -x -s bash -e SC1091,SC2154 "$path"; then
        echo "ok - $path passes shellcheck"
    else
        echo "not ok - $path passes shellcheck"
        status=1
    fi
done
exit $status
