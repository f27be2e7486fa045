#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# clang-format on all C files: scripts/format.sh [--check]. Tables (.def) are laid out by hand.
set -eu
cd "$(dirname "$0")/.."
mapfile -t files < <(find base graphs devices scheduler proto daemon client tests bench examples \
    \( -name '*.c' -o -name '*.h' \) -not -name '*.pb-c.*' -not -path proto/descriptors.c | sort)
if [ "${1:-}" != --check ]; then
    exec clang-format -i "${files[@]}"
fi
# Many files for each process, which takes longer to start than to look at one.
if wrong=$(printf '%s\0' "${files[@]}" | xargs -0 -P "$(nproc)" -n 50 clang-format --dry-run --Werror 2>&1); then
    echo "ok - ${#files[@]} files are formatted"
    exit
fi
sed -n 's/^\([^ :]*\):[0-9]*:[0-9]*: error: .*/not ok - \1 is formatted (run scripts\/format.sh)/p' <<<"$wrong" | sort -u | grep . || echo "$wrong"
exit 1
