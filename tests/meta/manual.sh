# SPDX-License-Identifier: Apache-2.0
# The manual pages are formatted without a warning. The check itself: a page with a mistake gives one.
set -u
cd "${top_srcdir:-.}" || exit 1
if ! command -v man >/dev/null; then
    echo "skip - manual_pages_format_without_warnings: man is not installed"
    exit 77
fi
status=0
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT

warnings() { # page
    { MANROFFSEQ='' MANWIDTH=80 man --warnings -E UTF-8 -l -Tutf8 -Z "$1" >/dev/null; } 2>&1
}

for page in man/*.[1-8]; do
    text=$(warnings "$page")
    if [ -z "$text" ]; then
        echo "ok - $page is formatted without warnings"
    else
        echo "$text"
        echo "not ok - $page is formatted without warnings"
        status=1
    fi
done
printf '.TH X 1\n.SH NAME\nx \\- y\n.NOSUCHMACRO\n' >"$work/x.1"
if [ -n "$(warnings "$work/x.1")" ]; then
    echo "ok - a page with an unknown macro is reported"
else
    echo "not ok - a page with an unknown macro is reported"
    status=1
fi
exit $status
