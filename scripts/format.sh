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
status=0
for file in "${files[@]}"; do
    if clang-format --dry-run --Werror "$file" >/dev/null 2>&1; then
        echo "ok - $file is formatted"
    else
        echo "not ok - $file is formatted (run scripts/format.sh)"
        status=1
    fi
done
exit $status
